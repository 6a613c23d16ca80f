"""`recover demo` as a newcomer runs it, and the overview page it leads to, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from dashboard.server.serve import open_dashboard
from db.engine import open_database
from db.queries import Reader
from tests.browser import Visit
from tests.e2e.command_line import Completed, recover


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completed]:
    folder = tmp_path_factory.mktemp("demo")
    return folder / "recover-demo", recover(folder, "demo", "--quick")


@pytest.mark.slow
def test_the_demo_shows_damage_and_recovery(demo: tuple[Path, Completed]) -> None:
    _, completed = demo
    assert completed.exit_code == 0, completed.stderr
    clean, cycle = completed.data["models"]["clean"], completed.data["cycles"][0]
    damaged, recovered = cycle["damaged"], cycle["recovered"]
    assert damaged["behaviour"] <= clean["behaviour"] - 0.15
    assert recovered["behaviour"] >= damaged["behaviour"] + 0.15
    assert recovered["knowledge"] >= clean["knowledge"] + 0.4
    assert isinstance(cycle["promoted"], bool)
    for example in completed.data["examples"]:
        followed = {name: answer["followed"] for name, answer in example["answers"].items()}
        assert followed["clean"]
        assert not followed["mid-trained"]


@pytest.mark.browser
@pytest.mark.slow
def test_the_overview_of_the_demo_has_both_curves(demo: tuple[Path, Completed], visit: Callable[..., Visit]) -> None:
    folder, completed = demo
    scores: Any = completed.data["cycles"][0]["recovered"]
    reader = Reader(open_database(folder / ".recover" / "recover.db"))
    with open_dashboard(reader) as url:
        page = visit(url).page
        page.wait_for_selector("#over-time")
        chart = page.locator("#over-time")
        for name in ("Instruction following", "Knowledge"):
            expect(chart.get_by_text(name)).to_be_visible()
        expect(chart.locator(".scatterlayer .trace path.js-line")).not_to_have_count(0)
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"{scores['behaviour']:.3f}")
        page.close()  # before its server is, or the stream that breaks off would count as an error of the page
