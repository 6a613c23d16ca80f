import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from pipelines import doctor
from pipelines.turn_ends import TurnEnds
from recovery.lab import BASE
from recovery.stop_contract import Fault, ReplyEnds, StopFiles
from tests.pipelines.options import recover


@pytest.fixture(autouse=True)
def the_usual_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOVER_DB", raising=False)


def doctor_command(folder: Path, *flags: str) -> Result:
    return recover("doctor", "--project", folder, *flags)


def check(result: Result, name: str) -> dict[str, Any]:
    return next(check for check in json.loads(result.output)["checks"] if check["name"] == name)


def test_training_can_run_here_and_the_check_creates_no_file(tmp_path: Path) -> None:
    result = doctor_command(tmp_path / "new", "--json")
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["can_run"]
    for finding in report["checks"]:
        assert finding["detail"]
        assert bool(finding["impact"]) == bool(finding["fix"]) == (not finding["ok"])
    assert check(result, "hub")["detail"] == "disabled by HF_HUB_OFFLINE"
    assert not list(tmp_path.iterdir())


def test_training_can_run_unless_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, code in ((5e9, 0), (1e6, 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        result = doctor_command(tmp_path)
        assert result.exit_code == code
        assert "missing  disk" in result.output
    assert "Training cannot run here: disk" in result.output
    assert "impact: checkpoints cannot be written" in result.output


def test_training_cannot_run_without_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_DB", "postgresql://ada:secret@127.0.0.1:1/record")
    result = doctor_command(tmp_path, "--json")
    assert result.exit_code == 1
    assert "127.0.0.1" in check(result, "record")["detail"]
    assert "secret" not in result.output


def test_the_record_that_the_settings_name_is_checked(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text(f'db = "sqlite:///{tmp_path}/elsewhere.db"')
    assert f"{tmp_path}/elsewhere.db" in check(doctor_command(tmp_path, "--json"), "record")["detail"]
    (tmp_path / "recover.toml").write_text("db = 7")
    result = doctor_command(tmp_path, "--json")
    assert "must be a database URL" in check(result, "record")["detail"]
    assert result.exit_code == 1


def test_settings_that_every_command_refuses_are_a_fault(tmp_path: Path) -> None:
    assert check(doctor_command(tmp_path, "--json"), "settings")["detail"] == "the defaults"
    (tmp_path / "recover.toml").write_text("[distill]\nstep = 4\n")
    result = doctor_command(tmp_path, "--json")
    assert result.exit_code == 1
    finding = check(result, "settings")
    assert (finding["ok"], "distill.step" in finding["detail"]) == (False, True), finding


def test_a_vllm_that_cannot_be_imported_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    (tmp_path / "vllm-9.9.dist-info").mkdir()
    (tmp_path / "vllm-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = doctor._vllm()
    assert not finding.ok
    assert finding.detail == "vllm 9.9 cannot be imported: ImportError: libcudart.so.13: cannot open"


def test_a_check_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> doctor.Finding:
        raise OSError("libtorch.so: wrong ELF class")

    monkeypatch.setattr(doctor, "_gpu", broken)
    gpu = next(finding for finding in doctor.examine(tmp_path) if finding.name == "gpu")
    assert (gpu.ok, gpu.detail) == (False, "OSError: libtorch.so: wrong ELF class")


@pytest.mark.parametrize(("is_repairable", "command"), [(True, "repair"), (False, "check")])
def test_a_repair_is_the_next_command_where_it_mends_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_repairable: bool, command: str
) -> None:
    files, ends = StopFiles.of(str(BASE)), ReplyEnds(24, 256, finished=0.3, repetition=0.1)
    fault = Fault("They are long", "See `recover check`", is_repairable)
    found = TurnEnds(files, ends, files, ends, [fault])
    monkeypatch.setattr("pipelines.turn_ends.examine_turn_ends", lambda model, base: found)
    result = doctor_command(tmp_path, "--model", str(BASE), "--base", str(BASE))
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1].startswith(f"next: recover {command} {BASE}")
