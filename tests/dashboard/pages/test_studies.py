import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dashboard.actions import Actions
from dashboard.html_report import study_report
from dashboard.pages import studies
from dashboard.pages.studies import arm_pictures, picture, place_labels
from dashboard.ui.charts.figure import Look
from dashboard.ui.polling import NotFound
from db.queries import Reader
from db.tables import Study
from tests.dashboard.page_requests import page_html
from tests.db.seeded import CLAIMS, COMMON, add_study, declaration


@pytest.fixture
def study(tracker, written, seeded) -> Study:
    return written.study(add_study(tracker, seeded.project))


def test_every_verdict_stands_beside_its_interval_and_the_source(written, study) -> None:
    html = page_html(studies, written)
    for text in ("Supported", "Refuted", "Cannot tell", "it would take 14 seeds", "Control: <bdi>interpolation alone"):
        assert text in html
    assert "<b>+0.310</b>" in html
    assert "+0.240 to +0.380" in html
    assert ">+0.114</span>" in html
    assert "9f9f9f9f9f9f9f9f" in html


def test_a_value_that_is_no_number_is_left_out(tracker, written, seeded) -> None:
    claim = COMMON | CLAIMS[0] | {"n": 600, "estimate": None, "low": None, "high": None, "seeds": [0.1, None]}
    entry = {"arm": "opd", "seed": 1, "scores": {"behaviour": 0.5}, "steps": 8, "pflops": 0.1, "seconds": 1.0}
    for kl in (None, math.nan):
        study = tracker.study(seeded.project, "own", "quick", "ab12", declaration())
        results = {"arms": [entry | {"values": {"kl_to_clean": kl}}], "planned": 1, "claims": [claim]}
        tracker.store_study(study, results, done=True)
        assert claim["text"] in page_html(studies, written)
        assert "kl" not in arm_pictures(Study(name="own", size="quick", declaration=declaration(), results=results))
        assert ElementTree.fromstring(picture(written.study(study))) is not None


def test_a_study_links_to_its_arms(written, study) -> None:
    assert f"studies?study={study.id}" in page_html(studies, written)
    html = page_html(studies, written, f"?study={study.id}")
    assert "opd, seed 3" in html
    assert "0.0021" in html
    assert "recover dashboard" not in html


def test_the_commands_that_open_the_arms_name_the_projects_that_are_there(study, tmp_path: Path) -> None:
    """What ships has no project; arms of several cycles have one each."""
    root = tmp_path / "my notes"
    folder = root / ".recover/studies/personalisation-quick-9f9f9f9f"
    for name in ("seed-1", "seed-2/.recover", "seed-2-opd/.recover"):
        (folder / name).mkdir(parents=True)
    for name in ("seed-2", "seed-2-opd"):
        (folder / name / ".recover/name").write_text("notes")
    html = studies.how_to_open(study, str(root))
    commands = re.findall(r"recover dashboard --project [^<]*", html)
    assert commands == [f"recover dashboard --project &#39;{folder}/{name}&#39;" for name in ("seed-2", "seed-2-opd")]


def test_a_study_that_is_not_done_says_how_far_it_is(tracker, written, seeded) -> None:
    study = tracker.study(seeded.project, "length", "quick", "ab12", declaration())
    tracker.store_study(study, {"arms": [], "planned": 12, "claims": []}, done=False)
    html = page_html(studies, written)
    assert "0 of 12 arms and seeds are done" in html
    assert "not yet" in html


def test_the_picture_is_an_svg_with_a_mark_for_every_interval(study) -> None:
    svg = ElementTree.fromstring(picture(study))
    name = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f"{name}circle[@r='5']")) == 3
    assert len(svg.findall(f"{name}path")) == 1, "one claim has a figure of its source"
    width = float(svg.get("viewBox").split()[2])
    assert all(0 <= float(circle.get("cx")) <= width for circle in svg.iter(f"{name}circle"))


