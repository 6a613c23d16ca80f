"""How long the pages of a long history take, what an idle look costs, and whether memory stays where it is.

    python -m benchmarks.speed.dashboard_pages                    # 200 cycles, 1,000 runs, 1,000,000 points
    python -m benchmarks.speed.dashboard_pages --minutes 10       # and ten viewers for ten minutes

A page is timed in a real browser, in a fresh session: from the click to the first thing the browser paints (its own
first-contentful-paint), to the page's heading, with which the first words come, and to its content: for the overview, a
cycle and the tokens that is their drawn chart. Beside the time by the wall stands what the server and the browser
computed for it, which says more on a machine that is busy with other work.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
from playwright.sync_api import Browser

from benchmarks.common import table
from db.engine import open_database
from db.tracker import Tracker
from tests.browser import Visit, started
from tests.db.seeded import seed

NAMES = ("loss", "kl", "entropy", "rollout_length", "truncated", "ratio_mean", "grad_norm", "learning_rate", "density",
         "concentration", "tokens_per_second", "flops", "skipped")  # fmt: skip
DRAWN = ".js-plotly-plot .scatterlayer"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
PAGES = {
    "overview": ("", f"#over-time {DRAWN}"),
    "cycles": ("cycles", "table.rows tbody tr"),
    "cycle": ("cycle", f"#curves {DRAWN}"),
    "compare": ("compare", "#answers .item"),
    "lineage": ("lineage", ".lineage li"),
    "tokens": ("tokens", "#geometry .js-plotly-plot .barlayer"),
    "live": ("live", ".empty h1"),
}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cycles", type=int, default=200)
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--points", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3, help="visits of each page (default 3)")
    options.add_argument("--viewers", type=int, default=10)
    options.add_argument("--minutes", type=float, default=0.0, help="how long the viewers look (default: not at all)")
    options.add_argument("--record", type=Path, help="where to keep the record for the next time")
    asked = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        record = asked.record or Path(folder) / "record.db"
        if not record.exists():
            write(record, asked.cycles, asked.runs, asked.points)
        with server(record) as (url, process):
            size = round(record.stat().st_size / 1e6)
            result: dict[str, Any] = {"MB": size, "pages": pages(url, process, asked.rounds)}
            result["idle look, ms"] = idle_look(url)
            if asked.minutes:
                result["resident MB"] = watched(url, process, asked.viewers, asked.minutes * 60)
    rows = [[name, *(f"{seconds:.2f}" for seconds in taken)] for name, taken in result["pages"].items()]
    table(["page", "seconds to first paint", "to its words", "to its content", "processor: server", "browser"], rows)
    print(json.dumps({name: value for name, value in result.items() if name != "pages"}))
    return result


def write(record: Path, cycles: int, runs: int, points: int) -> None:
    """The seeded past, made long: more measurements, and many more steps."""
    engine = open_database(record)
    with Tracker(engine) as tracker:
        seeded = seed(tracker, cycles=cycles, steps=1)
        for _ in range(runs - 3 * cycles - 1):
            tracker.finish_run(tracker.start_run(seeded.project, "eval"), "done")
        training = [*seeded.midtrain_runs, *seeded.distill_runs]
        for run in training:
            for step in range(max(1, points // len(training) // len(NAMES))):
                tracker.step(run, step, {name: 1 / (1 + step) for name in NAMES})
            tracker.flush()
    engine.dispose()


@contextmanager
def server(record: Path) -> Iterator[tuple[str, psutil.Process]]:
    here, there = get_context("spawn").Pipe()
    child = get_context("spawn").Process(target=_serve, args=(record, there), daemon=True)
    child.start()
    try:
        yield here.recv(), psutil.Process(child.pid)
    finally:
        here.send("enough")
        child.join(20)


def _serve(record: Path, pipe: Connection) -> None:
    from dashboard.server.serve import opened
    from db.queries import Reader

    with opened(Reader(open_database(record))) as url:
        pipe.send(url)
        pipe.recv()


def pages(url: str, server: psutil.Process, rounds: int) -> dict[str, list[float]]:
    """By page the medians over rounds, after one visit that warms the server; each in a session of its own."""
    found = {}
    with started() as browser:
        for name, (path, content) in PAGES.items():
            taken = [_visit(browser, f"{url}/{path}", content, server) for _ in range(rounds + 1)]
            found[name] = [statistics.median(column) for column in zip(*taken[1:], strict=True)]
            print(name, [[round(seconds, 2) for seconds in one] for one in taken], "the first of them cold", flush=True)
    return found


def _visit(browser: Browser, url: str, content: str, server: psutil.Process) -> list[float]:
    """Seconds by the wall to the first paint, the heading, the content; of the processor for server and browser."""
    visit = Visit(browser)
    begin, spent = time.perf_counter(), _computed(server)
    visit.page.goto(url, wait_until="commit")
    visit.page.wait_for_selector("h1", timeout=180_000)
    words = time.perf_counter() - begin
    visit.page.wait_for_selector(f"gradio-app {content}", state="attached", timeout=180_000)
    content_stood = time.perf_counter() - begin
    computed = [now - then for now, then in zip(_computed(server), spent, strict=True)]
    painted = visit.page.wait_for_function(PAINTED).json_value() / 1000
    visit.close()
    return [painted, words, content_stood, *computed]


def _computed(server: psutil.Process) -> list[float]:
    family = psutil.Process().children(recursive=True)
    browsing = [one for one in family if one.pid != server.pid and "chrom" in one.name()]
    return [sum(sum(one.cpu_times()[:2]) for one in group) for group in ([server], browsing)]


class Viewer:
    """An open overview, without the browser around it."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=60)
        page = self._client.get("/config").json()
        ticking = [one for one in page["dependencies"] if any(event == "tick" for _, event in one["targets"])]
        self._ask = {"fn_index": ticking[0]["id"], "session_hash": uuid4().hex}

    def look(self) -> float:
        said = json.dumps({"dark": False, "narrow": False, "search": ""})
        begin = time.perf_counter()
        self._client.post("/gradio_api/run/predict", json=self._ask | {"data": [None, said]}).raise_for_status()
        return time.perf_counter() - begin


def idle_look(url: str) -> float:
    """What a look costs while nothing has changed, the way there and back included."""
    viewer = Viewer(url)
    viewer.look()
    return round(1000 * statistics.median(viewer.look() for _ in range(20)), 1)


def watched(url: str, process: psutil.Process, viewers: int, seconds: float) -> list[float]:
    """The server's memory after the first minute, half-way and at the end, with everybody looking every 4 seconds."""
    looking = [Viewer(url) for _ in range(viewers)]
    begin, resident = time.monotonic(), []
    while time.monotonic() - begin < seconds:
        around = time.monotonic()
        for viewer in looking:
            viewer.look()
        resident.append((time.monotonic() - begin, process.memory_info().rss / 1e6))
        time.sleep(max(0.0, 4 - (time.monotonic() - around)))
    marks = (min(60.0, seconds / 4), seconds / 2, seconds)
    return [round(min(resident, key=lambda one: abs(one[0] - mark))[1], 1) for mark in marks]


if __name__ == "__main__":
    main()
