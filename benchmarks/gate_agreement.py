"""Whether the gate decides as a measurement on 5,000 items does, over cycles on the built-in model.

    python -m benchmarks.gate_agreement --out agreement.jsonl [--cycles 20] [--items 2000] [--large 5000]
        [--first 0]

Each cycle has a world and a seed that were not used for tuning, and one of several settings: the defaults, and some
that lose too much; `--set` changes the others. The recovered checkpoint is then measured again, on `--large`
instruction prompts, all questions on the base's own world, as many sums (the gate, too, asks as many of one as of the
other) and all questions on the documents, and judged by the same limits at one look. The two agree if both promote or
neither does. Every cycle is one line of the file; a command that was interrupted goes on with the next one. `--first`
shares the cycles between processes: each writes a file, and the files put together are one. What all cycles need of
the clean model is measured once, beside the file.
"""

import json
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.utils.logging import disable_progress_bar

from benchmarks.scripts import add_rows, read_rows, script_parser
from db.tables import Checkpoint
from evals.results import Item, Metric, Result, main_result
from evals.splits import RETENTION_ITEMS
from evals.stats.paired_comparison import wilson
from evals.subject import Subject
from evals.suites.config import load_suites
from evals.suites.lab import measure_arithmetic, measure_instructions, measure_own_world
from evals.suites.suite_measurement import measure
from pipelines.cycle import Outcome, run_job
from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import OtherResults, Verdict, judge
from pipelines.model_loading import load_frozen
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project, weights_hash
from pipelines.request import Request
from pipelines.settings.schema import Gate
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, make_world

FIRST_WORLD = 9100  # no study and no tuning uses these
DOCUMENTS_ALONE = ("midtrain.mix.answers=0", "midtrain.mix.texts=0")
SETTINGS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "documents alone": (*DOCUMENTS_ALONE, "distill.warm_start=off"),
    "a small mix": ("midtrain.mix.answers=0.1", "midtrain.mix.texts=0.1"),
    "few steps": (*DOCUMENTS_ALONE, "distill.steps=8", "distill.probe_every=0"),
    "twice the learning rate": ("midtrain.learning_rate=4e-3",),
}

Passes = dict[str, dict[str, bool]]  # by task and item key


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = script_parser(__doc__)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--items", type=int, default=2000, help="at most, per task")
    parser.add_argument("--size", default="cycle", help="of a world: quick or cycle")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, required=True, help="the JSON Lines file of the cycles")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the number of the file's first cycle")
    parser.add_argument("--large", type=int, default=5000, help="items of the large measurement")
    args = parser.parse_args(arguments)
    disable_progress_bar()
    clean, missing = _clean_passes(args), range(len(read_rows(args.out)), args.cycles)
    add_rows(args.out, (run(args.first + number, clean, args) for number in missing), describe)
    rows = read_rows(args.out)
    print(summary(rows))
    return rows


def run(number: int, clean: Passes, args: Namespace) -> dict[str, Any]:
    """One cycle, its verdict, and the verdict on the large measurement."""
    start, (name, settings) = time.perf_counter(), list(SETTINGS.items())[number % len(SETTINGS)]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(measured_project(args), folder, dirs_exist_ok=True)
        project = Project.open(Path(folder), args.base)
        outcome = run_cycle(project, number, settings, args)
        large = judge_large(outcome, project, clean, args.large)
    j = outcome.verdict.behaviour
    return {
        "cycle": number,
        "settings": name,
        "gate": outcome.verdict.outcome,
        "large": large.outcome,
        "agree": outcome.verdict.passed == large.passed,
        "difference": j.value,
        "large_difference": large.behaviour.value,
        "asked": j.n,
        "of": j.of,
        "reason": outcome.verdict.reason,
        "large_reason": large.reason,
        "seconds": round(time.perf_counter() - start),
    }


def run_cycle(project: Project, number: int, settings: Sequence[str], args: Namespace) -> Outcome:
    world = project.root / "world"
    make_world(FIRST_WORLD + number, size=args.size).write(world)
    request = Request(
        "cycle",
        docs=world / "docs",
        questions=world / "questions.jsonl",
        limit=args.items,
        seed=number,
        assignments=("gate.block=200", *args.assignments, *settings),
    )
    outcome = run_job(project, prepare_job(project, request))
    assert isinstance(outcome, Outcome)
    return outcome


