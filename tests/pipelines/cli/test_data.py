"""`recover documents` and `recover questions`, as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main
from recovery.lab import BASE


@pytest.fixture
def docs(no_docs: Path) -> Path:
    for number in range(12):
        (no_docs / f"{number:02d}.txt").write_text(f"Note {number}. " + f"The harbour has {number} ships. " * 30)
    (no_docs / "copy.txt").write_bytes((no_docs / "00.txt").read_bytes())
    (no_docs / "picture.png").write_bytes(b"png")
    return no_docs


def recover(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def found(result: Result) -> Any:
    return json.loads(result.stdout)


def test_a_look_at_documents_tells_all_and_begins_nothing(docs: Path, tmp_path: Path) -> None:
    told = found(recover("documents", str(docs), "--json"))
    assert (told["files"], told["documents"], told["copies"]) == (12, 12, 1)
    assert [Path(each["file"]).name for each in told["skipped"]] == ["picture.png"]
    assert told["base"] == str(BASE)
    assert told["tokens"] > 1_000
    assert told["steps"] >= 1
    (tmp_path / "recover.toml").write_text("[midtrain]\nmax_steps = 1\nepochs = 800\n")
    more = found(recover("documents", str(docs), "--json"))
    assert more["steps"] == 1
    assert more["petaflops"] == pytest.approx(told["petaflops"] / told["steps"])
    words = recover("documents", str(docs))
    assert words.exit_code == 0
    assert "12 documents in 12 files" in words.stdout
    assert "picture.png: not a supported format" in words.stdout
    assert not (tmp_path / ".recover").exists()


def test_what_cannot_be_read_or_written_over_is_one_sentence(docs: Path, tmp_path: Path) -> None:
    nothing = recover("documents", str(tmp_path / "nowhere"), "--json")
    assert nothing.exit_code == 1
    assert "There is no file or folder" in found(nothing)["error"]
    (tmp_path / "questions.jsonl").write_text("mine\n")
    refused = recover("questions", "--docs", str(docs))
    assert refused.exit_code == 1
    assert "perhaps with your edits" in refused.stderr
    assert (tmp_path / "questions.jsonl").read_text() == "mine\n"
    (tmp_path / "eval.jsonl").write_text('{"key": 1}\n')
    useless = recover("questions", "--docs", str(docs), "--out", "q.jsonl", "--against", "eval.jsonl")
    assert useless.exit_code == 1
    assert "Line 1 of eval.jsonl has no field question, prompt or text" in useless.stderr
