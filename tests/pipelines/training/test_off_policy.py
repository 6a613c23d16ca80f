"""Distilling on what the teacher wrote, by itself or among the student's own rollouts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli import main
from recovery.lab import BASE

BRIEF = ("rows=8", "max_new_tokens=32", "prompts=16", "probe_every=0", "max_steps=1", "warm_start=off")


@pytest.mark.parametrize("recipe", ["offpolicy", "gkd"])
def test_a_teachers_answers_are_written_once(recipe: str, tmp_path: Path) -> None:
    settings = [word for each in BRIEF for word in ("--set", f"distill.{each}")]
    asked = ["distill", "--student", str(BASE), "--recipe", recipe, "--limit", "2", "--json", *settings]
    written = []
    for _ in range(2):
        ran = CliRunner().invoke(main, [*asked, "--project", str(tmp_path)])
        assert ran.exit_code in (0, 3), ran.stderr
        assert json.loads(ran.stdout)["steps"] == 1
        (file,) = (tmp_path / ".recover" / "cache").glob("answers-*.json")
        written.append((file.stat().st_mtime_ns, len(json.loads(file.read_text()))))
    assert written[0] == written[1]
    assert written[0][1] == 8
