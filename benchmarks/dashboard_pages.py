"""Dashboard pages of a long history: time to load, the cost of a poll without changes, and memory over time.

    python -m benchmarks.dashboard_pages                    # 200 cycles, 1,000 runs, 1,000,000 points
    python -m benchmarks.dashboard_pages --minutes 10       # then ten viewers for ten minutes

A page is timed in a real browser, in a new session: from the request to the first contentful paint, to the heading,
and to the content (for the overview, a cycle and the tokens: the drawn chart). The processor time of the server and of
the browser is given too, as it varies less than wall time on a busy machine.
"""

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

from benchmarks.scripts import script_parser, table
from db.engine import open_database
from tests.browser import Visit, started

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
    parser = script_parser(__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="visits per page (default 3)")
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=0.0, help="how long the viewers poll (default: not at all)")
    parser.add_argument("--record", type=Path, help="keep the record in this file for the next run")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        record = args.record or Path(folder) / "record.db"
        if not record.exists():
            from benchmarks.tracker import write_record  # with torch, which the server's memory would have, too

            write_record(record, args.cycles, args.runs, args.points)
        with server(record) as (url, process):
            size = round(record.stat().st_size / 1e6)
            result: dict[str, Any] = {"MB": size, "pages": pages(url, process, args.rounds)}
            result["idle poll, ms"] = idle_poll(url)
            if args.minutes:
                result["resident MB"] = memory_over_time(url, process, args.viewers, args.minutes * 60)
    rows = [[name, *(f"{seconds:.2f}" for seconds in times)] for name, times in result["pages"].items()]
    table(["page", "seconds to first paint", "to heading", "to content", "processor: server", "browser"], rows)
    print(json.dumps({name: value for name, value in result.items() if name != "pages"}))
    return result


@contextmanager
def server(record: Path) -> Iterator[tuple[str, psutil.Process]]:
    parent, child_end = get_context("spawn").Pipe()
    child = get_context("spawn").Process(target=_serve, args=(record, child_end), daemon=True)
    child.start()
    try:
        yield parent.recv(), psutil.Process(child.pid)
    finally:
        parent.send("stop")
        child.join(20)


def _serve(record: Path, pipe: Connection) -> None:
    from dashboard.server.serve import open_dashboard
    from db.queries import Reader

    with open_dashboard(Reader(open_database(record))) as url:
        pipe.send(url)
        pipe.recv()


def pages(url: str, server: psutil.Process, rounds: int) -> dict[str, list[float]]:
    """By page, the median times over all rounds, each in a new session; a first visit warms the server up."""
    medians = {}
    with started() as browser:
        for name, (path, content) in PAGES.items():
            visits = [_visit(browser, f"{url}/{path}", content, server) for _ in range(rounds + 1)]
            medians[name] = [statistics.median(column) for column in zip(*visits[1:], strict=True)]
            print(
                name, [[round(seconds, 2) for seconds in visit] for visit in visits], "(the first: warm-up)", flush=True
            )
    return medians


def _visit(browser: Browser, url: str, content: str, server: psutil.Process) -> list[float]:
    """Seconds to the first paint, the heading and the content, then processor seconds of server and browser."""
    visit = Visit(browser)
    start, before = time.perf_counter(), _processor_seconds(server)
    visit.page.goto(url, wait_until="commit")
    visit.page.wait_for_selector("h1", timeout=180_000)
    heading = time.perf_counter() - start
    visit.page.wait_for_selector(f"gradio-app {content}", state="attached", timeout=180_000)
    content_time = time.perf_counter() - start
    processor = [now - then for now, then in zip(_processor_seconds(server), before, strict=True)]
    first_paint = visit.page.wait_for_function(PAINTED).json_value() / 1000
    visit.close()
    return [first_paint, heading, content_time, *processor]


def _processor_seconds(server: psutil.Process) -> list[float]:
    family = psutil.Process().children(recursive=True)
    browser = [process for process in family if process.pid != server.pid and "chrom" in process.name()]
    return [sum(sum(process.cpu_times()[:2]) for process in group) for group in ([server], browser)]


class Viewer:
    """An open overview page: polls the server as a browser would."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=60)
        page = self._client.get("/config").json()
        polls = [call for call in page["dependencies"] if any(event == "tick" for _, event in call["targets"])]
        self._call = {"fn_index": polls[0]["id"], "session_hash": uuid4().hex}

    def poll(self) -> float:
        view = json.dumps({"dark": False, "narrow": False, "search": ""})
        start = time.perf_counter()
        self._client.post("/gradio_api/run/predict", json=self._call | {"data": [None, view]}).raise_for_status()
        return time.perf_counter() - start


def idle_poll(url: str) -> float:
    """Median milliseconds of a poll without changes, including the request."""
    viewer = Viewer(url)
    viewer.poll()
    return round(1000 * statistics.median(viewer.poll() for _ in range(20)), 1)


def memory_over_time(url: str, process: psutil.Process, viewers: int, seconds: float) -> list[float]:
    """The server's memory in MB after a minute, half-way and at the end, while all viewers poll every 4 seconds."""
    all_viewers = [Viewer(url) for _ in range(viewers)]
    start, resident = time.monotonic(), []
    while time.monotonic() - start < seconds:
        round_start = time.monotonic()
        for viewer in all_viewers:
            viewer.poll()
        resident.append((time.monotonic() - start, process.memory_info().rss / 1e6))
        time.sleep(max(0.0, 4 - (time.monotonic() - round_start)))
    marks = (min(60.0, seconds / 4), seconds / 2, seconds)
    return [round(min(resident, key=lambda sample: abs(sample[0] - mark))[1], 1) for mark in marks]


if __name__ == "__main__":
    main()
