from pathlib import Path

import pytest

from dashboard.pages.studies import arm_pictures
from pipelines.cli.dashboard_actions import shipped_studies
from recovery.errors import RecoverError
from studies import results_page
from studies.declaration import load_study, shipped
from studies.entries import ArmFiles
from tests.studies.planted import planted_entries

STUDY = load_study("personalisation", "quick")
PAGE = f"# Studies\n\n{results_page.BEGIN}old\n{results_page.END}\nThe end\n"
ENTRIES = planted_entries(STUDY, dict.fromkeys(STUDY.arms, 0.5) | {"clean": 0.9, "opd": 0.85})


def test_the_page_says_what_the_files_give() -> None:
    page = results_page.PAGE.read_text(encoding="utf-8")
    assert results_page.with_results(page) == page, "run python -m studies.results_page"


def test_every_claim_stands_with_its_verdict_and_what_decided_it(tmp_path: Path) -> None:
    files = ArmFiles(STUDY, tmp_path / STUDY.folder_name)
    for entry in ENTRIES[:-1]:
        files.add(entry)
    assert results_page.NONE in results_page.with_results(PAGE, tmp_path), "an arm is missing"
    files.add(ENTRIES[-1])
    text = results_page.with_results(PAGE, tmp_path)
    assert "### Personalisation, quick\n\n    recover study personalisation --size quick\n" in text
    lines = [line for line in text.splitlines() if line.startswith(("| supported", "| refuted", "| cannot tell"))]
    assert len(lines) == len(STUDY.declared.claims)
    for line, claim in zip(lines, STUDY.declared.claims, strict=True):
        assert claim.text in line
        assert claim.control in line
    assert "| opd | 0.500 | 0.900 |  | 0.800 | 8 | 0.100 | 3 |" in text
    assert results_page.NONE not in text
    assert "old" not in text
    assert "- opd" not in text, "every training took all its steps"
    stopped = dict(ENTRIES[-1]["stages"][0], stopped="it collapsed: the KL rose | went back to step 10")
    files.add(ENTRIES[-1] | {"stages": [stopped]})
    line = f"\n\n- {ENTRIES[-1]['arm']}, seed {ENTRIES[-1]['seed']}: it collapsed: the KL rose | went back to step 10\n"
    assert line in results_page.with_results(PAGE, tmp_path)
    assert text.endswith("The end\n")


@pytest.mark.parametrize(("study", "part"), [("moves", "arms"), ("dials", "arms"), ("dials", "kl")])
def test_the_pictures_on_pages_are_drawn_from_the_files(study: str, part: str) -> None:
    """`recover study NAME --to DIR` writes them."""
    row = next(row for row in shipped_studies() if row.name == study)
    picture = results_page.PAGE.parent / "images" / f"{study}-quick-{part}.svg"
    assert picture.read_text(encoding="utf-8").strip() == str(arm_pictures(row)[part]).strip()


def test_results_of_an_older_declaration_are_refused(tmp_path: Path) -> None:
    ArmFiles(STUDY, tmp_path / "personalisation-quick-00000000").add(ENTRIES[0])
    with pytest.raises(RecoverError, match=rf"are of another declaration than {STUDY.hash}\. Remove them\."):
        results_page.with_results(PAGE, tmp_path)


def test_the_dashboard_lists_every_study_that_ships() -> None:
    rows = shipped_studies()
    assert [row.name for row in rows] == shipped()
    assert all(row.declaration["title"] and row.claims for row in rows)


def test_the_dashboard_lists_each_finished_size_of_a_study(tmp_path: Path) -> None:
    full = load_study("personalisation", "full")
    for study in (STUDY, full):
        files = ArmFiles(study, tmp_path / study.folder_name)
        for entry in planted_entries(study, dict.fromkeys(study.arms, 0.5)):
            files.add(entry)
    rows = shipped_studies(tmp_path)
    of_study = [(row.size, row.hash, bool(row.results)) for row in rows if row.name == "personalisation"]
    assert sorted(of_study) == [("full", full.hash, True), ("quick", STUDY.hash, True)]
    assert {row.name for row in rows} == set(shipped())
