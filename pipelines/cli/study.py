"""The command `recover study`: run a declared experiment and say what it shows."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import CommandResult, command_result, main, options
from pipelines.log import log

if TYPE_CHECKING:
    from db.tables import Study
    from studies.study_run import StudyRun

SIZES = ("quick", "full", "real")


@main.command()
@click.argument("name", required=False)
@click.option("--list", "list_studies", is_flag=True, help="List the studies that come with recover.")
@click.option("--size", type=click.Choice(SIZES), default="quick", show_default=True, help="How large to run it.")
@click.option(
    "--base",
    metavar="REF",
    type=options.Text(),
    help="The clean model: a folder or hub id [default: the declaration's, else the project's]",
)
@click.option("--results", type=options.file_path, help="A folder to read finished arms from and to write them to.")
@click.option("--again", is_flag=True, help="Compute again what ships with recover and what --results has.")
@click.option("--to", type=options.file_path, help="The folder of the pictures and the page [default: the study's]")
@options.dry_run
@command_result
def study(
    project: Path | None,
    name: str | None,
    list_studies: bool,
    size: str,
    base: str | None,
    results: Path | None,
    again: bool,
    to: Path | None,
    dry_run: bool,
) -> CommandResult:
    """Check a claim about training on a model, and give a verdict.

    NAME is a study of `--list`, or a TOML file that declares one. Arms that differ in one setting start from the same
    damaged model, on several seeds. The verdict on each claim is supported, refuted or cannot tell. Only arms whose
    results do not ship with recover are computed. The same command goes on after an interruption; a second process
    beside it takes another seed.

    \b
    Examples: recover study --list
              recover study personalisation --size quick
              recover study personalisation --again
              recover study ./my-study.toml --size full --dry-run
    """
    if list_studies:
        return _list()
    if name is None:
        raise click.UsageError("Name a study of `recover study --list`, or a TOML file that declares one.")
    from pipelines.project.project import Project
    from studies.declaration import load_study
    from studies.study_run import StudyRun

    opened = Project.open(project)
    declared = load_study(name, size, base)
    if declared.base is None and not opened.base_is_default:
        declared = replace(declared, other_base=opened.base)
    run = StudyRun(declared, opened, results, again)
    log.info(f"{declared.declared.title} (declaration {declared.hash})")
    run.check()
    if dry_run:
        planned = {"study": declared.name, "size": size, "hash": declared.hash}
        return CommandResult(planned | {"declaration": declared.as_json()}, _declared_lines(run))
    try:
        row = run.run()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Run the same command again to go on.") from None
    files = _write_files(row, to or run.folder)
    data: dict[str, Any] = {
        "study": row.name,
        "size": row.size,
        "hash": row.hash,
        "claims": row.claims,
        "arms": row.arms,
    }
    return CommandResult(data | {"files": files}, [*result_lines(row), *(f"in {file}" for file in files)])


def _list() -> CommandResult:
    from studies.declaration import read_declaration, shipped

    declared = {name: read_declaration(name)[0] for name in shipped()}
    rows = [
        {"study": name, "title": declaration.title, "source": declaration.source, "sizes": list(declaration.sizes)}
        for name, declaration in declared.items()
    ]
    width = max(map(len, declared))
    lines = [f"{name:<{width}}  {declaration.title} ({declaration.source})" for name, declaration in declared.items()]
    return CommandResult({"studies": rows}, lines)


def _declared_lines(run: "StudyRun") -> list[str]:
    declared, size = run.study.declared, run.study.size
    lines = [f"hash {run.study.hash}, base {run.base}, seeds {', '.join(map(str, size.seeds))}, {size.items} items"]
    planned = len(size.seeds) * len(run.study.arms)
    lines.append(f"{len(run.files.entries())} of {planned} arms and seeds are done; the others would run")
    for name, arm in (("damaged", declared.start), *declared.arms.items()):
        if arm is not None:
            given = arm.model_dump(exclude_defaults=True, exclude={"about"})
            values = {name: value for name, value in given.items() if isinstance(value, str)}
            values |= run.study.settings_of(arm)
            lines.append(f"{name}: {', '.join(f'{setting} = {value}' for setting, value in values.items())}")
    return [*lines, *(f"claim: {claim.text} ({claim.of} against {claim.against})" for claim in declared.claims)]


def result_lines(row: "Study") -> list[str]:
    """Arms as means over the seeds, then the verdicts."""
    from pipelines.evaluation.printed_tables import scores_table

    if not row.arms:
        return ["No verdict yet: no arm is done. Run the same command again to go on."]
    means = {name: _means(entries) for name, entries in row.arms.items()}
    tables = scores_table(means)
    lines = [f"{tables[0]}{'steps':>8}{'PFLOPs':>9}{'seconds':>9}{'seeds':>7}", tables[1]]
    for line, entries in zip(tables[2:], row.arms.values(), strict=True):
        steps, pflops, seconds = (fmean(entry[key] for entry in entries) for key in ("steps", "pflops", "seconds"))
        lines.append(f"{line}{steps:>8.0f}{pflops:>9.3f}{seconds:>9.0f}{len(entries):>7}")
    if not row.finished_at:
        return [*lines, "No verdict yet: arms are missing. Run the same command again to go on."]
    return [*lines, "", *(line for claim in row.claims for line in _claim_lines(claim))]


def _claim_lines(claim: dict[str, Any]) -> list[str]:
    shown = "no number" if claim["estimate"] is None else f"{claim['estimate']:+.3f}"
    if claim.get("low") is not None:
        shown += f" [{claim['low']:+.3f}, {claim['high']:+.3f}]"
    shown += " over seeds alone" if claim.get("seeds_alone") else ""
    source = "" if claim.get("source") is None else f", the source has {claim['source']:+.3f}"
    needed = f"; it would take {claim['needed']}" if claim["verdict"] == "cannot tell" else ""
    needed = f"; {claim['needed']}" if claim["verdict"] == "no verdict" else needed
    details = f"{claim['metric']} of {claim['of']} less {claim['against']}: {shown}{source}{needed}"
    return [f"{claim['verdict'].capitalize()}: {claim['text']}", f"  {details}"]


def _means(entries: list[dict[str, Any]]) -> dict[str, float | None]:
    measures = entries[0]["scores"]
    values = {name: [entry["scores"][name] for entry in entries] for name in measures}
    return {
        name: fmean(found) if (found := [v for v in ones if v is not None]) else None for name, ones in values.items()
    }


def _write_files(row: "Study", folder: Path) -> list[str]:
    from dashboard.html_report import study_report
    from dashboard.pages.studies import arm_pictures, picture
    from pipelines.storage import write_atomic

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{row.name}-{row.size}"
    files = {f"{name}.svg": picture(row), f"{name}.html": study_report(row)}
    files |= {f"{name}-{part}.svg": drawn for part, drawn in arm_pictures(row).items()} if row.arms else {}
    for file, content in files.items():
        write_atomic(folder / file, [str(content)])
    return [str(folder / file) for file in files]
