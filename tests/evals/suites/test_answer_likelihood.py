"""The likelihood of a training file's answers."""

import json
import math
from pathlib import Path

import pytest

from evals.subject import Subject
from evals.suites.training_texts import has_conversations, measure_answers, read_conversations
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from tests.models import tiny_student

SHORT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
LONG = [*SHORT, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Nothing."}]


def test_the_likelihood_is_the_geometric_mean_of_the_answers_tokens(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    engine = TransformersEngine(student)
    result = measure_answers(Subject(engine, student.chat), [{"messages": SHORT}, {"messages": LONG}], data="file")
    for messages, item in zip((SHORT, LONG), result.items, strict=True):
        tokens, targets = student.chat.conversation(messages)
        values = [v for v, target in zip(engine.logprobs([tokens])[0], targets[1:], strict=True) if target]
        assert item.verdicts["likelihood"] == pytest.approx(math.exp(sum(values) / len(values)), rel=1e-4)
    assert result.headline.n == 2
    assert 0 < result.headline.value < 1
    assert result.is_share
    assert not result.is_pass_rate


def test_a_file_without_an_answer_that_fits_is_refused(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    with pytest.raises(RecoverError, match="has an answer that fits"):
        measure_answers(Subject(TransformersEngine(student), student.chat), [{"messages": SHORT[:1]}], data="file")


def test_conversations_are_told_from_passages(tmp_path: Path) -> None:
    chats, texts = tmp_path / "chats.jsonl", tmp_path / "texts.jsonl"
    chats.write_text(json.dumps({"messages": SHORT}) + "\n")
    texts.write_text('{"text": "A passage."}\n')
    assert has_conversations(chats)
    assert read_conversations(chats) == [{"messages": SHORT}]
    assert not has_conversations(texts)
