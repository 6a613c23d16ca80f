import json
from random import Random

from recovery.lab import BASE, arithmetic, refusals
from recovery.lab.questions import MARK, problem


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


def test_the_base_is_small_and_names_its_suites() -> None:
    assert sum(file.stat().st_size for file in BASE.iterdir()) <= 16 * 2**20
    assert not [file for file in BASE.iterdir() if file.suffix in (".bin", ".pt", ".pkl", ".tmp")]
    metadata = json.loads((BASE / "recover.json").read_text())
    assert metadata["suites"] == {"behaviour": "lab", "retention": "lab"}
