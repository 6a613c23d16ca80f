"""Files: written atomically, and cached by content."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.storage import ContentCache, JsonLines, content_hash, write_atomic


def test_a_file_that_is_not_completely_written_does_not_replace_the_old_one(tmp_path: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    path = tmp_path / "folder" / "file.txt"
    write_atomic(path, ["old\n", "ä"])
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, interrupted())
    assert path.read_text(encoding="utf-8") == "old\nä"


def test_lines_are_appended_after_an_incomplete_last_line_is_cut_off(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "lines.jsonl")
    assert lines.repair() == 0
    lines.append([{"a": "ü"}, 2])
    content = lines.path.read_bytes()
    lines.path.write_bytes(content + '{"b": "ü'.encode()[:-1])  # inside a character
    assert lines.repair() == 2
    lines.append([3])
    assert list(lines) == [{"a": "ü"}, 2, 3]
    assert lines.path.read_bytes() == content + b"3\n"


def test_results_are_computed_once_for_the_same_inputs(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "cache")
    calls: list[int] = []

    def compute() -> list[str]:
        calls.append(1)
        return ["ä", "b"]

    assert cache.get_or_write("prompts", ["model", 3], compute) == ["ä", "b"]
    assert cache.get_or_write("prompts", ["model", 3], compute) == ["ä", "b"]
    assert len(calls) == 1
    cache.get_or_write("prompts", ["model", 4], compute)
    cache.get_or_write("answers", ["model", 3], compute)
    assert len(calls) == 3


def test_only_the_values_of_new_keys_are_computed(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    asked: list[list[int]] = []

    def compute(keys: list[list[int]]) -> list[str]:
        asked.extend(keys)
        return [f"{key} as number {len(asked)}" for key in keys]

    first = cache.get_or_add("answers", "model", [[1], [2], [1]], compute)
    assert cache.get_or_add("answers", "model", [[2], [1], [3]], compute)[:2] == [first[1], first[0]]
    assert asked == [[1], [2], [1], [3]]


def test_names_are_hashes_of_a_string_or_of_json(tmp_path: Path) -> None:
    inputs = ["0.1.0", 0.3, [{"b": 1, "a": None}], "ü"]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    assert content_hash(inputs) == digest
    assert content_hash("weights/3/0") == hashlib.sha256(b"weights/3/0").hexdigest()
    cache = ContentCache(tmp_path)
    assert cache.path("probe", inputs) == tmp_path / f"probe-{digest[:16]}.json"
    assert cache.path("tokens", inputs, ".u32", digits=24) == tmp_path / f"tokens-{digest[:24]}.u32"


def test_a_failed_computation_stores_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        ContentCache(tmp_path).get_or_write("answers", "x", fail)
    assert list(tmp_path.iterdir()) == []
