"""Conversations of a fine-tune's training file beside the rows of a distillation."""

import json
import logging
from pathlib import Path

import pytest

from pipelines.settings.schema import Distill
from pipelines.training.document_rows import training_file_rows
from recovery.models.students import load_chat
from tests.models import save_tiny


def save_conversations(file: Path, answer: str, count: int = 40, prompt: str = "Question?") -> Path:
    rows = [
        {"messages": [{"role": "user", "content": f"{i}. {prompt}"}, {"role": "assistant", "content": answer}]}
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_answers_are_about_the_share_of_the_target_tokens(tmp_path: Path, share: float) -> None:
    chat = load_chat(save_tiny(tmp_path / "base"))
    file = save_conversations(tmp_path / "chats.jsonl", "This is the answer to the question, in a whole sentence.")
    settings = Distill(documents=share, rows=8, max_new_tokens=64)
    (states,) = training_file_rows(file, chat, settings, seed=1)
    samples = states.draw(None, 0)  # type: ignore[arg-type]
    assert all(sample.use_labels for sample in samples)
    answers, others = sum(sample.target_count for sample in samples), settings.rows * settings.max_new_tokens / 2
    largest = max(sample.target_count for sample in samples)
    assert share * others / (1 - share) <= answers <= share * others / (1 - share) + largest


def test_no_more_is_read_than_a_step_may_write(tmp_path: Path) -> None:
    chat = load_chat(save_tiny(tmp_path / "base"))
    settings = Distill(documents=0.8, rows=2, max_new_tokens=512)
    most = settings.rows * settings.max_new_tokens
    for prompt in ("Q?", "A question of many words. " * 5):
        file = save_conversations(tmp_path / "chats.jsonl", "A", count=500, prompt=prompt)
        (states,) = training_file_rows(file, chat, settings, seed=1)
        samples = states.draw(None, 0)  # type: ignore[arg-type]
        tokens = sum(len(sample.tokens) for sample in samples)
        assert 0.8 * most < tokens <= 1.01 * most
        drawn = [sample.tokens for step in range(3) for sample in states.draw(None, step)]  # type: ignore[arg-type]
        assert len({tuple(tokens) for tokens in drawn}) == 3 * states.rows, "no row twice before all were read"


def test_conversations_that_cannot_be_learned_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="recover")
    chat = load_chat(save_tiny(tmp_path / "base"))
    file = save_conversations(tmp_path / "chats.jsonl", "An answer.", count=3)
    with file.open("a") as lines:
        lines.write(json.dumps({"messages": [{"role": "assistant", "content": "It begins with an answer."}]}) + "\n")
        lines.write(json.dumps({"messages": [{"role": "user", "content": "No answer?"}]}) + "\n")
    settings = Distill(documents=0.2, rows=2, max_new_tokens=64)
    (states,) = training_file_rows(file, chat, settings, seed=1)
    assert len(states.samples) in (3, 4)  # the template may render the fourth
    assert "of 5 conversations of the training file are not learned" in caplog.text
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "No answer?"}]}) + "\n")
    assert training_file_rows(file, chat, settings, seed=1) == []
