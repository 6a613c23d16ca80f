import secrets
from pathlib import Path

import pytest

from recovery.engines.servers import KEY
from recovery.lab import BASE
from recovery.models.students import load_student
from tests.pipelines.options import recover, set_options
from tests.recovery.engines.small_server import SmallServer, serving


@pytest.mark.slow
def test_the_key_is_in_no_line_and_in_no_file_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    key = secrets.token_hex()
    monkeypatch.setenv(KEY, key)
    (tmp_path / "prompts.txt").write_text("Name a colour.\nCount to five.\n")
    with serving(SmallServer(load_student(str(BASE), frozen=True), key=key)) as named:
        small = set_options("lora_rank=2", "distill.rows=2", "distill.max_new_tokens=8", "distill.probe_every=0")
        command = ["distill", "--student", "base", "--teacher", named, "--prompts", "prompts.txt"]
        trained = recover(*command, *small, "--max-steps", "1", "--limit", "4")
        monkeypatch.setenv(KEY, f"wrong-{key}")
        refused = recover(*command, *small, "--max-steps", "1")
    assert trained.exit_code in (0, 3), trained.output
    assert "refuses the key" in refused.stderr
    assert "step 1/1" in caplog.text
    assert key not in trained.output + refused.output + caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "recover.db" for file in files)
    assert not [file for file in files if key.encode() in file.read_bytes()]
