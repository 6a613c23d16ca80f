"""A record with a plausible history: three cycles on a small model, the third of them rejected."""

import math
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine

from db.engine import open_database
from db.queries import Reader
from db.tables import Checkpoint, Decision, Role, RunInputs, RunKind
from db.tracker import Tracker
from evals.results import Metric

CLEAN = {"behaviour": 0.91, "retention": 0.95}
UNREAD = {"knowledge": 0.05}  # the clean model's score on documents it has not read


class CycleScores(NamedTuple):
    damaged: dict[str, float]
    recovered: dict[str, float]
    passed: bool


def _scores(behaviour: float, knowledge: float, retention: float) -> dict[str, float]:
    return {"behaviour": behaviour, "knowledge": knowledge, "retention": retention}


CYCLES = [
    CycleScores(_scores(0.48, 0.93, 0.61), _scores(0.90, 0.91, 0.88), passed=True),
    CycleScores(_scores(0.41, 0.95, 0.57), _scores(0.92, 0.94, 0.86), passed=True),
    CycleScores(_scores(0.22, 0.96, 0.40), _scores(0.79, 0.90, 0.71), passed=False),
]
TASKS = {
    "behaviour": ("ifeval", "prompt_level_strict_acc"),
    "knowledge": ("closed_book", "match"),
    "retention": ("arithmetic", "match"),
    "earlier": ("cycle:1", "match"),
}
STEPS = 40
REJECTED = "instruction following and what it knew before are short of their limits"


class Seeded(NamedTuple):
    project: int
    base: int
    cycles: list[int]
    midtrained: list[int]
    recovered: list[int]
    midtrain_runs: list[int]
    distill_runs: list[int]


def seed(tracker: Tracker, name: str = "handbook", cycles: int = 3, steps: int = STEPS) -> Seeded:
    """Write the whole history, as a pipeline would."""
    rng = random.Random(0)
    project = tracker.project(name, f"/home/ada/{name}", "lab")
    base = tracker.checkpoint(project, "base", "/opt/recover/lab/base", bytes=9_400_000, hash="c1ea" * 16)
    seeded = Seeded(project, base, [], [], [], [], [])
    eval_run = tracker.start_run(project, "eval", settings={"suite": "all"})
    measure(tracker, base, eval_run, CLEAN, rng)
    tracker.finish_run(eval_run, "done")
    current = base
    for index in range(cycles):
        damaged, recovered, passed = CYCLES[index % len(CYCLES)]
        corpus = tracker.corpus(f"/home/ada/{name}/2026-q{index + 1}", f"{index:064x}")
        tracker.documents(corpus, [{"name": f"{n:02}.md", "hash": f"{n:064x}", "bytes": 3000 + n} for n in range(12)])
        cycle = tracker.open_cycle(project, corpus)
        eval_run = tracker.start_run(project, "eval", cycle.id, {"suite": "knowledge"})
        measure(tracker, base, eval_run, UNREAD, rng)
        tracker.finish_run(eval_run, "done")
        mid = _train(tracker, seeded, cycle.id, "midtrain", current, damaged, steps, rng)
        rec = _train(tracker, seeded, cycle.id, "distill", mid, recovered, steps, rng)
        for checkpoint, run, value in ((mid, seeded.midtrain_runs[-1], 0.8), (rec, seeded.distill_runs[-1], 0.85)):
            for past in range(1, index + 1):
                again = result("earlier", value, random.Random(past)) | {"task": f"cycle:{past}"}
                tracker.evaluation(checkpoint, run, again)
        decision: Decision = "promoted" if passed else "rejected"
        reason = "every limit is met" if passed else REJECTED
        bounds = verdict(recovered, damaged, passed, reason)
        tracker.promote(project, cycle.id, rec, decision, "gate", reason, bounds)
        current = rec if passed else current
        seeded.cycles.append(cycle.id)
    tracker.flush()
    return seeded


def verdict(recovered: dict[str, float], damaged: dict[str, float], passed: bool, reason: str) -> dict[str, Any]:
    """A gate's verdict (docs/contracts.md)."""

    def judged(is_met: bool, value: float, bound: float, limit: float, before: float) -> dict[str, Any]:
        values = {"value": value, "bound": bound, "limit": limit, "before": before}
        return values | {"passed": is_met, "n": 40, "needed": None}

    before = {suite: round(40 * value) / 40 for suite, value in CLEAN.items()}
    change = (round(40 * recovered["behaviour"]) - round(40 * CLEAN["behaviour"])) / 40
    learned, limit = recovered["knowledge"], 0.92 * round(40 * damaged["knowledge"]) / 40
    lost = round(40 * CLEAN["retention"]) - round(40 * recovered["retention"])
    retention = judged(passed, -lost / 40, -lost / 40 - 0.02, -0.05, before["retention"])
    retention |= {"tasks": {"arithmetic": {"n": 40, "lost": lost, "gained": 0}}, "graded": []}
    return {
        "passed": passed,
        "outcome": "passed" if passed else "failed",
        "behaviour": judged(passed, change, change - 0.02, -0.03, before["behaviour"]),
        "knowledge": judged(True, learned, learned, limit, UNREAD["knowledge"]),
        "reason": reason,
        "retention": retention | {"setting": "gate.keep_retention"},
    }


