"""Files are written completely or not at all; JSON lines can be continued."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.storage.atomic_files import JsonLines, write_atomic


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
