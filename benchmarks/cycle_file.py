"""What a project's last cycle measured, or else its last repair, as one small file to commit and to recompute from.

    python -m benchmarks.cycle_file ./recover-real studies/results/cycles/NAME.json.gz --command "recover cycle …"

For every model: the scores with their intervals, and how each item ended. Besides, the settings, the verdict, the runs
with their seconds and the curves of their training, the code and the machine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scripts import script_parser
from db.headline_scores import PROBE
from db.tables import Checkpoint, Run
from evals.results import Result
from pipelines.evaluation.checkpoint_measurement import as_result
from pipelines.project.project import Project
from studies.entries import encode, here, outcomes, run_entry

Task = tuple[str, str]  # suite and task
Results = dict[Task, Result]


def main(arguments: list[str] | None = None) -> None:
    parser = script_parser(__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--command", required=True, help="What was run, so that others can repeat it.")
    parser.add_argument("--commit", help="What was run, where the installed version does not say it.")
    args = parser.parse_args(arguments)
    project = Project.open(args.project)
    description = describe_cycle(project) if project.last_cycle else describe_repair(project)
    args.file.write_bytes(
        encode({"command": args.command, **here(), **description} | ({"commit": args.commit} if args.commit else {}))
    )
    print(f"{args.file}: {args.file.stat().st_size:,} bytes")


def describe_cycle(project: Project) -> dict[str, Any]:
    cycle = project.last_cycle
    assert cycle is not None
    recovered = cycle.recovered.checkpoint
    checkpoints = {"base": project.clean, "midtrained": cycle.damaged.checkpoint, "recovered": recovered}
    runs = [run for run in project.reader.runs(project.id) if run.cycle == cycle.number]
    trained = next(run for run in runs if run.kind == "midtrain")
    return {
        **_of_run(trained),
        "verdict": recovered.verdict if recovered else None,
        "runs": [run_entry(project.reader, run) for run in runs],
        "models": {
            name: {"measured": results}
            for name, results in measured(project, {name: c for name, c in checkpoints.items() if c}).items()
        },
    }


def describe_repair(project: Project) -> dict[str, Any]:
    """The base, the last fine-tune, and what each move made of it, with the move's own settings."""
    checkpoints, runs = project.reader.checkpoints(project.id), project.reader.runs(project.id)
    fine_tune = [checkpoint.id for checkpoint in checkpoints if checkpoint.role == "external"][-1]
    made_of_it = [c for c in checkpoints if fine_tune in [one.id for one in project.reader.lineage(c.id)]]
    models: dict[str, dict[str, Any]] = {}
    used: set[int | None] = set()
    named = {Path(checkpoint.reference).name: checkpoint for checkpoint in [project.clean, *made_of_it]}
    results = measured(project, named)
    for name, checkpoint in named.items():
        made_by = next((_of_run(run) for run in runs if run.id == checkpoint.run_id), {})
        models[name] = made_by | {"verdict": checkpoint.verdict, "measured": results[name]}
        used |= {checkpoint.run_id, *(evaluation.run_id for evaluation in project.reader.evaluations(checkpoint.id))}
    return {"runs": [run_entry(project.reader, run) for run in reversed(runs) if run.id in used], "models": models}


def _of_run(run: Run) -> dict[str, Any]:
    return {"commit": run.code_version, "settings": run.settings}


def measured(project: Project, models: Mapping[str, Checkpoint]) -> dict[str, dict[str, Any]]:
    """Of each model and task the evaluation with the most items; of the first, the base, which may have been measured
    for other commands, too, the one with the most items of the other models."""
    (first, base), *trained = models.items()
    results = {name: _largest(project, checkpoint) for name, checkpoint in trained}
    keys_of_others: dict[Task, set[str]] = {}
    for task, result in (pair for of_model in results.values() for pair in of_model.items()):
        keys_of_others.setdefault(task, set()).update(item.key for item in result.items)
    results = {first: _largest(project, base, keys_of_others)} | results
    return {name: _by_suite(of_model) for name, of_model in results.items()}


def _largest(
    project: Project, checkpoint: Checkpoint, keys_of_others: Mapping[Task, set[str]] | None = None
) -> Results:
    largest: dict[Task, tuple[int, Result]] = {}
    for evaluation in project.reader.evaluations(checkpoint.id):
        result, task = as_result(project, evaluation), (evaluation.suite, evaluation.task)
        size = len(result.items)
        if keys_of_others:
            size = sum(item.key in keys_of_others.get(task, ()) for item in result.items)
            if task not in keys_of_others or (result.items and not size):
                continue
        if result.settings.get("part") != PROBE and (task not in largest or size >= largest[task][0]):
            largest[task] = size, result
    return {task: result for task, (_, result) in largest.items()}


def _by_suite(results: Results) -> dict[str, Any]:
    suites = dict.fromkeys(suite for suite, _ in results)
    return {suite: _as_json([results[task] for task in results if task[0] == suite]) for suite in suites}


def _as_json(results: Sequence[Result]) -> dict[str, Any]:
    scores = {
        result.task: {
            name: {"value": metric.value, "n": metric.n, "ci95": list(metric.ci95)}
            for name, metric in result.metrics.items()
        }
        for result in results
    }
    return {"data": sorted({result.data for result in results}), "scores": scores, "outcomes": outcomes(results)}


if __name__ == "__main__":
    main()
