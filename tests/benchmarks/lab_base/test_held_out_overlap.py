import pytest

from benchmarks.lab_base import held_out_overlap as leaks
from benchmarks.lab_base.curriculum import START, STOP
from recovery.lab import instruction_tasks
from recovery.lab.words import POOLS


def test_a_block_of_the_training_text_contains_no_held_out_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaks.main(["--tokens", "4096", "--seeds", "2", "--items", "500"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Searched 4,000 training texts:"
    assert len(lines) == 7
    assert all(line.split()[0] == "0" and int(line.split()[2].replace(",", "")) > 100 for line in lines[1:])


def test_a_planted_item_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A planted held-out task is reported by its prompt, and by its topic in the request."""
    (task,) = instruction_tasks(3, 1, "heldout")
    planted = f"{START}user\nPlease: {task.prompt.upper()} Thanks, the old {POOLS['heldout'][0]}.{STOP}\n"
    monkeypatch.setattr(leaks, "training", lambda tokens: iter([["something else", planted]]))
    monkeypatch.setattr(leaks, "held_out", lambda seeds, items: {"instruction prompts": [task.prompt]})
    assert leaks.main([]) == 1
    output = capsys.readouterr().out
    assert "1 of      1 instruction prompts found" in output
    assert f"'the old {POOLS['heldout'][0]}' in 'Please: " in output
