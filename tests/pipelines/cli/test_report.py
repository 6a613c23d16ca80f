"""`recover report` writes one self-contained file, or an error message."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from db.engine import open_database
from db.tracker import Tracker
from tests.db.seeded import seed
from tests.pipelines.options import recover


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    engine = open_database(tmp_path / ".recover" / "recover.db")
    with Tracker(engine) as tracker:
        seeded = seed(tracker, str(tmp_path.resolve()), steps=3)
        tracker.note(seeded.project, "Ship **this** one", "ada", cycle=seeded.cycles[1])
    engine.dispose()
    (tmp_path / ".recover" / "name").write_text(str(tmp_path.resolve()), encoding="utf-8")
    return tmp_path


def run_report(folder: Path, *arguments: str) -> Result:
    return recover("report", *arguments, "--project", folder, "--json")


def test_a_report_is_one_self_contained_file(folder: Path) -> None:
    to = folder / "two.html"
    answer = run_report(folder, "2", "--to", str(to))
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout) == {"cycle": 2, "path": str(to), "bytes": to.stat().st_size}
    html = to.read_text(encoding="utf-8")
    assert "Cycle 2 promoted" in html
    assert "<strong>this</strong>" in html
    assert html.count('<div class="chart"') == 3
    body = html[html.index("<body>") :]
    assert ' src="' not in body
    assert 'href="' not in body, "a file in a mail has no pages to link to"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["7"], "There is no cycle 7. The record has cycles 1 to 3."),
        (["2", "--to", "/nowhere/at/all.html"], "Name another file with --to"),
    ],
)
def test_a_report_that_cannot_be_written_is_an_error(folder: Path, arguments: list[str], sentence: str) -> None:
    answer = run_report(folder, *arguments)
    assert answer.exit_code == 1
    assert sentence in json.loads(answer.stdout)["error"]