def measured_project(args: Namespace) -> Path:
    """A project whose record has the clean model's scores on the prompts and on what it knew before."""
    root: Path = args.out.with_suffix(".project")
    project = Project.open(root, args.base)
    plan = EvalPlan(limit=args.items, secondary_limit=RETENTION_ITEMS).with_public_ifeval_checked(
        load_suites(project.base)
    )
    measure_checkpoint(project, project.clean, plan, None)
    return root


def judge_large(outcome: Outcome, project: Project, clean: Passes, items: int) -> Verdict:
    questions = project.root / "world" / "questions.jsonl"
    lineage = project.reader.lineage(outcome.distilled.checkpoint.id)
    midtrained = next(checkpoint for checkpoint in lineage if checkpoint.role == "midtrained")
    knowledge = [_knowledge(project, model, questions) for model in (midtrained, outcome.distilled.checkpoint)]
    now = _passes(project.locate(outcome.distilled.checkpoint).path, items)
    run = project.reader.run(outcome.distilled.checkpoint.run_id or 0)
    assert run is not None
    gate = Gate(**run.settings["gate"]).model_copy(update={"block": 0})
    tasks = ("arithmetic", "own_world")
    retention = [[_result(task, "retention", side[task]) for task in tasks] for side in (clean, now)]
    behaviour = [_result("ifeval", "behaviour", side["ifeval"]) for side in (clean, now)]
    best = max(result.headline.value for result in knowledge)
    return judge(
        gate, behaviour[0], behaviour[1], OtherResults(knowledge[1], best, retention=(retention[0], retention[1]))
    )


def _knowledge(project: Project, checkpoint: Checkpoint, questions: Path) -> Result:
    result = main_result(
        measure(_subject(project.locate(checkpoint).path), "knowledge", questions=questions), "knowledge"
    )
    assert result is not None
    return result


def _clean_passes(args: Namespace) -> Passes:
    """Of the clean model, measured once."""
    weights = weights_hash(Path(args.base))[:8]
    file = args.out.with_suffix(f".clean-{weights}-{args.large}.json")
    if not file.is_file():
        file.write_text(json.dumps(_passes(args.base, args.large)))
    passes: Passes = json.loads(file.read_text())
    return passes


def _passes(path: str, items: int) -> Passes:
    subject = _subject(path)
    own_world = measure_own_world(subject, items)
    results = [measure_instructions(subject, items), own_world, measure_arithmetic(subject, len(own_world.items))]
    return {result.task: result.passed_by_key() for result in results}


def _subject(path: str) -> Subject:
    student = load_frozen(path)
    return Subject(TransformersEngine(student), student.chat)


def _result(task: str, suite: str, passes: Mapping[str, bool]) -> Result:
    items = [Item(key, "", "", passed) for key, passed in passes.items()]
    return Result(task, suite, "lab", {"match": Metric.from_passes(list(passes.values()))}, items, {}, 0.0)


def describe(row: Mapping[str, Any]) -> str:
    agree = "agree" if row["agree"] else "DISAGREE"
    return (
        f"cycle {row['cycle']}, {row['settings']}: gate {row['gate']} ({row['difference']:+.3f} on {row['asked']} of "
        f"{row['of']}), large {row['large']} ({row['large_difference']:+.3f}): {agree}, {row['seconds']} s"
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    agree, n = sum(row["agree"] for row in rows), len(rows)
    low, high = wilson(agree, n)
    asked = sum(row["asked"] for row in rows) / n
    promoted = sum(row["gate"] == "passed" for row in rows)
    opposite = sum({row["gate"], row["large"]} == {"passed", "failed"} for row in rows)
    fixed = sum(row["of"] for row in rows) / n
    return (
        f"{agree} of {n} agree ({agree / n:.2f}, 95 %: {low:.2f} to {high:.2f}), {opposite} decided the opposite; "
        f"{promoted} passed the gate; the recovered model was asked {asked:,.0f} prompts on average, {fixed:,.0f} with "
        "one look at all"
    )


if __name__ == "__main__":
    main()
