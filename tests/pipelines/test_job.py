from pathlib import Path

import pytest

from pipelines.job import Job, unfinished
from recovery.errors import RecoverError


def test_an_errand_comes_back_as_it_was_written_until_it_is_done(tmp_path: Path) -> None:
    first = Job("midtrain", {"lora_rank": 0}, 3, start=1, corpus="abc", documents="/d", files=2).write(tmp_path)
    second = Job("distill", {}, 0, measures={"suite": "all"}).write(tmp_path)
    assert unfinished(tmp_path) == [first, second]
    first.done(tmp_path)
    assert unfinished(tmp_path) == [second]
    second.done(tmp_path)
    second.done(tmp_path)  # told twice, as after a kill between the two
    assert unfinished(tmp_path) == []


def test_one_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    Job("midtrain", {}, 0, id="bad").write(tmp_path)
    (tmp_path / "jobs" / "bad.json").write_text("{")
    with pytest.raises(RecoverError, match="delete it and run the command again"):
        unfinished(tmp_path)
