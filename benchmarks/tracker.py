"""The cost of the record: metrics per second into SQLite, the share of a training step spent on recording, and the time
of `recover status` in a project with a long history.

    python -m benchmarks.tracker        # 200 cycles, 1,000 runs, 1,000,000 points

The share is the median time that a step waits for the record, relative to the median mid-training step of the built-in
model; the writing itself runs in another thread. `recover status` is timed from the start of its process to its end:
wall time and processor time, which varies less on a busy machine. A first run with cold caches is left out.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.scripts import script_parser
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from recovery.lab import BASE, own_world
from recovery.models.students import load_student
from recovery.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan, train
from tests.db.seeded import seed

NAMES = ("loss", "kl", "entropy", "rollout_length", "truncated", "ratio_mean", "grad_norm", "learning_rate", "density",
         "concentration", "tokens_per_second", "flops", "skipped")  # fmt: skip


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = script_parser(__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10, help="of recover status")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rate = points_per_second(folder / "points.db", args.points)
        share = recording_share(folder / "steps.db", args.steps)
        make_project(folder, args.cycles, args.runs, args.points)
        times = [time_status(folder, args.cycles) for _ in range(args.rounds + 1)][1:]
    wall, processor = (median(column) for column in zip(*times, strict=True))
    print(f"{rate:,.0f} points/s written; recording takes {share:.2%} of a training step")
    print(f"recover status: {wall:.2f} s, {processor:.2f} s of the processor")
    return {"points_per_second": rate, "share": share, "status": wall, "status_processor": processor}


def points_per_second(file: Path, points: int) -> float:
    with Tracker(open_database(str(file))) as tracker:
        run = tracker.start_run(tracker.project("benchmark", "/", "base"), "midtrain")
        start = time.perf_counter()
        for step in range(points // len(NAMES)):
            tracker.step(run, step, dict.fromkeys(NAMES, 1.5))
        assert tracker.flush()
        return points / (time.perf_counter() - start)


def recording_share(file: Path, steps: int) -> float:
    student = load_student(str(BASE))
    ids = [student.chat.tokenizer(d.text, add_special_tokens=False)["input_ids"] for d in own_world().documents()]
    documents = Documents(ids, student.chat.separator, window=256, rows=16)
    plan = Plan(steps, 1e-4)
    recording_times: list[float] = []
    step_times: list[float] = []
    with Tracker(open_database(str(file))) as tracker:
        run = tracker.start_run(tracker.project("benchmark", "/", "base"), "midtrain")
        last = time.perf_counter()
        for record in train(student, documents, Labels(), CrossEntropy(), plan):
            trained_at = time.perf_counter()
            tracker.step(run, record.step, record.metrics())
            now = time.perf_counter()
            recording_times.append(now - trained_at)
            step_times.append(trained_at - last)
            last = now
    return median(recording_times) / median(step_times)


def write_record(record: Path, cycles: int, runs: int, points: int) -> None:
    """Write the tests' seeded history with more runs and many more steps."""
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


def make_project(root: Path, cycles: int, runs: int, points: int) -> None:
    """A project folder with a long record, and an empty folder for its current checkpoint."""
    record = root / ".recover" / "recover.db"
    write_record(record, cycles, runs, points)
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
