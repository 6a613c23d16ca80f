"""The build is reproducible: in one go or in two, the same weights to the bit."""

import hashlib
import re
from pathlib import Path

import pytest
import torch

from recovery.errors import RecoverError
from recovery.lab import BASE, curriculum
from recovery.lab import build as building

TOKENS = 4 * building.BATCH_TOKENS


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(building.SIZES, "tiny", building.Size(32, 1, 2, 1, 16, 64, 500, TOKENS))
    monkeypatch.setattr(curriculum, "BLOCK", 300)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("tiny")
def test_a_stopped_build_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    building.build(tmp_path / "once", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0, stop_after=2)
    assert not (tmp_path / "twice" / "model.safetensors").exists()
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "other", "tiny", TOKENS, seed=1)
    assert weights(tmp_path / "once") == weights(tmp_path / "twice") != weights(tmp_path / "other")


@pytest.mark.usefixtures("tiny")
def test_a_build_begun_on_other_text_is_not_gone_on_with(tmp_path: Path) -> None:
    building.build(tmp_path, "tiny", TOKENS, seed=0, stop_after=1)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save(state | {"tokens": "{}"}, tmp_path / "state.pt")
    with pytest.raises(RecoverError, match="start again in another folder"):
        building.build(tmp_path, "tiny", TOKENS, seed=0)


@pytest.mark.skipif(not (BASE / "config.json").exists(), reason="no base has been built here")
def test_the_shipped_weights_match_the_card() -> None:
    card = (BASE / "README.md").read_text()
    (digest,) = re.findall(r"[0-9a-f]{64}", card)
    assert digest == hashlib.sha256((BASE / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_first_twentieth_of_the_shipped_build_repeats_to_the_bit(tmp_path: Path) -> None:
    """On the kind of machine it was made on; elsewhere other vector units add up in another order."""
    card = (BASE / "README.md").read_text()
    (tokens,) = re.findall(r"--tokens (\d+)", card)
    ((beginning, machine),) = re.findall(r"twentieth of the steps \| `(\w+)` \((.*)\)", card)
    threads = torch.get_num_threads()
    torch.set_num_threads(int(machine.split()[-2]))
    try:
        if building.machine() != machine:
            pytest.skip(f"the weights were made on {machine}, and this is {building.machine()}")
        twentieth = int(tokens) // building.BATCH_TOKENS // building.TWENTIETH
        building.build(tmp_path, "small", int(tokens), seed=0, stop_after=twentieth)
    finally:
        torch.set_num_threads(threads)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["beginning"] == beginning
