"""`recover cycle` killed at random moments and resumed, held against one that was left alone.

    python -m tests.interrupted [--kills 20] [--seed 0] [--jobs 1]

Each time: a copy of a project that was through one cycle, the same small second one on the built-in model, SIGKILL
after a random share of the time that the unbroken one took, `recover resume`. Then the weights must be the same bits,
and the record the same rows but for times.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recovery.lab import make_world

SMALL = {
    "midtrain.max_steps": 8,
    "midtrain.mix.answers": "auto",
    "midtrain.mix.texts": 0.2,
    "midtrain.generated_texts": 24,
    "distill.steps": 5,
    "distill.rows": 16,
    "distill.max_new_tokens": 96,
    "distill.prompts": 48,
    "distill.probe_every": 2,
    "distill.probe_items": 24,
    "gate.behaviour_margin": 0.5,
    "save_minutes": 0,
}
FIRST = {"midtrain.max_steps": 2, "distill.steps": 1, "gate.behaviour_margin": 0.99, "gate.keep_knowledge": 0.01}
SOONER = 0.8  # times the moment that came too late
OF_THE_MOMENT = ("seconds", "per_second", "memory", "_bytes")  # in the name of a number that no two runs share


@dataclass
class Left:
    """What a cycle left behind that two runs of it must share."""

    weights: dict[str, str]
    rows: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def promoted(self) -> list[Any]:
        return [row for row in self.rows["promotions"] if "promoted" in row]

    def differences(self, other: "Left") -> list[str]:
        found = [] if self.weights == other.weights else [f"weights differ: {self.weights} {other.weights}"]
        for table, rows in self.rows.items():
            theirs = other.rows[table]
            if rows != theirs:
                odd = [row for row in rows if row not in theirs][:2] + [row for row in theirs if row not in rows][:2]
                found.append(f"{table}: {len(rows)} rows and {len(theirs)}, such as {odd}")
        return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=1, help="so many at a time")
    asked = options.parse_args()
    failed = interrupt(asked.kills, asked.seed, asked.jobs)
    print(f"{asked.kills} kills, {asked.kills - len(failed)} of them without a trace")
    sys.exit(bool(failed))


def interrupt(kills: int, seed: int = 0, jobs: int = 1) -> list[str]:
    """One sentence for each kill that left a trace."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        root = Path(scratch)
        for number in (1, 2):
            make_world(4240 + number, size="quick").write(root / f"world-{number}")
        recover(root, root / "begun", *_cycle(root / "world-1", SMALL | FIRST))
        assert len(left_by(root / "begun").promoted) == 1, "the first cycle was not promoted"
        shutil.copytree(root / "begun", root / "whole")
        started = time.perf_counter()
        recover(root, root / "whole", *_second(root))
        lasted = time.perf_counter() - started
        whole = left_by(root / "whole")
        rng = random.Random(seed)
        moments = [rng.uniform(0.02, 0.98) * lasted for _ in range(kills)]
        trials = [pool.submit(_trial, root, root / f"killed-{i}", at, whole) for i, at in enumerate(moments)]
        return [said for trial in trials if (said := trial.result())]


def _trial(root: Path, folder: Path, at: float, whole: Left) -> str:
    shutil.copytree(root / "begun", folder)
    process = subprocess.Popen(_command(folder, *_second(root)), stderr=subprocess.PIPE, text=True, cwd=root)
    try:
        process.communicate(timeout=at)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, words = process.communicate()
    else:  # it was quicker than the unbroken one: nothing was killed
        shutil.rmtree(folder)
        return _trial(root, folder, SOONER * at, whole)
    where = (words.strip().splitlines() or ["before the first word"])[-1].strip()
    if any((folder / ".recover" / "jobs").glob("*.json")):
        recover(root, folder, "resume")
    elif len(left_by(folder).rows["cycles"]) == 1:
        recover(root, folder, *_second(root))  # killed before it had begun
    found = whole.differences(left_by(folder))
    print(f"killed after {at:5.1f} s ({where}): {'; '.join(found) or 'the same'}", flush=True)
    return f"killed after {at:.1f} s: {'; '.join(found)}" if found else ""


def _second(root: Path) -> list[str]:
    return _cycle(root / "world-2", SMALL)


def _cycle(world: Path, settings: dict[str, Any]) -> list[str]:
    said = [f"--set={name}={value}" for name, value in settings.items()]
    return ["cycle", f"--docs={world / 'docs'}", f"--questions={world / 'questions.jsonl'}", "--limit=40", *said]


def _command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "pipelines.cli", *words, "--project", str(folder)]


def recover(root: Path, folder: Path, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        _command(folder, *words), cwd=root, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode not in (0, 3):
        raise RuntimeError(f"recover {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")


def left_by(folder: Path) -> Left:
    home = folder / ".recover"
    weights = {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in sorted(home.glob("checkpoints/*/*.safetensors"))
    }
    with sqlite3.connect(home / "recover.db") as record:
        assert record.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = {
            "cycles": _rows(record, "SELECT number, status, verdict FROM cycles"),
            "runs": _runs(record),
            "checkpoints": _rows(
                record, "SELECT id, cycle_id, run_id, parent_id, role, kind, hash, step FROM checkpoints"
            ),
            "promotions": _rows(record, "SELECT cycle_id, checkpoint_id, decision, why FROM promotions"),
            "points": [
                row
                for row in _rows(record, "SELECT run_id, step, name, value FROM points ORDER BY run_id, step, name")
                if not any(word in row[2] for word in OF_THE_MOMENT)
            ],
            "rollouts": _rows(record, "SELECT * FROM rollouts ORDER BY run_id, step, position"),
            "evaluations": _rows(
                record, "SELECT id, checkpoint_id, run_id, suite, task, data FROM evaluations ORDER BY id"
            ),
            "scores": _rows(record, "SELECT * FROM scores ORDER BY evaluation_id, metric"),
            "items": _rows(record, "SELECT * FROM items ORDER BY evaluation_id, position"),
            "events": sorted(_rows(record, "SELECT DISTINCT run_id, message FROM events")),
        }
    return Left(weights, rows)


def _rows(record: sqlite3.Connection, query: str) -> list[Any]:
    return record.execute(query).fetchall()


def _runs(record: sqlite3.Connection) -> list[Any]:
    """Without the job, whose name is drawn anew, and the project's own folder."""
    found = _rows(record, "SELECT id, cycle_id, kind, status, seed, steps, settings FROM runs ORDER BY id")
    dropped = {"job", "questions", "earlier"}
    return [
        (*row[:-1], {name: value for name, value in json.loads(row[-1]).items() if name not in dropped})
        for row in found
    ]


if __name__ == "__main__":
    main()
