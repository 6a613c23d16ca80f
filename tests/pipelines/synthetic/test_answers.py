from pathlib import Path
from typing import Any

import pytest

from evals.subject import Subject
from pipelines.synthetic.base_outputs import answer_rows, sample_answers
from recovery.errors import RecoverError
from recovery.objectives import CrossEntropy
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import Documents, Mixture
from recovery.train import Plan, train
from tests.evals.fakes import ScriptedEngine, fake_subject
from tests.models import tiny_student

PROMPTS = [f"Say {number}." for number in range(10)]


def answers_of(subject: Subject, folder: Path, weights: str = "m", max_new_tokens: int = 40) -> list[Sample]:
    return sample_answers(subject.engine, subject.chat, PROMPTS, folder, weights, max_new_tokens=max_new_tokens)


def test_only_the_answer_is_a_target_and_it_is_sampled_once(tmp_path: Path) -> None:
    subject = fake_subject(lambda message: f"Well, {message}")
    engine: Any = subject.engine
    assert isinstance(engine, ScriptedEngine)
    rows = answers_of(subject, tmp_path)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        targets = [token for token, target in zip(row.tokens, row.targets, strict=True) if target]
        assert subject.chat.text(targets) == f"Well, {prompt}"
    assert len(engine.prompts) == 10
    assert answers_of(subject, tmp_path) == rows
    assert len(engine.prompts) == 10
    answers_of(subject, tmp_path, weights="another")
    assert len(engine.prompts) == 20


def test_answers_that_do_not_end_are_dropped(tmp_path: Path) -> None:
    subject = fake_subject(lambda message: "short" if "3" in message else "long " * 50)
    assert [row.prompt for row in answers_of(subject, tmp_path)] == ["Say 3."]
    with pytest.raises(RecoverError, match="None of the base's answers ended within 4 tokens"):
        answers_of(subject, tmp_path, max_new_tokens=4)


def test_cut_answers_can_be_kept(tmp_path: Path) -> None:
    subject = fake_subject(lambda message: "short" if "3" in message else "long " * 50)
    rows = sample_answers(subject.engine, subject.chat, PROMPTS, tmp_path, "m", max_new_tokens=40, keep_cut=True)
    assert [row.prompt for row in rows] == PROMPTS
    assert len(answers_of(subject, tmp_path)) == 1  # another file of the cache


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_is_of_target_tokens(share: float) -> None:
    answers = [Sample([1] * 12, [False] * 2 + [True] * 10) for _ in range(50)]
    documents = Documents([[1] * 999] * 40, 0, window=100, rows=8)
    mixture = Mixture(documents, answer_rows(answers, share, documents.rows * documents.window))
    no_student: Any = None
    for step in range(4):
        drawn = mixture.draw(no_student, step)
        replay = sum(row.target_count for row in drawn if len(row.tokens) == 12)
        assert replay / sum(row.target_count for row in drawn) == pytest.approx(share, abs=0.01)
    with pytest.raises(RecoverError, match="more than 0 and less than 1"):
        answer_rows(answers, 1.0, 100)


def test_mid_training_with_replay_learns_both(tmp_path: Path) -> None:
    student = tiny_student(tmp_path / "model")
    prompt = student.chat.prompt("Go.")
    reply = [student.chat.tokenizer.convert_tokens_to_ids(letter) for letter in "yesyes"] + [2]
    answers = [Sample(prompt + reply, [False] * len(prompt) + [True] * len(reply))] * 4
    documents = Documents([[5, 6, 7] * 30] * 6, end_id=0, window=16, rows=4)
    states = Mixture(documents, answer_rows(answers, 0.3, 64))
    losses = [r.loss for r in train(student, states, Labels(), CrossEntropy(), Plan(25, 1e-2))]
    assert losses[-1] < losses[0] / 3