def measure(tracker: Tracker, checkpoint: int, run: int | None, scores: dict[str, float], rng: random.Random) -> None:
    for suite, value in scores.items():
        tracker.evaluation(checkpoint, run, result(suite, value, rng))


def result(suite: str, value: float, rng: random.Random, n: int = 40) -> dict[str, Any]:
    passed = [index < round(value * n) for index in range(n)]
    rng.shuffle(passed)
    return result_of(suite, passed)


def result_of(suite: str, passed: list[bool]) -> dict[str, Any]:
    """An evaluation's result (docs/contracts.md); its metric is the share of passed items."""
    task, metric = TASKS[suite]
    kinds = {"behaviour": ["keywords:frequency", "punctuation:no_comma"]}.get(suite, [])
    return {
        "task": task,
        "suite": suite,
        "data": "lab",
        "seconds": 3.1,
        "settings": {"limit": len(passed)},
        "metrics": {
            metric: Metric.from_passes(passed).to_json(),
            **{f"strict/{kind}": Metric.from_passes(passed[i::2]).to_json() for i, kind in enumerate(kinds)},
        },
        "items": [
            {"key": str(index), "prompt": f"Question {index}?", "answer": "Yes." if ok else "no, it is not",
             "passed": ok, "verdicts": {"instructions": kinds[index % 2 :][:1], "strict": [ok][: len(kinds)]}}
            for index, ok in enumerate(passed)
        ],
    }  # fmt: skip


def rollout_tokens(step: int, rng: random.Random) -> list[Any]:
    """A rollout token by token: far from the teacher in its first tokens, and closer with every step."""
    tokens = ["HELLO", ",", " dear", " world", ".", "\n", "Good", " morning", "!"]
    divergence = math.exp(-step / 20)
    return [
        [token, divergence * rng.expovariate(1 + index), [[token, 0.6], [" there", 0.2]], [[token, 0.7], [" you", 0.1]]]
        for index, token in enumerate(tokens)
    ]


def _rollouts(step: int, rng: random.Random) -> list[dict[str, Any]]:
    rollouts = [rollout_tokens(step, rng) for _ in range(2)]
    return [
        {"prompt": "Say hello in capitals.", "text": "".join(token[0] for token in tokens), "tokens": tokens}
        for tokens in rollouts
    ]


def training_settings(rows: int) -> dict[str, Any]:
    """Every run of a training stores the settings of all stages."""
    return {
        "lora_rank": 0,
        "midtrain": {"learning_rate": 1e-4, "rows": rows},
        "distill": {"learning_rate": 1e-4, "recipe": "opd", "steps": 10},
        "gate": {"block": 200},
    }


def _train(
    tracker: Tracker, seeded: Seeded, cycle: int, kind: RunKind, parent: int, scores: dict[str, float], steps: int,
    rng: random.Random,
) -> int:  # fmt: skip
    inputs = RunInputs(given={"midtrain.rows": 16 + cycle, "distill.steps": 10})
    settings = training_settings(16 + cycle)
    run = tracker.start_run(seeded.project, kind, cycle, settings, seed=0, steps=steps, inputs=inputs)
    for step in range(steps):
        loss = (2.5 if kind == "midtrain" else 0.8) * math.exp(-3 * step / steps) + 0.05 * rng.random()
        metrics = {"loss": loss, "grad_norm": 0.5 + rng.random(), "learning_rate": 1e-4 * (1 - step / steps)}
        if kind == "distill":
            metrics |= {"kl": loss, "entropy": 1.2 - 0.3 * step / steps, "rollout_length": 40 + 10 * rng.random()}
        tracker.step(run, step, metrics)
        if kind == "distill" and step % 20 == 0:
            tracker.rollouts(run, step, _rollouts(step, rng))
    role: Role = "midtrained" if kind == "midtrain" else "recovered"
    checkpoint = tracker.checkpoint(
        seeded.project, role, f".recover/checkpoints/run-{run:04d}", parent=parent, run=run, cycle=cycle,
        hash=f"{run:064x}", bytes=9_400_000, step=steps,
    )  # fmt: skip
    measure(tracker, checkpoint, run, scores, rng)
    tracker.finish_run(run, "done")
    (seeded.midtrained if kind == "midtrain" else seeded.recovered).append(checkpoint)
    (seeded.midtrain_runs if kind == "midtrain" else seeded.distill_runs).append(run)
    return checkpoint


