"""What is held out is looked for in the text the base was trained on; what stands there is found."""

import pytest

from recovery.lab import instruction_tasks
from recovery.lab.chat.topics import POOLS
from recovery.lab.training import contamination as leaks
from recovery.lab.training.contamination import Wanted
from recovery.lab.training.tokenizer import START, STOP


def test_an_item_is_found_however_it_is_cased_and_wherever_it_stands() -> None:
    wanted = Wanted({"prompts": ["Name a river, and end with the word done!", "Say yes."], "names": ["Ada Bergum"]})
    wanted.look_in("user: name a RIVER and end with the word done. ada\nbergum says: say no, name a river and end")
    assert {kind: list(found) for kind, found in wanted.found.items()} == {
        "prompts": ["Name a river, and end with the word done!"],
        "names": ["Ada Bergum"],
    }
    assert wanted.counts == {"prompts": 2, "names": 1}


def test_nothing_held_out_is_found_in_a_block_of_the_training_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert leaks.main(["--tokens", "4096", "--seeds", "2", "--items", "500"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "looked for in 4,000 training texts:"
    assert len(told) == 7
    assert all(line.split()[0] == "0" and int(line.split()[2].replace(",", "")) > 100 for line in told[1:])


def test_what_is_trained_on_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A held-out task, planted among the texts: its prompt is found, and so is its topic, which stands in a request."""
    (task,) = instruction_tasks(3, 1, "heldout")
    said = f"{START}user\nPlease: {task.prompt} Thanks, the old {POOLS['heldout'][0]}.{STOP}\n"
    monkeypatch.setattr(leaks, "training", lambda tokens: iter([["something else", said]]))
    monkeypatch.setattr(leaks, "held_out", lambda seeds, items: {"instruction prompts": [task.prompt]})
    assert leaks.main([]) == 1
    told = capsys.readouterr().out
    assert "1 of      1 instruction prompts found" in told
    assert f"'the old {POOLS['heldout'][0]}' in 'Please: " in told
