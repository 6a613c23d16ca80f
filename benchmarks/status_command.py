"""Time of `recover status` in a project with a long history.

    python -m benchmarks.status_command                       # 200 cycles, 1,000 runs, 1,000,000 points

The whole command is timed, from the start of its process to its end: wall time and processor time, which varies less on
a busy machine. A first run with cold caches is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.dashboard_pages import write_record
from benchmarks.scripts import script_parser
from db.engine import open_database
from db.queries import Reader


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = script_parser(__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        make_project(Path(folder), args)
        times = [time_status(Path(folder), args.cycles) for _ in range(args.rounds + 1)][1:]
    wall, processor = zip(*times, strict=True)
    result = {"s": round(statistics.median(wall), 3), "processor, s": round(statistics.median(processor), 3)}
    print(json.dumps(result))
    return result


def make_project(root: Path, args: argparse.Namespace) -> None:
    """A project folder with a long record, and an empty folder for its current checkpoint."""
    record = root / ".recover" / "recover.db"
    write_record(record, args.cycles, args.runs, args.points)
    engine = open_database(record)
    reader = Reader(engine)
    (project,) = reader.projects()
    (root / ".recover" / "name").write_text(project.name)
    current = reader.current(project.id)
    if current is not None:
        (root / ".recover" / "checkpoints" / Path(current.path).name).mkdir(parents=True)
    engine.dispose()


def time_status(root: Path, cycles: int) -> tuple[float, float]:
    """Wall and processor seconds of one `recover status`."""
    command = [sys.executable, "-m", "pipelines.cli", "status", "--json", "--project", str(root)]
    start, before = time.perf_counter(), os.times()
    status = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    after = os.times()
    assert len(status["cycles"]) == cycles
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, processor


if __name__ == "__main__":
    main()
