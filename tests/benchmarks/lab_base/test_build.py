import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.lab_base import build as building
from benchmarks.lab_base import curriculum
from recovery.errors import RecoverError
from recovery.lab import BASE

TOKENS = 4 * building.BATCH_TOKENS


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(building.SIZES, "tiny", building.Size(32, 1, 16, 64, TOKENS))
    monkeypatch.setattr(curriculum, "BLOCK", 300)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("tiny")
def test_a_resumed_build_gives_the_same_weights(tmp_path: Path) -> None:
    building.build(tmp_path / "once", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0, stop_after=2)
    assert not (tmp_path / "twice" / "model.safetensors").exists()
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "other", "tiny", TOKENS, seed=1)
    assert weights(tmp_path / "once") == weights(tmp_path / "twice") != weights(tmp_path / "other")


@pytest.mark.usefixtures("tiny")
def test_a_build_started_on_other_text_is_not_resumed(tmp_path: Path) -> None:
    building.build(tmp_path, "tiny", TOKENS, seed=0, stop_after=1)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save(state | {"tokens": "{}"}, tmp_path / "state.pt")
    with pytest.raises(RecoverError, match="Start again in another folder"):
        building.build(tmp_path, "tiny", TOKENS, seed=0)


def test_the_shipped_weights_match_the_card() -> None:
    card = (BASE / "README.md").read_text()
    (digest,) = re.findall(r"[0-9a-f]{64}", card)
    assert digest == hashlib.sha256((BASE / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.release
def test_the_first_steps_of_the_shipped_build_are_reproducible(tmp_path: Path) -> None:
    """Bit for bit, in separate processes, uninterrupted or resumed. The bits depend on the CPU: see docs/lab.md."""
    (tokens,) = re.findall(r"--tokens (\d+)", (BASE / "README.md").read_text())
    hundredth = int(tokens) // building.BATCH_TOKENS // 100
    for folder, stops in (("once", [hundredth]), ("twice", [hundredth // 2, hundredth])):
        for stop in stops:
            arguments = f"--size small --tokens {tokens} --seed 0 --out {tmp_path / folder} --stop-after {stop}"
            subprocess.run([sys.executable, "-m", "benchmarks.lab_base.build", *arguments.split()], check=True)
    once, twice = (torch.load(tmp_path / folder / "state.pt", weights_only=True) for folder in ("once", "twice"))
    assert once["step"] == twice["step"] == hundredth
    assert all(torch.equal(weights, twice["model"][name]) for name, weights in once["model"].items())
