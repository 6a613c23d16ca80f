import json
from pathlib import Path

import pytest
from click.testing import Result

from recovery.lab import BASE
from tests.models import change_json
from tests.pipelines.options import data_of, error_of, recover, refusal
from tests.real_shapes import save_config


def plan(*arguments: str, base: str = "model") -> Result:
    return recover("plan", "--base", base, *arguments)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_config(tmp_path / "model", "8b")
    return tmp_path


def test_a_plan_needs_only_a_config_and_leaves_nothing_behind(folder: Path) -> None:
    shown = plan()
    assert shown.exit_code == 0, shown.output
    first, second, *lines = shown.stdout.splitlines()
    assert "8.19 billion parameters; trained: an adapter of rank 128, 0.35 billion" in first
    assert second == "GPUs: 1 of 80 GB; vllm generates text"
    assert any(line.split() == ["weights", "17.8", "17.8", "17.8"] for line in lines)
    assert max(map(len, lines)) <= 120
    assert [path.name for path in folder.iterdir()] == ["model"]
    assert recover("init").exit_code == 0
    assert plan(base=f"file://{BASE}").exit_code == 0
    assert not (folder / ".recover" / "bases").exists()


def test_a_project_of_another_base_does_not_matter(folder: Path) -> None:
    assert recover("init").exit_code == 0
    assert "8.19 billion" in plan().stdout
    assert "3.7 million" in recover("plan").stdout
    (folder / "recover.toml").write_text('base = "missing.gguf"')
    assert "8.19 billion" in plan().stdout


def test_the_json_has_bytes() -> None:
    planned = data_of(plan("--processes", "16", "--json"))
    assert planned["processes"] == 16
    assert planned["gpu_memory"] == 80_000_000_000
    assert planned["engine"] == "transformers"
    assert {"base", "parameters", "trained_parameters", "host_memory"} < set(planned)
    phases = {phase: sum(parts.values()) for phase, parts in planned["memory"].items()}
    assert list(phases) == ["while loading", "in a step", "between steps"]
    assert planned["peak"] == pytest.approx(max(phases.values()))


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    refused = plan("--set", "lora_rank=0", "--json")
    assert "of each GPU in a step, and 80 GB are there" in error_of(refused)
    assert "--set lora_rank=64" in refused.stderr
    assert plan("--set", "lora_rank=0", "--gpu-memory", "300").exit_code == 0


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--gpu-memory", "0"], 2, "--gpu-memory"),
        (["--gpu-memory", "inf"], 2, "is not in the range"),
        (["--gpu-memory", "nan"], 2, "--gpu-memory"),
        (["--processes", "100"], 1, "too few for 100 processes"),
        (["--set", "midtrain.window=50000"], 1, "midtrain.window must be from 2 to"),
        (["--set", "engine=vllm", "--processes", "2"], 1, "Leave out --processes"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags: list[str], code: int, message: str) -> None:
    refused = plan(*flags)
    assert refused.exit_code == code
    assert message in refused.stderr
    assert "Traceback" not in refused.output


def test_a_base_that_cannot_be_trained_is_refused(folder: Path) -> None:
    change_json(folder / "model/config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "are quantised (gptq)" in plan().stderr
    for name in ("empty", "translator"):
        (folder / name).mkdir()
    (folder / "translator/config.json").write_text(json.dumps({"model_type": "t5"}))
    messages = {
        "empty": "has no config.json. Name the folder that save_pretrained wrote.",
        "./nowhere": "There is no folder ./nowhere.",
        "translator": "is no language model that continues text (its type is t5)",
    }
    for base, message in messages.items():
        refused = refusal("plan", "--base", base)
        assert message in refused
        assert len(refused.splitlines()) == 1, refused


def test_precision_is_the_projects_and_not_this_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_bfloat16 = data_of(plan("--json"))["memory"]
    with monkeypatch.context() as patched:
        patched.setenv("RECOVER_BF16", "false")
        assert data_of(plan("--json"))["memory"] != in_bfloat16
    (folder / "recover.toml").write_text("bf16 = false\n")
    assert data_of(plan("--json"))["memory"] != in_bfloat16
