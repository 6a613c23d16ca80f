"""Kill `recover cycle` at random times, resume it, and compare the result with an uninterrupted run.

    python -m tests.interrupted [--kills 20] [--seed 0] [--processes 1]

Each trial copies a project with one finished cycle, starts another small one on the built-in model, sends SIGKILL after
a random share of the uninterrupted run's duration, and runs `recover resume`. The weights must be the same bits,
and the record must have the same rows except for times. With several processes, one of them is killed, and the command
must end by itself.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from recovery.lab import make_world
from tests.e2e.command_line import forked, run_forked

SMALL = {
    "midtrain.max_steps": 4,
    "midtrain.rows": 4,
    "midtrain.window": 128,
    "midtrain.learning_rate": 3e-3,  # enough is lost that there is something to distil
    "midtrain.mix.answers": 0.3,
    "midtrain.mix.texts": 0.2,
    "midtrain.generated_texts": 4,
    "distill.steps": 5,
    "distill.warm_start": "off",
    "distill.rows": 4,
    "distill.max_new_tokens": 24,
    "distill.prompts": 8,
    "distill.probe_every": 3,
    "distill.probe_items": 4,
    "gate.behaviour_margin": 0.2,
    "gate.block": 4,
    "gate.keep_retention": 0,
    "save_minutes": 0,
}
FIRST = {
    "midtrain.max_steps": 2,
    "distill.steps": 1,
    "gate.behaviour_margin": 0.99,
    "gate.keep_knowledge": 0.01,
    "gate.keep_retention": 0,
}
EARLIER = 0.8  # when a trial ends before its kill, the next try kills after this share of the time
# Parts of names of metrics that differ between runs.
NOT_REPRODUCIBLE = ("seconds", "per_second", "memory", "_bytes", "progress/")
OTHERS = ("job", "questions", "earlier_questions")  # what differs of a run's settings and inputs


@dataclass
class Results:
    """The weights and rows of a project, which must be equal after the same cycles."""

    weights: dict[str, str]
    rows: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def promoted(self) -> list[Any]:
        return [row for row in self.rows["promotions"] if "promoted" in row]

    def differences(self, other: "Results") -> list[str]:
        lines = [] if self.weights == other.weights else [f"weights differ: {self.weights} {other.weights}"]
        for table, rows in self.rows.items():
            others = other.rows[table]
            if rows != others:
                examples = [row for row in rows if row not in others][:2] + [row for row in others if row not in rows][
                    :2
                ]
                lines.append(f"{table}: {len(rows)} rows and {len(others)}, such as {examples}")
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    failures = interrupt(args.kills, args.seed, args.processes)
    print(f"{args.kills} kills, {args.kills - len(failures)} of them without a difference")
    sys.exit(bool(failures))


def interrupt(kills: int, seed: int = 0, processes: int = 1, earlier_cycle: bool = True) -> list[str]:
    """Kill and resume that many cycles; one line for each that ended differently from the uninterrupted one.

    Without an earlier cycle there are no earlier documents, which saves a cycle."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for number in (1, 2):
            make_world(4240 + number, size="quick").write(root / f"world-{number}")
        (root / "before").mkdir()
        if earlier_cycle:
            recover(root, root / "before", *_cycle(root / "world-1", SMALL | FIRST))
            assert len(read_results(root / "before").promoted) == 1, "the first cycle was not promoted"
        shutil.copytree(root / "before", root / "uninterrupted")
        start_time = time.perf_counter()
        recover(root, root / "uninterrupted", *_killed(root, processes))
        duration = time.perf_counter() - start_time
        expected = read_results(root / "uninterrupted")
        steps = {role: step for *_, role, _, _, step, _ in expected.rows["checkpoints"]}
        assert min(steps["midtrained"], steps["recovered"]) > 0, "nothing was trained that a kill could interrupt"
        rng = random.Random(seed)
        times = [rng.uniform(0.02, 0.98) * duration for _ in range(kills)]
        failures = [_trial(root, root / f"killed-{i}", after, expected, processes) for i, after in enumerate(times)]
        return [failure for failure in failures if failure]


