from pathlib import Path

import pytest

from pipelines.project.project import is_reference, model_path, weights_id
from recovery.errors import RecoverError


def test_anything_else_is_a_folder_or_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert not is_reference("model")
    assert model_path("model") == str(tmp_path / "model")
    for id in ("org/name", "org/name@main", "org/name@refs/pr/1"):
        assert model_path(id) == id
    with pytest.raises(RecoverError, match=r"There is no folder \./missing\. Name"):
        model_path("./missing")
    for missing in ("missing", "cycle:x", "run:99999999999999999999", "cycle:1/recoverd", "cycle:1/clean", "run:x/3"):
        with pytest.raises(RecoverError, match=f"There is no checkpoint '{missing}'"):
            model_path(missing)
    for step in (100, 50):
        (tmp_path / f"model/checkpoint-{step}").mkdir()
        (tmp_path / f"model/checkpoint-{step}/config.json").write_text("{}")
    with pytest.raises(RecoverError, match=r"There is no model in model, but .* Name .*model/checkpoint-50\."):
        model_path("model")
    (tmp_path / "model/config.json").write_text("{}")
    assert model_path("model") == str(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "content", "is_another"),
    [
        ("model.safetensors", "!", True),
        ("config.json", '{"rope_theta": 2.0}', True),
        ("generation_config.json", '{"eos_token_id": [1]}', True),
        ("tokenizer.json", "{}", True),
        ("chat_template.jinja", "{{ messages }}", True),
        ("adapter_config.json", '{"lora_alpha": 400}', True),
        ("adapter_config.json", '{"lora_alpha": 4, "base_model_name_or_path": "/after"}', False),
        ("README.md", "!", False),
    ],
)
def test_a_model_is_identified_by_all_that_decides_its_replies(
    tmp_path: Path, file: str, content: str, is_another: bool
) -> None:
    (tmp_path / "model.safetensors").write_text("weights")
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/before", "lora_alpha": 4}')
    before = weights_id(str(tmp_path))
    (tmp_path / file).write_text(content)
    assert (weights_id(str(tmp_path)) != before) == is_another


def test_a_model_on_the_hub_is_identified_by_the_commit_that_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    stored = tmp_path / "models--org--name"
    (stored / "refs").mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        (stored / "snapshots" / commit).mkdir(parents=True)
        (stored / "snapshots" / commit / "config.json").write_text("{}")
        (stored / "refs" / "main").write_text(commit)
        assert weights_id("org/name") == commit
    assert weights_id("org/name@" + "a" * 40) == "a" * 40
    assert weights_id("org/unknown") == "org/unknown", "nothing of it is here"