def seeded_database(path: Path, **options: Any) -> Seeded:
    """Write the same history to an SQLite file; for tests that only read."""
    engine = open_database(path)
    with Tracker(engine) as tracker:
        seeded = seed(tracker, **options)
    engine.dispose()
    return seeded


def copy_record(path: Path, engine: Engine) -> None:
    """Copy an SQLite file into an empty record."""
    assert not Reader(engine).projects()
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(str(engine.url.database))) as target:
        source.backup(target)


def store_verdict(tracker: Tracker, checkpoint: int, verdict: Mapping[str, Any]) -> None:
    """A verdict without a decision, as after an interruption."""
    with tracker._transaction("a verdict") as session:
        row = session.get_one(Checkpoint, checkpoint)
        row.verdict = dict(verdict)


def try_again(tracker: Tracker, seeded: Seeded, steps: int = 80) -> int:
    """A second attempt of the last cycle, that is not decided yet; returns its checkpoint."""
    cycle = seeded.cycles[-1]
    run = tracker.start_run(seeded.project, "distill", cycle, {"steps": steps}, steps=steps)
    for step in range(0, steps, 2):
        tracker.step(run, step, {"loss": 0.8 * math.exp(-3 * step / steps), "kl": 1 / (1 + step)})
    tracker.flush()
    second = tracker.checkpoint(
        seeded.project, "recovered", "run-9", parent=seeded.midtrained[-1], run=run, cycle=cycle, step=steps,
    )  # fmt: skip
    tracker.reopen_cycle(cycle)
    measure(tracker, second, run, {"behaviour": 0.9, "knowledge": 0.875}, random.Random(0))
    tracker.finish_run(run, "done")
    return second


@contextmanager
def under_way(tracker: Tracker, seeded: Seeded, steps: int = 12) -> Iterator[int]:
    """One more cycle, whose distillation runs as long as the context is open."""
    rng = random.Random(1)
    corpus = tracker.corpus("/home/ada/handbook/under-way", "f" * 64)
    cycle = tracker.open_cycle(seeded.project, corpus)
    mid = _train(tracker, seeded, cycle.id, "midtrain", seeded.recovered[1], CYCLES[0].damaged, steps, rng)
    run = tracker.start_run(seeded.project, "distill", cycle.id, {"from": mid}, steps=steps * 4)
    for step in range(steps):
        tracker.step(run, step, {"loss": 1 / (1 + step), "kl": 1 / (1 + step), "entropy": 1.2})
    tracker.rollouts(run, steps - 1, _rollouts(steps - 1, rng))
    tracker.flush()
    yield run
    tracker.finish_run(run, "interrupted")


CLAIMS: list[dict[str, Any]] = [
    {"text": "Distillation raises instruction following", "source": 0.114, "verdict": "supported",
     "estimate": 0.31, "low": 0.24, "high": 0.38, "seeds": [0.29, 0.31, 0.33], "needed": ""},
    {"text": "It is better than interpolation", "control": "interpolation alone", "verdict": "refuted",
     "estimate": -0.01, "low": -0.03, "high": 0.01, "seeds": [-0.02, 0.0, -0.01], "needed": ""},
    {"text": "It is better than off-policy answers", "verdict": "cannot tell",
     "estimate": 0.01, "low": -0.05, "high": 0.07, "seeds": [-0.02, 0.0, 0.05], "needed": "14 seeds"},
]  # fmt: skip
COMMON = {"metric": "behaviour", "of": "opd", "against": "damaged", "direction": "above", "margin": 0.02}


def declaration(title: str = "Distillation restores instruction following") -> dict[str, Any]:
    claims = [COMMON | {"text": claim["text"]} for claim in CLAIMS]
    arms = {"opd": {"settings": {"distill": {"beta": 0.5}}}}
    named = {"title": title, "source": "A paper, 2025", "figure": "71.4 → 82.8"}
    return named | {"claims": claims, "arms": arms, "base": "lab"}


def arm(name: str, seed: int, behaviour: float) -> dict[str, Any]:
    scores = {"behaviour": behaviour, "knowledge": 0.94, "earlier": None, "retention": 0.9}
    return {"arm": name, "seed": seed, "scores": scores, "steps": 8, "pflops": 0.0021, "seconds": 41.3,
            "commit": "0.1.0+g1a2b3c4"}  # fmt: skip


def add_study(tracker: Tracker, project: int, title: str = "Distillation restores instruction following") -> int:
    study = tracker.study(project, "personalisation", "quick", "9f" * 8, declaration(title))
    arms = [arm(name, seed, score) for seed in (1, 2, 3) for name, score in (("damaged", 0.56), ("opd", 0.87))]
    claims = [COMMON | {"n": 600} | claim for claim in CLAIMS]
    tracker.store_study(study, {"arms": arms, "planned": 6, "claims": claims}, done=True)
    return study
