import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import errors as hub
from transformers import GenerationConfig

from recovery.errors import RecoverError, hub_problem
from recovery.models.students import (
    checkpoint_metadata,
    generation_ends,
    load_chat,
    load_student,
    parameters_of,
    save_student,
)
from tests.full_disk import full_disk
from tests.models import change_json, save_tiny, tiny_student, tiny_tokenizer


def test_a_saved_checkpoint_loads_unchanged_also_in_transformers_4(tmp_path: Path) -> None:
    student = tiny_student(tmp_path / "model")
    save_student(student, tmp_path / "saved", {"run": 3})
    assert not list(tmp_path.glob("*.partial"))
    assert checkpoint_metadata(tmp_path / "saved")["run"] == 3
    assert checkpoint_metadata(tmp_path / "saved")["kind"] == "full"
    assert len({file.stat().st_mode for file in (tmp_path / "saved").iterdir()}) == 1, "whoever reads one reads all"
    again = load_student(str(tmp_path / "saved"))
    ours, theirs = student.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.chat.eos_ids == student.chat.eos_ids
    assert again.chat.prompt("hi") == student.chat.prompt("hi")
    assert again.causal.config.rope_parameters == student.causal.config.rope_parameters
    config, tokenizer = (
        json.loads((tmp_path / "saved" / f"{n}.json").read_text()) for n in ("config", "tokenizer_config")
    )
    assert config["rope_theta"] == student.causal.config.rope_parameters["rope_theta"]
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not {"is_local", "local_files_only"} & tokenizer.keys()


def test_a_checkpoint_is_moved_into_an_empty_folder_which_may_be_mounted(tmp_path: Path) -> None:
    (folder := tmp_path / "mounted").mkdir()
    before = folder.stat().st_ino
    save_student(tiny_student(tmp_path / "tiny"), folder, {})
    assert folder.stat().st_ino == before
    assert not list(folder.glob(".*"))
    assert load_student(str(folder)).chat.tokenizer


@pytest.mark.parametrize("largest", [2000, 0])  # bytes: less than the weights, and than a config
def test_a_checkpoint_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path, largest: int) -> None:
    student, folder = tiny_student(tmp_path / "tiny"), tmp_path / "saved"
    with (
        full_disk(largest),
        pytest.raises(RecoverError, match=rf"Cannot write to {folder} \(File too large\)\. Wait\."),
    ):
        save_student(student, folder, {}, advice="Wait.")
    assert [file.name for file in tmp_path.iterdir()] == ["tiny"]


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RecoverError, match="run code"):
        load_student(str(tmp_path))


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    for load in (load_student, parameters_of):
        with pytest.raises(RecoverError, match=r"has no config\.json\. Name the folder that save_pretrained wrote"):
            load(str(tmp_path))


@pytest.mark.parametrize("load", [load_chat, parameters_of, load_student])
@pytest.mark.parametrize(
    ("error", "sentences"),
    [
        (hub.GatedRepoError, "(its terms of use have not been accepted). Accept them on its page of the hub, and log"),
        (hub.RepositoryNotFoundError, "(the hub has nothing of this name, or it is private). Check the name, or"),
        (hub.RevisionNotFoundError, "(the hub has no such revision of it). Check the part after the @."),
        (hub.LocalEntryNotFoundError, "(it is not in the cache, and the hub cannot be reached). Connect to the"),
        (hub.OfflineModeIsEnabled, "(it is not in the cache, and the hub cannot be reached). Connect to the network"),
        (hub.HfHubHTTPError, "(the hub answered with an error). Try again later."),
    ],
)
def test_what_the_hub_refuses_is_one_line_that_says_what_to_do(
    load: Callable[[str], Any], error: type[Exception], sentences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        of_http = {"response": SimpleNamespace(headers={}, request=None)} if "HTTP" in str(error.__mro__) else {}
        raise error("401 Client Error.\nRequest ID: 7", **of_http)

    for name in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(f"transformers.utils.hub.{name}", refuse)
    with pytest.raises(RecoverError) as refused:
        load("org/name@abc")
    assert sentences in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "Client error '401 Unauthorized' for url 'x'\n\nInvalid credentials in Authorization header",
        "\n\n403 Forbidden: None.\nCannot access content at: x.\nMake sure your token has the correct permissions.",
    ],
)
@pytest.mark.parametrize("searches_cache", [False, True])  # as the hub's client does after most refusals
def test_a_token_that_the_hub_refuses_has_to_be_replaced(text: str, searches_cache: bool) -> None:
    error: Exception = hub.HfHubHTTPError(text, response=SimpleNamespace(headers={}, request=None))  # type: ignore[arg-type]
    if searches_cache:
        refused, error = error, hub.LocalEntryNotFoundError("It is not in the cache.")
        error.__cause__ = refused
    assert hub_problem(error, "").startswith("(the hub refused your token). Log in again with `hf auth login`")


