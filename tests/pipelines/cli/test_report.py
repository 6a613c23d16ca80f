"""`recover report`: one file, whole in itself; what cannot be reported is said in a sentence."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.engine import open_database
from db.tracker import Tracker
from pipelines.cli import main
from tests.db.seeded import seed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    engine = open_database(tmp_path / ".recover" / "recover.db")
    with Tracker(engine) as tracker:
        seeded = seed(tracker, str(tmp_path.resolve()), steps=3)
        tracker.note(seeded.project, "Ship **this** one", "ada", cycle=seeded.cycles[1])
    engine.dispose()
    return tmp_path


def reported(folder: Path, *said: str) -> Result:
    return CliRunner().invoke(main, ["report", *said, "--project", str(folder), "--json"])


def test_a_report_holds_all_it_shows(folder: Path) -> None:
    to = folder / "two.html"
    answer = reported(folder, "2", "--to", str(to))
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == {"cycle": 2, "path": str(to), "bytes": to.stat().st_size}
    written = to.read_text(encoding="utf-8")
    assert "Cycle 2 promoted" in written
    assert "<strong>this</strong>" in written
    assert written.count('<div class="chart"') == 3
    own = written[written.index("<body>") :]
    assert ' src="' not in own
    assert 'href="' not in own, "a file in a mail has no pages to lead to"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (["7"], "There is no cycle 7 on record, which knows cycles 1 to 3."),
        (["2", "--to", "/nowhere/at/all.html"], "name another file with --to"),
    ],
)
def test_what_cannot_be_reported_is_said(folder: Path, said: list[str], sentence: str) -> None:
    answer = reported(folder, *said)
    assert answer.exit_code == 1
    assert sentence in json.loads(answer.stdout)["error"]


def test_without_a_project_it_says_what_to_run(tmp_path: Path) -> None:
    answer = reported(tmp_path, "1")
    assert answer.exit_code == 1
    assert "recover demo" in json.loads(answer.stdout)["error"]
