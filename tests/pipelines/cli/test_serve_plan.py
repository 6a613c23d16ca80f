"""`recover serve-plan`, as a user calls it."""

import json
import secrets
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main
from recovery.engines.servers import KEY
from recovery.lab import BASE
from recovery.models.students import load_student
from tests.gguf_files import save_tiny_gguf
from tests.pipelines.options import set_options
from tests.recovery.engines.small_server import SmallServer, serving


def serve_plan(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve-plan", *arguments])


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (KEY, "RECOVER_BASE"):
        monkeypatch.delenv(name, raising=False)


def test_without_an_address_it_is_one_engine_on_this_machine_and_nothing_is_created(tmp_path: Path) -> None:
    comment, command = serve_plan().stdout.splitlines()
    assert comment == "# http://127.0.0.1:8000: engine"
    assert command == f"VLLM_SERVER_DEV_MODE=1 vllm serve {BASE} --host 127.0.0.1 --port 8000 --generation-config vllm"
    assert list(tmp_path.iterdir()) == []


def test_every_server_is_planned_once_with_its_roles_and_its_own_variables(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text('engine = "https://gpu1:8000,http://gpu2:8000"\nlora_rank = 12\n')
    printed = serve_plan("--teacher", "http://gpu2:8000,http://gpu3:8000", "--json").stdout
    first, second, third = json.loads(printed)["servers"]
    assert [server["roles"] for server in (first, second, third)] == [["engine"], ["engine", "teacher"], ["teacher"]]
    assert first["environment"] == {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    assert first["command"][:3] == ["vllm", "serve", str(BASE)]
    assert shlex.join(second["command"][7:]).startswith(
        "--generation-config vllm --enable-lora --max-lora-rank 16 --lora-target-modules down_proj"
    )
    assert "--ssl-keyfile" in first["command"]
    assert "--ssl-keyfile" not in second["command"]
    assert third["environment"] == {}
    assert third["command"][-2:] == ["--generation-config", "vllm"]


def test_the_key_is_named_and_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret-key")
    shown = serve_plan()
    assert f'VLLM_API_KEY="${KEY}" vllm serve' in shown.stdout
    assert "secret" not in shown.output


def test_servers_that_cannot_do_both_are_refused() -> None:
    refused = serve_plan("--engine", "http://one:1", "--teacher", "http://one:1")
    assert refused.exit_code == 1
    assert "cannot serve both" in refused.stderr


def test_a_model_that_is_deleted_again_is_not_served(tmp_path: Path) -> None:
    save_tiny_gguf(tmp_path / "tiny.gguf")
    refused = serve_plan("--base", "tiny.gguf")
    assert refused.exit_code == 1
    assert "Run `recover init --base` with it first" in refused.stderr
    CliRunner().invoke(main, ["init", "--base", "tiny.gguf"])
    (folder,) = (tmp_path / ".recover/gguf").iterdir()
    assert f"vllm serve {folder} " in serve_plan().stdout


@pytest.mark.slow
def test_the_key_is_in_no_line_and_in_no_file_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = secrets.token_hex()
    monkeypatch.setenv(KEY, key)
    (tmp_path / "prompts.txt").write_text("Name a colour.\nCount to five.\n")
    with serving(SmallServer(load_student(str(BASE), frozen=True), key=key)) as named:
        small = set_options("lora_rank=2", "distill.rows=2", "distill.max_new_tokens=8", "distill.probe_every=0")
        command = ["distill", "--student", "base", "--teacher", named, "--prompts", "prompts.txt"]
        trained = CliRunner().invoke(main, [*command, *small, "--max-steps", "1", "--limit", "4"])
        monkeypatch.setenv(KEY, f"wrong-{key}")
        refused = CliRunner().invoke(main, [*command, *small, "--max-steps", "1"])
    assert trained.exit_code in (0, 3), trained.output
    assert "refuses the key" in refused.stderr
    assert "step 1/1" in caplog.text
    assert key not in trained.output + refused.output + caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "recover.db" for file in files)
    assert not [file for file in files if key.encode() in file.read_bytes()]