def test_parameters_are_counted_without_reading_weights(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert parameters_of(str(tmp_path)) == student.parameters


@pytest.mark.parametrize(
    ("flags", "saved"),
    [
        ({"temperature": 0.9, "top_p": 0.6}, {"temperature": 0.9, "top_p": 0.6, "do_sample": True}),
        ({"num_beams": 1, "early_stopping": True, "top_p": 0.6}, {"early_stopping": None, "top_p": None}),
    ],
)
def test_a_model_with_an_invalid_generation_config_can_be_saved(
    tmp_path: Path, flags: dict[str, object], saved: dict[str, object]
) -> None:
    base = save_tiny(tmp_path / "base")
    ends = {"eos_token_id": [2, 60], "pad_token_id": 0}
    (base / "generation_config.json").write_text(json.dumps(ends | flags))
    save_student(load_student(str(base)), tmp_path / "saved", {})
    again = load_student(str(tmp_path / "saved"))
    assert again.chat.eos_ids == {0, 2, 60}
    config = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert {name: config.get(name) for name in [*ends, *saved]} == ends | saved


@pytest.mark.parametrize(
    "flags",
    [
        {"do_sample": False, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1, "typical_p": 0.9},
        {"do_sample": False, "temperature": 0.0},
        {"do_sample": True, "temperature": 0.0},
        {"temperature": 0.0, "repetition_penalty": 1.1},
    ],
)
def test_a_model_that_does_not_sample_is_saved_as_one(tmp_path: Path, flags: dict[str, object]) -> None:
    base = save_tiny(tmp_path / "base")
    change_json(base / "generation_config.json", **flags)
    save_student(load_student(str(base)), tmp_path / "saved", {})
    config = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert config["do_sample"] is False
    assert config.get("repetition_penalty") == flags.get("repetition_penalty")
    tokens = torch.tensor([[3, 40, 50]])
    replies = [load_student(str(tmp_path / "saved")).model.generate(tokens, max_new_tokens=8) for _ in range(2)]
    assert torch.equal(*replies)


@pytest.mark.parametrize("text", ["[]", "{", '{"eos_token_id": "<|im_end|>"}', '{"eos_token_id": [2, "3"]}'])
def test_a_broken_generation_config_is_named(tmp_path: Path, text: str) -> None:
    file = save_tiny(tmp_path) / "generation_config.json"
    file.write_text(text)
    for load in (load_chat, load_student, generation_ends):
        with pytest.raises(RecoverError, match=rf"^The file {file} is not valid: .* Fix or delete it\.$"):
            load(str(tmp_path))


@pytest.mark.parametrize(("ends", "turn_ends"), [([2, 60], {2, 60}), (60, {2, 60}), (None, {2}), (-1, {2})])
def test_without_a_generation_config_the_config_names_the_ends(
    tmp_path: Path, ends: list[int] | int | None, turn_ends: set[int]
) -> None:
    base = save_tiny(tmp_path)
    (base / "generation_config.json").unlink()
    change_json(base / "config.json", eos_token_id=ends)
    assert load_chat(str(base)).turn_ends == turn_ends
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "eos_token_id"}))
    assert load_chat(str(base)).turn_ends == {2}, "the default of Llama, 2, is not asked"
    (base / "config.json").unlink()
    assert load_chat(str(base)).turn_ends == {2}, "a folder with a tokenizer alone"


def test_an_adapter_uses_the_eos_of_its_base_at_that_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str | None]] = []

    def from_the_hub(name: str, revision: str | None = None) -> GenerationConfig:
        requests.append((name, revision))
        return GenerationConfig(eos_token_id=[2, 60])

    monkeypatch.setattr(GenerationConfig, "from_pretrained", from_the_hub)
    tiny_tokenizer().save_pretrained(tmp_path)
    config = {"base_model_name_or_path": "org/name", "revision": "abc"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert load_chat(str(tmp_path)).eos_ids == {0, 2, 60}
    assert requests == [("org/name", "abc")]


def test_weights_of_another_shape_and_a_broken_tokenizer_are_one_sentence(tmp_path: Path) -> None:
    shutil.copytree(folder := save_tiny(tmp_path / "tiny"), tmp_path / "other")
    change_json(folder / "config.json", vocab_size=300)
    (tmp_path / "other" / "tokenizer.json").write_text('{"version": "9"}')
    with pytest.raises(RecoverError, match="No model could be loaded from"):
        load_student(str(folder))
    with pytest.raises(RecoverError, match="No tokenizer could be loaded from"):
        load_student(str(tmp_path / "other"))
