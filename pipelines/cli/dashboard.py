"""The commands that show the record: dashboard, report."""

from contextlib import suppress
from pathlib import Path

import click

from pipelines.cli import ERROR, Answer, answers, fail, main


@main.command()
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), help="[default: the first free one from 7860]")
@click.option(
    "--auth",
    metavar="USER:PASSWORD",
    envvar="RECOVER_AUTH",
    show_envvar=True,
    help="Needed on any address but loopback.",
)
@click.option("--unsafe-no-auth", is_flag=True, help="Let anybody in who can reach the address.")
def dashboard(project: Path | None, host: str, port: int | None, auth: str | None, unsafe_no_auth: bool) -> None:
    """Open the record as pages: knowledge against instruction following, cycle by cycle.

    \b
    Example: recover dashboard --port 7861
    """
    from dashboard.server.serve import ServeError, ServerOptions, serve
    from db.errors import RecordError
    from pipelines.cli.dashboard_actions import handed
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    try:
        if not Project.exists(project):
            fail("there is no project here yet to show: run recover demo, or recover midtrain --docs DIR", ERROR)
        opened = Project.open(project)
        options = ServerOptions(host, port, auth, unsafe_no_auth)
        with suppress(KeyboardInterrupt):  # as it says: Ctrl-C closes it
            serve(opened.reader, options, opened.name, handed(opened))
    except (ServeError, RecordError, RecoverError) as error:
        fail(str(error), ERROR)


@main.command()
@click.argument("cycle", type=click.IntRange(min=1))
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="[default: report-cycle-N.html]")
@answers
def report(project: Path | None, cycle: int, to: Path | None) -> Answer:
    """One cycle as a single HTML file to mail: scores, gate, curves, notes.

    \b
    Example: recover report 3 --to report.html
    """
    from dashboard.report import report as written
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    if not Project.exists(project):
        raise RecoverError(
            "there is no project here yet to report on: run recover demo, or recover midtrain --docs DIR"
        )
    opened = Project.open(project)
    found = opened.reader.project(opened.name)
    if found is None:
        raise RecoverError("nothing is on record for this project yet: run recover midtrain --docs DIR")
    content = written(opened.reader, found, cycle)
    to = to or Path(f"report-cycle-{cycle}.html")
    try:
        to.write_text(content, encoding="utf-8")
    except OSError as error:
        raise RecoverError(f"cannot write {to}: {error.strerror}; name another file with --to") from error
    return Answer({"cycle": cycle, "path": str(to), "bytes": to.stat().st_size}, [f"cycle {cycle} is reported in {to}"])
