"""What doctor finds, and when it says that the main job cannot run."""

import json
import shutil
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main
from pipelines.machine import doctor

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RECOVER_DB", raising=False)


def asked(folder: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--project", str(folder), *flags])


def check(result: Result, name: str) -> dict[str, Any]:
    return next(each for each in json.loads(result.output)["checks"] if each["name"] == name)


def test_it_finds_that_the_main_job_runs_here_and_leaves_no_trace(tmp_path: Path) -> None:
    result = asked(tmp_path / "new", "--json")
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert found["can_run"]
    for each in found["checks"]:
        assert each["found"]
        assert bool(each["costs"]) == bool(each["mend"]) == (not each["ok"])
    assert check(result, "hub")["found"] == "switched off by HF_HUB_OFFLINE"
    assert not list(tmp_path.iterdir())


def test_a_full_disk_stops_the_main_job_and_a_fairly_full_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, code in ((5e9, 0), (1e6, 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        result = asked(tmp_path)
        assert result.exit_code == code
        assert "lacks  disk" in result.output
    assert "the main job cannot run here: disk" in result.output
    assert "costs: checkpoints cannot be written" in result.output


def test_a_record_that_cannot_be_opened_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_DB", "postgresql://ada:secret@127.0.0.1:1/record")
    result = asked(tmp_path, "--json")
    assert result.exit_code == 1
    assert "127.0.0.1" in check(result, "record")["found"]
    assert "secret" not in result.output


def test_the_record_that_the_settings_name_is_the_one_that_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text(f'db = "sqlite:///{tmp_path}/elsewhere.db"')
    assert f"{tmp_path}/elsewhere.db" in check(asked(tmp_path, "--json"), "record")["found"]
    (tmp_path / "recover.toml").write_text("db = 7")
    assert "must be a database URL" in check(asked(tmp_path, "--json"), "record")["found"]


def test_requirements_are_read_from_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["click>=1", "click>=99", "no-such-thing>=1", 'alembic>=99; extra == "postgres"']
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    click_is = metadata.version("click")
    assert doctor.unmet_requirements() == [f"click is {click_is}, not >=99", "no-such-thing is missing"]
    assert doctor.unmet_requirements("postgres") == [f"alembic is {metadata.version('alembic')}, not >=99"]


def test_a_vllm_that_does_not_import_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    (tmp_path / "vllm-9.9.dist-info").mkdir()
    (tmp_path / "vllm-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor._vllm()
    assert not found.ok
    assert found.found == "vllm 9.9 cannot be imported: ImportError: libcudart.so.13: cannot open"


def test_a_check_that_breaks_is_a_finding_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> doctor.Finding:
        raise OSError("libtorch.so: wrong ELF class")

    monkeypatch.setattr(doctor, "_gpu", broken)
    gpu = next(each for each in doctor.examine(tmp_path) if each.name == "gpu")
    assert (gpu.ok, gpu.found) == (False, "OSError: libtorch.so: wrong ELF class")


def test_every_extra_a_user_can_choose_is_explained() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(declared) - {"dev", "vllm"} <= set(doctor.EXTRAS)
