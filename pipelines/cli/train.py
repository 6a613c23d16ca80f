"""Commands that train (midtrain, distill, cycle, resume, demo), say beforehand what memory that takes (plan), or judge
and repair a fine-tune (check, repair)."""

import math
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import (
    INCONCLUSIVE,
    REJECTED,
    SUCCESS,
    CommandResult,
    check_writable,
    command_result,
    in_project,
    main,
    options,
    write_page,
)
from pipelines.cli.processes import start_processes
from pipelines.log import log
from pipelines.request import Request

if TYPE_CHECKING:
    from pipelines.cycle import Outcome
    from pipelines.job import Job
    from pipelines.project.project import Project
    from pipelines.training.training_run import RunResult
    from pipelines.training_memory import GpuPlan


def _refuse_nan(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which is in every range to click
        raise click.BadParameter("nan is not a number of gigabytes.")
    return value


@main.command()
@options.of_request("base", "processes", "assignments")
@click.option(
    "--gpu-memory",
    type=click.FloatRange(0, 10_000, min_open=True),
    default=80,
    show_default=True,
    callback=_refuse_nan,
    help="Gigabytes of each GPU.",
)
@command_result
def plan(
    project: Path | None, base: str | None, processes: int | None, assignments: tuple[str, ...], gpu_memory: float
) -> CommandResult:
    """Say what memory a cycle takes of each GPU.

    It needs no GPU and no weights; the config of the base is enough. What does not fit is refused, and the message says
    what would.

    \b
    Examples: recover plan --base Qwen/Qwen3-8B
              recover plan --base Qwen/Qwen3-8B --set lora_rank=0 --processes 8
    """
    from db import name_of_base
    from pipelines.project.locations import find_root, local_base, resolve_base
    from pipelines.project.project import Project
    from pipelines.settings.resolve import resolve_settings
    from pipelines.settings.sources import read_toml
    from pipelines.training.recipe_inputs import check_processes
    from pipelines.training_memory import FULL, GpuPlan, check_window
    from recovery.models.students import parameters_of, refuse_quantised

    root = find_root(project)
    # Nothing is trained, so the base may be another than the project's.
    # A base that has to be fetched or dequantised for this is deleted again.
    home = Path(click.get_current_context().with_resource(TemporaryDirectory()))
    planned_base = local_base(resolve_base(root, base).model, home, None) if base else Project.open(root).base
    refuse_quantised(planned_base)
    # Whether this machine computes in bfloat16 says nothing about a rented one.
    default = {} if "bf16" in read_toml(root) or "RECOVER_BF16" in os.environ else {"bf16": True}
    settings = resolve_settings(parameters_of(planned_base), root, default, assignments).settings
    check_window(planned_base, settings)
    check_processes(processes or 1, settings)
    planned = GpuPlan(planned_base, base or name_of_base(planned_base), settings, processes or 1, 1e9 * gpu_memory)
    planned.check()
    data = {
        "base": planned.name,
        "parameters": planned.shape.parameters,
        "trained_parameters": planned.shape.adapter(settings.lora_rank) or planned.shape.parameters,
        "processes": planned.processes,
        "gpu_memory": round(planned.gpu_memory),
        "engine": planned.engine,
        "memory": {phase: {part: round(n) for part, n in parts.items()} for phase, parts in planned.memory.items()},
        "peak": round(planned.peak),
        "host_memory": FULL * planned.shape.parameters,  # every model is read there first
    }
    return CommandResult(data, _memory_lines(planned, data))


def _memory_lines(plan: "GpuPlan", data: dict[str, Any]) -> list[str]:
    from pipelines.training_memory import gigabytes, parameter_count, sums

    rank, memory = plan.settings.lora_rank, plan.memory
    trained = f"an adapter of rank {rank}, {parameter_count(data['trained_parameters'])}" if rank else "all of them"
    rows = {part: [phase.get(part, 0.0) for phase in memory.values()] for phase in memory.values() for part in phase}
    rows["together"] = list(sums(memory).values())
    lines = [
        f"Base: {plan.name}, {parameter_count(data['parameters'])}; trained: {trained}",
        f"GPUs: {plan.processes} of {gigabytes(plan.gpu_memory)}; {plan.engine} generates text",
        "",
        "{:<29} {:>14} {:>10} {:>14}".format("GB of each GPU", *memory),
    ]
    for part, sizes in rows.items():
        if any(sizes):
            cells = (f"{size / 1e9:.1f}" if size else "" for size in sizes)
            lines.append("  {:<27} {:>14} {:>10} {:>14}".format(part, *cells).rstrip())
    host = gigabytes(data["host_memory"])
    return [*lines, f"While it loads a model, each process takes {host} of its machine's memory."]


@main.command()
@options.takes_request("midtrain")
@options.dry_run
@command_result
def midtrain(project: Path | None, request: Request, dry_run: bool) -> CommandResult:
    """Train the current model on documents or conversations.

    With a mix it also reads what the clean base wrote, so that it forgets less; `recover distill` restores the rest.
    With the recipe in-context the model reads no documents: the clean base, which reads a passage, teaches it to answer
    without.

    \b
    Examples: recover midtrain --docs ./corpus
              recover midtrain --docs ./corpus --recipe in-context
              recover midtrain --conversations ./training.jsonl
    """
    return _run(project, request, dry_run)


@main.command()
@options.takes_request("distill")
@options.dry_run
@command_result
def distill(project: Path | None, request: Request, dry_run: bool) -> CommandResult:
    """Restore instruction following from a teacher, then judge.

    The student learns the teacher's token distribution on its own rollouts, or by default (100 million to a billion
    parameters) on the teacher's answers. Then the gate promotes or rejects it. After a rejection, the same command is
    another attempt of the same cycle.

    \b
    Examples: recover distill --teacher base
              recover distill --teacher base --set distill.steps=120
              recover distill --student ./my-finetune --teacher Qwen/Qwen3-8B
    """
    return _run(project, request, dry_run)


@main.command()
@options.takes_request("cycle")
@options.dry_run
@command_result
def cycle(project: Path | None, request: Request, dry_run: bool) -> CommandResult:
    """Mid-train, distil, measure, and promote or reject the result.

    \b
    Example: recover cycle --docs ./corpus --questions ./questions.jsonl
    """
    return _run(project, request, dry_run)


@main.command()
@click.argument("run", type=click.IntRange(1, 999_999_999), required=False)
@click.option(
    "--processes", type=click.IntRange(min=1), help="Train with this many processes [default: as many as it had]"
)
@command_result
@in_project
def resume(project: "Project", run: int | None, processes: int | None) -> CommandResult:
    """Continue an interrupted command.

    Continues the latest one, or the one that RUN belongs to, with as many processes as it had.

    \b
    Example: recover resume
    """
    from pipelines.prepare_job import check_same_models
    from pipelines.project.lock import command_lock
    from pipelines.training.recipe_inputs import check_processes

    start_processes(processes or _interrupted_job(project, run).processes)
    with command_lock(project):
        job = _interrupted_job(project, run)
        check_same_models(project, job)
        check_processes(1, job.settings, job.teacher, job.command)
        log.info(f"Resuming `recover {job.command}`")
        return _run_job(project, job)


def _interrupted_job(project: "Project", run: int | None) -> "Job":
    from pipelines.job import unfinished_jobs
    from pipelines.project.runs import overtaken
    from recovery.errors import RecoverError

    jobs = unfinished = unfinished_jobs(project.home)
    if run is not None:
        job_id = (project.run(run).inputs.job or "").partition("-")[0]  # a repair has several, all with its id
        jobs = [job for job in jobs if job.id == job_id]
    if not jobs:
        problem = "No command was interrupted here." if run is None else f"Run {run} has nothing left to do."
        raise RecoverError(f"{problem} List the runs with `recover runs`.")
    if reason := overtaken(project, jobs[-1].key, jobs[-1] is unfinished[-1]):
        raise RecoverError(reason)
    return jobs[-1]


def warn_of_interrupted(project: "Project", job: "Job") -> None:
    from pipelines.project.lock import interrupted_jobs

    if others := interrupted_jobs(project.home, job.id):
        log.warning(
            f"`recover {others[-1].command}` was interrupted: `recover resume` continues it, but no longer once "
            "another checkpoint was promoted"
        )


@main.command()
@options.of_request("base")
@click.option("--quick", is_flag=True, help="Show the damage only.")
@options.of_request("seed")
@partial(command_result, project=options.project_in("./recover-demo"))
def demo(project: Path | None, base: str | None, quick: bool, seed: int) -> CommandResult:
    """Run the whole process on the built-in model, or on another base.

    Trains on the documents of a made-up world alone and shows the damage. Then a cycle with the default mix starts from
    the clean model, and a table shows instruction following, new knowledge, and what the model knew before. The same
    command goes on after an interruption.

    \b
    Example: recover demo --quick
    Example: recover demo --base HuggingFaceTB/SmolLM2-135M-Instruct
    """
    from pipelines.demo import run_demo

    try:
        data, lines = run_demo(project or Path("recover-demo"), base=base, quick=quick, seed=seed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Run the same command again to go on.") from None
    return CommandResult(data, lines)


def _run(folder: Path | None, request: Request, dry_run: bool) -> CommandResult:
    from pipelines.documents.corpus import refuse_missing

    if request.docs:
        refuse_missing(request.docs)  # before torch is imported, which takes seconds
    start_processes(1 if dry_run else request.processes or 1)
    from pipelines.prepare_job import describe_job, prepare_job
    from pipelines.project.lock import command_lock
    from pipelines.project.project import Project
    from pipelines.settings.resolve import as_text, flatten

    is_new = not Project.exists(folder)
    with TemporaryDirectory() as temporary:
        home = Path(temporary) if is_new and dry_run else None
        project = Project.open(folder, request.base, home)
        if is_new and (base := _base_from_teacher(project, request)):
            log.info(f"Base: {base}, the teacher, since no other is named; the student is compared with it")
            request = replace(request, base=base)
            project = Project.open(folder, base, home)
        if dry_run:
            data = describe_job(project, request)
            lines = [f"{name}: {value}" for name, value in data.items() if isinstance(value, str | int)]
            if dials := data["dials"]:
                lines += [f"dials of the recipe {data['settings']['distill']['recipe']}:", *map(_dial, dials.items())]
            settings = flatten(data["settings"]).items()
            lines += ["settings:", *(f"  {name} = {as_text(value)}" for name, value in settings if value is not None)]
            return CommandResult(data, lines)
    with command_lock(project):
        job = prepare_job(project, request)
        warn_of_interrupted(project, job)
        return _run_job(project, job)


def _dial(named: tuple[str, Mapping[str, Any]]) -> str:
    from pipelines.settings.resolve import as_text

    name, dial = named
    default = f" (default {as_text(dial['default'])})" * (dial["value"] != dial["default"])
    return f"  {name} = {as_text(dial['value'])}{default}"


def _base_from_teacher(project: "Project", request: Request) -> str | None:
    """In a new project without a base, a teacher from outside is the clean model."""
    from pipelines.project.project import is_reference
    from pipelines.teacher_choice import Model, parse_teacher

    match parse_teacher(request.teacher):
        case Model(model) if project.base_is_default and not is_reference(model):
            return model
    return None


def _run_job(project: "Project", job: "Job") -> CommandResult:
    """From the beginning, or from wherever it was interrupted."""
    from pipelines.cycle import run_job
    from pipelines.repair import run_repair
    from pipelines.training.training_run import RunResult

    if job.command == "repair":
        repaired = run_repair(project, job)
        return CommandResult(repaired.as_json(), repaired.lines(), SUCCESS if repaired.is_repaired else REJECTED)
    result = run_job(project, job)
    return _midtrain_result(result) if isinstance(result, RunResult) else _cycle_result(result)


def _midtrain_result(result: "RunResult") -> CommandResult:
    checkpoint = result.checkpoint
    data = {
        "run": result.run,
        "cycle": checkpoint.cycle,
        "checkpoint": checkpoint.reference,
        "path": checkpoint.path,
        "steps": result.steps,
        "tokens": result.tokens,
        "seconds": round(result.seconds, 1),
    }
    return CommandResult(
        data, [f"{checkpoint.reference} is in {checkpoint.path}", "next: recover distill --teacher base"]
    )


def _cycle_result(outcome: "Outcome") -> CommandResult:
    from pipelines.evaluation.printed_tables import scores_table, verdict_table

    data = outcome.as_json()
    start = "damaged" if outcome.cycle else "before"  # nothing says that a model from outside is damaged
    lines = [
        outcome.verdict.headline(outcome.decision),
        *verdict_table(data["verdict"]),
        "",
        *scores_table({"clean": data["clean"], start: data["damaged"], "recovered": data["recovered"]}),
        f"{data['checkpoint']} is in {data['path']}",
        *([str(outcome.next_attempt)] if outcome.next_attempt else []),
    ]
    return CommandResult(data, lines, SUCCESS if outcome.promoted else REJECTED)


EXIT_CODES = {"passed": SUCCESS, "failed": REJECTED, "inconclusive": INCONCLUSIVE}


@main.command()
@click.argument("ref", metavar="MODEL")
@options.takes_request("check")
@click.option("--to", type=options.FilePath(dir_okay=False), help="Also write the result as one HTML file.")
@command_result
def check(project: Path | None, ref: str, request: Request, to: Path | None) -> CommandResult:
    """Check what a fine-tune has forgotten of its base.

    Measures instruction following, what the base knew before, and with --questions or --docs also what was learned.
    Exits with 3 if more was forgotten than the gate allows or its turns do not end as they should, with 0 if certainly
    not, with 4 if there are too few items to tell.

    \b
    Example: recover check ./my-finetune --base Qwen/Qwen3-8B --to check.html
    """
    from pipelines.check import check_model
    from pipelines.prepare_repair import prepare_repair
    from pipelines.project.lock import command_lock, published_progress
    from pipelines.project.project import Project

    opened = Project.open(project, request.base)
    request = replace(request, student=ref)
    if to is not None:
        check_writable(to, "--to")
    with command_lock(opened), published_progress(opened):
        result = check_model(opened, prepare_repair(opened, request, trains=False), ref)
    data = result.as_json()
    if to is not None:
        from dashboard.html_report import check_page

        write_page(to, check_page(data))
    lines = result.lines()
    exit_code = REJECTED if result.turn_ends.fault else EXIT_CODES[data["outcome"]]
    if exit_code == REJECTED:
        lines.append(f"next: recover repair {shlex.join([ref, *guards(request)])}")
    return CommandResult(data | {"page": str(to) if to else None}, lines, exit_code)


def guards(request: Request) -> Iterator[str]:
    """What the check was given that a repair takes, too, but a limit: by default it asks as many as it needs."""
    values = {
        "--docs": request.docs,
        "--questions": request.questions,
        "--ifeval-data": request.ifeval_data,
        "--engine": request.engine,
    }
    for flag, value in values.items():
        yield from (flag, str(value)) if value is not None else ()
    for assignment in request.assignments:
        yield from ("--set", assignment)


@main.command()
@click.argument("ref", metavar="MODEL")
@options.takes_request("repair")
@command_result
def repair(project: Path | None, ref: str, request: Request) -> CommandResult:
    """Repair a fine-tune by trying moves, the cheapest first.

    Tries interpolation towards the base, training on the base's answers and texts, the average of what that made with
    the base, and on-policy distillation, and stops at the first that passes. Where the fine-tune has unlearned to end
    its turns, a few steps teach it that first. --questions or --docs guard what the fine-tune learned.

    \b
    Example: recover repair ./my-finetune --base Qwen/Qwen3-8B --docs ./training.jsonl
    """
    from pipelines.prepare_repair import prepare_repair
    from pipelines.project.lock import command_lock
    from pipelines.project.project import Project

    start_processes(request.processes or 1)
    opened = Project.open(project, request.base)
    request = replace(request, student=ref)
    with command_lock(opened):
        job = prepare_repair(opened, request).save(opened.home)
        warn_of_interrupted(opened, job)
        return _run_job(opened, job)
