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


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(building.SIZES, "tiny", building.Size(32, 1, 2, 1, 16, 64, 500, TOKENS))
    monkeypatch.setattr(curriculum, "BLOCK", 300)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_stopped_build_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    building.build(tmp_path / "once", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0, stop_after=2)
    assert not (tmp_path / "twice" / "model.safetensors").exists()
    building.build(tmp_path / "twice", "tiny", TOKENS, seed=0)
    building.build(tmp_path / "other", "tiny", TOKENS, seed=1)
    assert weights(tmp_path / "once") == weights(tmp_path / "twice") != weights(tmp_path / "other")


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
