from random import Random

import pytest

from recovery.lab import instructions
from recovery.lab.answer_drafts import Draft, OutOfSentencesError


def test_a_failed_draft_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    write, attempts = Draft.write, list[Draft]()

    def fails_first(draft: Draft) -> str:
        attempts.append(draft)
        if len(attempts) == 1:
            raise OutOfSentencesError
        return write(draft)

    monkeypatch.setattr(Draft, "write", fails_first)
    task = instructions.instruction_task(Random(0), "train")
    assert len(attempts) == 2
    assert attempts[1].topic in task.prompt


def test_a_draft_of_more_sentences_than_there_are_fails() -> None:
    draft = Draft.new(Random(0), "train")
    draft.count = 10_000
    with pytest.raises(OutOfSentencesError):
        draft.write()
