from random import Random

import pytest

from recovery.lab.chat import instructions
from recovery.lab.chat.answer_drafts import Draft, OutOfSentencesError


def test_a_draft_that_runs_out_of_sentences_says_so() -> None:
    draft = Draft.new(Random(0), "train")
    draft.avoid.append(".")  # every sentence
    draft.count = 1
    with pytest.raises(OutOfSentencesError):
        draft.write()


def test_and_another_is_drawn_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    write, tried = Draft.write, list[Draft]()

    def fails_first(draft: Draft) -> str:
        tried.append(draft)
        if len(tried) == 1:
            raise OutOfSentencesError
        return write(draft)

    monkeypatch.setattr(Draft, "write", fails_first)
    task = instructions.instruction_task(Random(0), "train")
    assert len(tried) == 2
    assert tried[1].topic in task.prompt
