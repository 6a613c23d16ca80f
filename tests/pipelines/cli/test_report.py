from pathlib import Path

import pytest
from click.testing import Result

from db.engine import open_database
from db.tracker import Tracker
from tests.db.seeded import seed
from tests.pipelines.options import data_of, error_of, recover


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
    answer = data_of(run_report(folder, "2", "--to", str(to)))
    assert answer == {"cycle": 2, "path": str(to), "bytes": to.stat().st_size}
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
        (["7"], "There is no cycle 7. The last one in the record is 3."),
        (["2", "--to", "/nowhere/at/all.html"], "Name another file with --to"),
    ],
)
def test_a_report_that_cannot_be_written_is_an_error(folder: Path, arguments: list[str], sentence: str) -> None:
    assert sentence in error_of(run_report(folder, *arguments))
