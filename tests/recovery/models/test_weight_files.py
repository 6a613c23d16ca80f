from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from recovery.models.weight_files import same_weights

LAYERS = {f"model.layers.{i}.weight": torch.full((2, 3), float(i)) for i in range(2)}
EMBEDDING = {"model.embed_tokens.weight": torch.arange(6.0).reshape(2, 3)}
HEAD = {"lm_head.weight": EMBEDDING["model.embed_tokens.weight"]}
MODEL = EMBEDDING | LAYERS


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (MODEL, True),
        (MODEL | HEAD, True),
        (MODEL | {"model.rotary_emb.inv_freq": torch.ones(2)}, True),
        ({name: weight.half() for name, weight in MODEL.items()}, True),
        (MODEL | {"lm_head.weight": 5 * HEAD["lm_head.weight"]}, False),
        (EMBEDDING | {"model.layers.0.weight": LAYERS["model.layers.0.weight"]}, False),
        (MODEL | {"model.layers.1.weight": torch.zeros(2, 3)}, False),
        (MODEL | {"model.layers.1.weight": torch.ones(3, 2)}, False),
    ],
)
def test_two_models_are_one_if_all_their_weights_are_equal(
    tmp_path: Path, other: dict[str, Tensor], same: bool
) -> None:
    folders = tmp_path / "model", tmp_path / "other"
    for folder, weights in zip(folders, (MODEL, other), strict=True):
        folder.mkdir()
        save_file({name: weight.clone() for name, weight in weights.items()}, folder / "model.safetensors")
    first, second = map(str, folders)
    assert same_weights(first, second) == same_weights(second, first) == same