def _trial(root: Path, folder: Path, after: float, expected: Results, processes: int) -> str:
    shutil.copytree(root / "before", folder)
    with forked(root, _command(folder, *_killed(root, processes)), _environment()) as (process, _, stderr):
        process.join(after)
        finished, parts = process.exitcode is not None, []
        if not finished:
            main = psutil.Process(process.pid)
            parts = main.children() if processes > 1 else []
            (random.Random(after).choice(parts) if parts else main).send_signal(signal.SIGKILL)
            process.join()
            finished = bool(parts) and process.exitcode in (0, 3)  # the first process had done everything
        output = stderr.read_text(encoding="utf-8")
        if parts and not finished:
            assert process.exitcode == 1, output
            assert output.count("Error: ") == 1, output
            assert "was lost (SIGKILL), so the others were ended" in output
    if finished:
        shutil.rmtree(folder)
        return _trial(root, folder, EARLIER * after, expected, processes)
    last_line = (output.strip().splitlines() or ["before any output"])[-1].strip()
    if any((folder / ".recover" / "jobs").glob("*.json")):
        recover(root, folder, "resume")
    elif _cycles(folder) == _cycles(root / "before"):
        recover(root, folder, *_killed(root, processes))  # killed before the cycle was recorded
    differences = "; ".join(expected.differences(read_results(folder)))
    print(f"killed after {after:5.1f} s ({last_line}): {differences or 'the same'}", flush=True)
    return f"killed after {after:.1f} s: {differences}" if differences else ""


def _cycles(folder: Path) -> int:
    recorded = (folder / ".recover" / "recover.db").exists()
    return len(read_results(folder).rows["cycles"]) if recorded else 0


def _killed(root: Path, processes: int) -> list[str]:
    return [*_cycle(root / "world-2", SMALL), *([f"--processes={processes}"] if processes > 1 else [])]


def _cycle(world: Path, settings: dict[str, Any]) -> list[str]:
    flags = [f"--set={name}={value}" for name, value in settings.items()]
    return ["cycle", f"--docs={world / 'docs'}", f"--questions={world / 'questions.jsonl'}", "--limit=6", *flags]


def _command(folder: Path, *arguments: str) -> list[str]:
    return [*arguments, "--project", str(folder)]


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def recover(root: Path, folder: Path, *arguments: str) -> None:
    folder.mkdir(exist_ok=True)
    exit_code, _, stderr = run_forked(root, _command(folder, *arguments), _environment())
    if exit_code not in (0, 3):
        raise RuntimeError(f"recover {arguments[0]} ended with {exit_code}: {stderr[-2000:]}")


def read_results(folder: Path) -> Results:
    home = folder / ".recover"
    weights = {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in sorted(home.glob("checkpoints/*/*.safetensors"))
    }
    with closing(sqlite3.connect(home / "recover.db")) as record:  # files of an open record may not be copied
        assert record.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = {
            "cycles": _rows(record, "SELECT number, status FROM cycles"),
            "runs": _runs(record),
            "checkpoints": _rows(
                record, "SELECT id, cycle_id, run_id, parent_id, role, kind, hash, step, verdict FROM checkpoints"
            ),
            "promotions": _rows(record, "SELECT cycle_id, checkpoint_id, decision, why FROM promotions"),
            "points": [
                row
                for row in _rows(record, "SELECT run_id, step, name, value FROM points ORDER BY run_id, step, name")
                if not any(part in row[2] for part in NOT_REPRODUCIBLE)
            ],
            "rollouts": _rows(record, "SELECT * FROM rollouts ORDER BY run_id, step, position"),
            "evaluations": _rows(
                record, "SELECT id, checkpoint_id, run_id, suite, task, data FROM evaluations ORDER BY id"
            ),
            "scores": _rows(record, "SELECT * FROM scores ORDER BY evaluation_id, metric"),
            "items": _rows(record, "SELECT * FROM items ORDER BY evaluation_id, position"),
        }
    return Results(weights, rows)


def _rows(record: sqlite3.Connection, query: str) -> list[Any]:
    return record.execute(query).fetchall()


def _runs(record: sqlite3.Connection) -> list[Any]:
    """The runs without the job's random name and the paths in the project's folder."""
    rows = _rows(
        record, "SELECT id, cycle_id, kind, status, seed, steps, stopped, settings, inputs FROM runs ORDER BY id"
    )
    return [(*row[:-2], *map(_comparable, row[-2:])) for row in rows]


def _comparable(column: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(column).items() if name not in OTHERS}


if __name__ == "__main__":
    main()
