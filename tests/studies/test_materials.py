"""The files that arms are given."""

import json
from pathlib import Path

import pytest

from pipelines.synthetic.chat_prompts import parse_prompt
from recovery.errors import RecoverError
from studies.study_run import arm_file, documents
from tests.studies.declarations import study


def test_every_instruction_has_a_right_answer_that_passes_its_checks(tmp_path: Path) -> None:
    file = arm_file(study(), "instructions", 1, tmp_path)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({row["prompt"] for row in rows}) > 0.9 * len(rows)
    for row in rows[:200]:
        prompt = parse_prompt(("here", row))
        assert prompt.check(row["answer"])
    assert not all(parse_prompt(("here", row)).check("No.") for row in rows[:50])  # type: ignore[misc]


def test_each_seed_has_other_instructions(tmp_path: Path) -> None:
    one, other = (arm_file(study(), "instructions", seed, tmp_path / str(seed)) for seed in (1, 2))
    assert one.read_text() != other.read_text()


def test_the_questions_for_training_ask_for_the_same_facts_in_other_words(tmp_path: Path) -> None:
    file = arm_file(study(), "questions", 1, tmp_path)
    _, questions = documents(study(), 1, 0, tmp_path)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    suite_questions = [json.loads(line)["question"] for line in questions.read_text().splitlines()]
    assert len(rows) >= len(suite_questions)
    assert all(list(row) == ["prompt"] for row in rows)
    assert not {row["prompt"] for row in rows} & set(suite_questions)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert arm_file(study(), None, 1, tmp_path) is None
    with pytest.raises(RecoverError, match=r"There is no .*nowhere.jsonl, which the study"):
        arm_file(study(), "nowhere.jsonl", 1, tmp_path)
