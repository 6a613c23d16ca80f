"""What keeping the record costs: points a second into SQLite, and the share of a training step that telling it takes.

    python -m benchmarks.speed.tracker [--points 200000] [--steps 30]

The second figure is the median time that a step waits for the record, against the median mid-training step of the
built-in model; the writing itself goes on in a thread of its own.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from db.engine import open_database
from db.tracker import Tracker
from recovery.lab import BASE, own_world
from recovery.losses.objectives import CrossEntropy
from recovery.models.students import load_student
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan, train

NAMES = [f"metric {i}" for i in range(20)]  # about what a step has


def main(arguments: list[str] | None = None) -> dict[str, float]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--points", type=int, default=200_000)
    options.add_argument("--steps", type=int, default=30)
    asked = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rate = points_a_second(Path(folder) / "points.db", asked.points)
        share = share_of_a_step(Path(folder) / "steps.db", asked.steps)
    print(f"{rate:,.0f} points/s taken and written; telling the record takes {share:.2%} of a training step")
    return {"points_a_second": rate, "share": share}


def points_a_second(file: Path, points: int) -> float:
    with Tracker(open_database(str(file))) as tracker:
        run = tracker.start_run(tracker.project("benchmark", "/", "base"), "midtrain")
        started = time.perf_counter()
        for step in range(points // len(NAMES)):
            tracker.step(run, step, dict.fromkeys(NAMES, 1.5))
        assert tracker.flush()
        return points / (time.perf_counter() - started)


def share_of_a_step(file: Path, steps: int) -> float:
    student = load_student(str(BASE))
    ids = [student.chat.tokenizer(d.text, add_special_tokens=False)["input_ids"] for d in own_world().documents()]
    documents = Documents(ids, student.chat.pad_id, window=256, rows=16)
    plan = Plan(steps, 1e-4)
    told: list[float] = []
    took: list[float] = []
    with Tracker(open_database(str(file))) as tracker:
        run = tracker.start_run(tracker.project("benchmark", "/", "base"), "midtrain")
        last = time.perf_counter()
        for record in train(student, documents, Labels(), CrossEntropy(), plan):
            learned = time.perf_counter()
            tracker.step(run, record.step, record.metrics())
            now = time.perf_counter()
            told.append(now - learned)
            took.append(learned - last)
            last = now
    return median(told) / median(took)


if __name__ == "__main__":
    main()
