from pathlib import Path

import pytest

from evals.measurement_keys import data_hash, measurement_key
from recovery.errors import RecoverError


def key(**changed: object) -> str:
    inputs = {"checkpoint": "abc", "task": "ifeval", "data": "d1", "settings": {"limit": 5, "part": "all"}} | changed
    return measurement_key(**inputs)  # type: ignore[arg-type]


def test_equal_measurements_have_equal_keys() -> None:
    assert key() == key(settings={"part": "all", "limit": 5})


def test_every_input_changes_the_key() -> None:
    others = [
        key(checkpoint="abd"),
        key(task="gsm8k"),
        key(data="d2"),
        key(settings={"limit": 6, "part": "all"}),
        key(settings={"limit": "5", "part": "all"}),
        key(settings={"limit": 5, "part": "all", "thinking": None}),
        key(task="ifevald", data="1"),  # neighbouring fields are not concatenated
    ]
    assert len({key(), *others}) == len(others) + 1


def test_settings_must_be_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        key(settings={"limit": float("nan")})
    with pytest.raises(TypeError, match="JSON"):
        key(settings={"option": object()})


def test_data_is_identified_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.md").write_text("one")
    before, file = data_hash(tmp_path / "a"), data_hash(tmp_path / "a" / "x.md")
    assert data_hash(tmp_path / "a") == before != file
    (tmp_path / "a" / "y.md").write_text("two")
    assert data_hash(tmp_path / "a") != before
    (tmp_path / "a" / "y.md").unlink()
    assert data_hash(tmp_path / "a") == before
    (tmp_path / "a" / "x.md").rename(tmp_path / "a" / "z.md")
    assert data_hash(tmp_path / "a") != before
    assert data_hash(tmp_path / "a" / "z.md") == file  # a file's hash does not depend on its name
    assert data_hash(None) == ""
    with pytest.raises(RecoverError, match="Cannot read"):
        data_hash(tmp_path / "nowhere.jsonl")