def test_arms_are_drawn_by_their_means_the_best_first_and_by_their_kl_where_it_was_measured(study) -> None:
    assert list(arm_pictures(study)) == ["arms"]
    name = "{http://www.w3.org/2000/svg}"
    for narrow in (False, True):
        svg = ElementTree.fromstring(arm_pictures(study, Look(narrow=narrow))["arms"])
        texts = [text.text for text in svg.iter(f"{name}text")]
        assert texts.index("opd") < texts.index("damaged")
        marks = {kind: len(svg.findall(f"{name}{kind}")) for kind in ("circle", "path", "rect[@width='9']")}
        assert marks == dict.fromkeys(marks, 3), "two arms and the legend"
        assert sorted(float(circle.get("cx")) for circle in svg.iter(f"{name}circle"))[1:] == pytest.approx(
            [(30 if narrow else 250) + (300 if narrow else 480) * score for score in (0.56, 0.87)]
        )
    for arm, entries in study.arms.items():
        for entry in entries:
            entry["values"] = {"kl_to_clean": 0.05 if arm == "opd" else 0.4}
    for width, narrow in ((760, False), (360, True)):
        plane = ElementTree.fromstring(arm_pictures(study, Look(narrow=narrow))["kl"])
        circles = [{key: float(c.get(key)) for key in ("cx", "cy")} for c in plane.findall(f"{name}circle")]
        assert len(circles) == 4, "two arms in two panels"
        opd, damaged = sorted(circles[:2], key=lambda circle: circle["cx"])
        assert opd["cy"] < damaged["cy"], "opd is higher"
        # 0.05 and 0.4 of an axis from 0.05 to 0.5
        left, right = 60 + 0.1 * width, width - 30
        assert opd["cx"] == pytest.approx(left, abs=0.1)
        assert damaged["cx"] == pytest.approx(left + (right - left) * math.log10(8), abs=0.1)


@pytest.mark.parametrize(
    ("scores", "kl", "panels"),
    [
        ({"behaviour": 0.5, "knowledge": 0.5}, 0.2, 2),
        ({"behaviour": 0.0}, 0.0, 1),
        ({"knowledge": 1.0}, 0.2, 1),
        ({"retention": 1.0}, 0.2, 0),
    ],
)
def test_a_measure_that_no_arm_has_gets_no_panel(scores: dict[str, float], kl: float, panels: int) -> None:
    arms = [{"arm": "opd", "seed": 1, "scores": scores, "values": {"kl_to_clean": kl}}]
    study = Study(name="own", size="quick", declaration=declaration(), results={"arms": arms})
    drawn = arm_pictures(study)
    assert drawn.keys() == {"arms", *(["kl"] if panels else [])}
    assert drawn.get("kl", "").count("nats a token") == panels


def test_labels_of_points_keep_clear_of_points_and_of_each_other() -> None:
    points = [{"x": 100 + 4 * n, "y": 50 + n % 3, "label": str(n)} for n in range(20)]
    place_labels(points, (0, 0, 300, 120))
    places = [(point["label_x"], point["label_y"]) for point in points]
    marks = [(point["x"], point["y"]) for point in points]
    for n, (x, y) in enumerate(places):
        assert 0 < y < 120
        assert all(abs(x - left) > 6 or abs(y - top) > 9 for left, top in [*places[:n], *marks])


def test_the_report_of_a_study_is_one_file_that_loads_nothing(tracker, written, seeded) -> None:
    html = study_report(written.study(add_study(tracker, seeded.project, "<script>x</script>")))
    assert "<script>x" not in html
    body = html[html.index("<body>") :]
    assert "<svg" in body
    assert "before anything ran</p>" in body, "it has no page to link to"
    assert not re.search(r'(?:src|href)="', body)


def test_without_studies_the_page_says_what_to_run(reader: Reader) -> None:
    with pytest.raises(NotFound, match="recover study --list"):
        page_html(studies, reader)


def test_a_project_without_studies_shows_those_that_ship_and_whether_any_has_its_verdict(reader: Reader) -> None:
    unread = Study(name="length", declaration=declaration("Long answers"))
    html = page_html(studies, reader, actions=Actions(shipped_studies=lambda: [unread]))
    assert "none of them has run to its verdict yet." in html
    assert "Long answers" in html
    claims = [COMMON | {"n": 600} | claim for claim in CLAIMS]
    read = Study(name="cost", size="quick", hash="ab12", declaration=declaration(), results={"claims": claims})
    html = page_html(studies, reader, actions=Actions(shipped_studies=lambda: [unread, read]))
    assert "1 of them ran to the verdict." in html
    assert re.findall(r'href="studies#([^"]+)"', html) == re.findall(r'id="([^"]+)"', html) == ["cost-quick"]
    assert "1 supported, 1 refuted, 1 cannot tell" in html
    assert "<b>+0.310</b>" in html
