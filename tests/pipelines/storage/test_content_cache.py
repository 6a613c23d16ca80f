"""Results are computed once, and their files are named by what decides them."""

import hashlib
import json
from pathlib import Path

import pytest

from pipelines.storage.content_cache import ContentCache, content_hash


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
