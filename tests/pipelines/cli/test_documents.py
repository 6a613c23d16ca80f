from pathlib import Path

import pytest

from recovery.lab import BASE
from tests.chat_families import FAMILIES, UNNAMED
from tests.pipelines.options import data_of, recover, refusal


@pytest.fixture
def docs(empty_docs: Path) -> Path:
    for number in range(12):
        (empty_docs / f"{number:02d}.txt").write_text(f"Note {number}. " + f"The harbour has {number} ships. " * 30)
    (empty_docs / "copy.txt").write_bytes((empty_docs / "00.txt").read_bytes())
    (empty_docs / "picture.png").write_bytes(b"png")
    return empty_docs


def test_documents_are_summarised_and_no_project_is_created(docs: Path, tmp_path: Path) -> None:
    summary = data_of(recover("documents", str(docs), "--json"))
    assert (summary["files"], summary["documents"], summary["copies"]) == (12, 12, 1)
    assert [Path(skipped["file"]).name for skipped in summary["skipped"]] == ["picture.png"]
    assert summary["base"] == str(BASE)
    assert summary["tokens"] > 1_000
    assert summary["steps"] >= 1
    (tmp_path / "recover.toml").write_text("[midtrain]\nmax_steps = 1\nepochs = 800\n")
    longer = data_of(recover("documents", str(docs), "--json"))
    assert longer["steps"] == 1
    text = recover("documents", str(docs))
    assert text.exit_code == 0
    assert "12 documents in 12 files" in text.stdout
    assert "Left out: 1 copy; 1 file not read\n  Skipped 1 file of other formats: .png 1\n" in text.stdout
    assert not (tmp_path / ".recover").exists()


def test_the_separator_and_the_stop_tokens_of_the_base_are_named(docs: Path, tmp_path: Path) -> None:
    base = str(FAMILIES["smollm2"].save(tmp_path / "base"))
    summary = data_of(recover("documents", str(docs), "--base", base, "--json"))
    end, stop = {"id": 0, "token": "<|endoftext|>"}, {"id": 2, "token": "<|im_end|>"}
    assert (summary["separator"], summary["separator_candidates"]) == (end, [end])
    assert summary["stop_tokens"] == [end, stop]
    line = "A document ends with <|endoftext|> (0); a reply with <|endoftext|> (0) or <|im_end|> (2)"
    assert line in recover("documents", str(docs), "--base", base).stdout
    several = recover("documents", str(docs), "--base", str(UNNAMED.save(tmp_path / "unnamed"))).stdout
    assert (
        "ends with <|im_end|> (2), unless mid-training finds the corpus likelier after <unk> (0) or <blank> (3)"
        in several
    )


def test_files_that_cannot_be_read_or_overwritten_are_reported(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text("mine\n")
    assert "perhaps with your edits" in refusal("questions", "--docs", docs / "not-read-yet")
    assert (tmp_path / "questions.jsonl").read_text() == "mine\n"
    (tmp_path / "eval.jsonl").write_text('{"key": 1}\n')
    useless = refusal("questions", "--docs", docs, "--out", "q.jsonl", "--decontaminate", "eval.jsonl")
    assert "eval.jsonl has no field question, prompt or text" in useless
