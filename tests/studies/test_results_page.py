"""The results in docs/studies.md come from a record."""

from pathlib import Path

import pytest

from db.tracker import Tracker
from pipelines.project.project import Project
from studies import results_page
from tests.db.seeded_study import add_study


@pytest.fixture
def project(tmp_path: Path) -> Project:
    opened = Project.open(tmp_path)
    assert opened.id
    return opened


def write_page(project: Project) -> str:
    page = project.root / "page.md"
    page.write_text(f"# Studies\n\n{results_page.BEGIN}old\n{results_page.END}\nThe end\n")
    results_page.main(["--project", str(project.root), "--page", str(page)])
    return page.read_text()


def test_every_claim_stands_with_its_verdict_and_what_decided_it(project: Project) -> None:
    tracker: Tracker = project.tracker
    add_study(tracker, project.id)
    text = write_page(project)
    assert "### Personalisation, quick\n\n    recover study personalisation --size quick\n" in text
    supported, refuted, undecided = (line for line in text.splitlines() if line.startswith(("| s", "| r", "| c")))
    assert "+0.310 | +0.240 … +0.380 | +0.114 |" in supported
    assert "control: interpolation alone" in refuted
    assert "cannot tell (14 seeds)" in undecided
    assert "| opd | 0.870 | 0.940 |  | 0.900 | 8 | 0.002 | 41 |" in text
    assert "old" not in text
    assert text.endswith("The end\n")


def test_a_record_without_verdicts_says_so(project: Project) -> None:
    assert results_page.NONE in write_page(project)
