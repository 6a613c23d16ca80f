from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig

from recovery.errors import RecoverError
from recovery.models.gguf_dequantisation import dequantise, names_gguf, tensor_types
from recovery.models.students import load_student
from tests.gguf_files import save_tiny_gguf, tiny_llama


def test_a_gguf_file_is_known_by_its_name(tmp_path: Path) -> None:
    assert names_gguf("model.gguf")
    assert names_gguf(str(tmp_path / "MODEL.GGUF"))
    assert not names_gguf("org/model-GGUF")
    (tmp_path / "folder.gguf").mkdir()
    assert not names_gguf(str(tmp_path / "folder.gguf"))


def test_the_parameters_of_each_type_are_counted(tmp_path: Path) -> None:
    counts = tensor_types(save_tiny_gguf(tmp_path / "tiny.gguf"))
    assert list(counts) == ["F32", "Q8_0"]
    assert counts["Q8_0"] == 2 * 16 * 32
    assert sum(counts.values()) == sum(p.numel() for p in tiny_llama().parameters())


def test_a_dequantised_folder_is_the_model_with_rounded_weights(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    dequantise(save_tiny_gguf(tmp_path / "tiny.gguf"), folder)
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.gguf", "model"}
    student, original = load_student(str(folder)), tiny_llama().state_dict()
    for name, weights in student.model.state_dict().items():
        if "v_proj" in name:
            assert not torch.equal(weights, original[name])
            assert torch.allclose(weights, original[name], atol=0.02)
        else:
            assert torch.equal(weights, original[name]), name
    assert student.causal.config.tie_word_embeddings
    assert "quantization_config" not in (folder / "config.json").read_text()
    config = GenerationConfig.from_pretrained(folder)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)


@pytest.mark.parametrize("length", [0, 3, 300, 60_000])
def test_a_damaged_file_is_refused_in_one_sentence(length: int, tmp_path: Path) -> None:
    whole = save_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "tiny.gguf").write_bytes(whole[:length])
    with pytest.raises(RecoverError, match=r"^The file .*tiny\.gguf is no complete GGUF file \(.+\)\. Download it"):
        tensor_types(tmp_path / "tiny.gguf")


def test_an_unknown_architecture_leaves_nothing_behind(tmp_path: Path) -> None:
    file = save_tiny_gguf(tmp_path / "tiny.gguf", architecture="abacus")
    with pytest.raises(RecoverError, match=r"No model could be loaded from .*tiny\.gguf .*name the original model"):
        dequantise(file, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]
