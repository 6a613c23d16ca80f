"""The cost of the record: metrics per second into SQLite, and the share of a training step spent on recording.

    python -m benchmarks.tracker [--points 200000] [--steps 30]

The share is the median time that a step waits for the record, relative to the median mid-training step of the built-in
model; the writing itself runs in another thread.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.scripts import script_parser
from db.engine import open_database
from db.tracker import Tracker
from recovery.lab import BASE, own_world
from recovery.models.students import load_student
from recovery.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan, train

NAMES = [f"metric {i}" for i in range(20)]  # about as many as a real step has


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = script_parser(__doc__)
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rate = points_per_second(Path(folder) / "points.db", args.points)
        share = recording_share(Path(folder) / "steps.db", args.steps)
    print(f"{rate:,.0f} points/s written; recording takes {share:.2%} of a training step")
    return {"points_per_second": rate, "share": share}


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


if __name__ == "__main__":
    main()
