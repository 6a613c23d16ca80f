"""How long `recover status` takes to answer in a project with a long history.

    python -m benchmarks.speed.status_command                       # 200 cycles, 1,000 runs, 1,000,000 points

The whole command is timed, from the start of its process to its end, by the wall and by what it computed, which says
the same on a machine that is busy with other work. The first answer, which finds nothing in the caches, is left out.
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

from benchmarks.speed.dashboard_pages import write
from db.engine import open_database
from db.queries import Reader


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cycles", type=int, default=200)
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--points", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=10)
    asked = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), asked)
        taken = [sample_answers(Path(folder), asked.cycles) for _ in range(asked.rounds + 1)][1:]
    by_wall, computed = zip(*taken, strict=True)
    result = {"s": round(statistics.median(by_wall), 3), "processor, s": round(statistics.median(computed), 3)}
    print(json.dumps(result))
    return result


def project(root: Path, asked: argparse.Namespace) -> None:
    """A folder that has the long record for its own, and the weights that it says are current."""
    record = root / ".recover" / "recover.db"
    write(record, asked.cycles, asked.runs, asked.points)
    engine = open_database(record)
    reader = Reader(engine)
    (known,) = reader.projects()
    (root / ".recover" / "name").write_text(known.name)
    current = reader.current(known.id)
    if current is not None:
        (root / ".recover" / "checkpoints" / Path(current.path).name).mkdir(parents=True)
    engine.dispose()


def sample_answers(root: Path, cycles: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "pipelines.cli", "status", "--json", "--project", str(root)]
    began, before = time.perf_counter(), os.times()
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    after = os.times()
    assert len(said["cycles"]) == cycles
    computed = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, computed


if __name__ == "__main__":
    main()
