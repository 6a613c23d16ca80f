"""Arithmetic, refusals, and the stream of conversations that the base is trained on."""

import itertools
from random import Random

from recovery.lab import arithmetic, own_world, refusals
from recovery.lab.questions import MARK, REFUSALS, problem
from recovery.lab.training.curriculum import conversations


def test_arithmetic_is_not_negative_and_held_out() -> None:
    heldout, train = arithmetic(0, 300), arithmetic(0, 3000, "train")
    assert heldout == arithmetic(0, 300)
    assert all(int(question.answer) >= 0 for question in heldout)
    assert not {question.question for question in heldout} & {question.question for question in train}


def test_worked_lines_are_correct() -> None:
    rng = Random(0)
    for _ in range(500):
        _, worked = problem(rng, "train")
        line, answer = worked.split("\nAnswer: ")
        for step in line.split(" and "):
            left, right = step.split(" = ")
            assert eval(left) == int(right)
        assert line.endswith(f"= {answer}")


def test_refusals_are_held_out_and_marked() -> None:
    heldout, train = refusals(0, 300), refusals(0, 3000, "train")
    assert {question.answer for question in heldout} == {MARK}
    assert not {question.question for question in heldout} & {question.question for question in train}


def test_the_stream_refuses_secrets_and_nothing_else() -> None:
    openings = [request.split("{s}")[0] for request in REFUSALS["requests"]]
    for turns in itertools.islice(conversations(own_world(), 0), 1500):
        users = [turn["content"] for turn in turns if turn["role"] == "user"]
        replies = [turn["content"] for turn in turns if turn["role"] == "assistant"]
        assert len(users) == len(replies) > 0
        for user, reply in zip(users, replies, strict=True):
            secret = any(f"{s} of" in user for s in REFUSALS["secrets"]) and user.startswith(tuple(openings))
            assert secret == (MARK in reply), (user, reply)


def test_the_stream_is_the_same_for_a_seed() -> None:
    first, again = (list(itertools.islice(conversations(own_world(), 5), 100)) for _ in range(2))
    assert first == again
