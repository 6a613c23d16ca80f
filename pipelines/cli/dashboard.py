"""Commands that show the project as pages: dashboard, report."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli import CommandResult, command_result, in_project, main, options, report_errors, write_page
from recovery.errors import RecoverError

if TYPE_CHECKING:
    from pipelines.project.project import Project


@main.command()
@options.project
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="[default: the first free one from 7860]")
@click.option(
    "--auth",
    metavar="USER:PASSWORD",
    envvar="RECOVER_AUTH",
    show_envvar=True,
    help="Ask for this user and password; required on any address but loopback.",
)
@click.option("--unsafe-no-auth", is_flag=True, help="Let in anybody who can reach the address.")
def dashboard(project: Path | None, host: str, port: int | None, auth: str | None, unsafe_no_auth: bool) -> None:
    """Serve the project's results as web pages.

    \b
    Example: recover dashboard --port 7861
    """
    with report_errors():
        from dashboard.server.serve import ServeError, ServerOptions, serve
        from pipelines.cli.dashboard_actions import dashboard_actions
        from pipelines.project.project import Project

        opened = Project.open_existing(project)
        try:
            with suppress(KeyboardInterrupt):  # Ctrl-C is how to close it
                server = ServerOptions(host, port, auth, unsafe_no_auth)
                serve(opened.reader, server, opened.name, dashboard_actions(opened))
        except ServeError as error:
            raise RecoverError(str(error)) from error


@main.command()
@click.argument("cycle", type=click.IntRange(min=1))
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="[default: report-cycle-N.html]")
@command_result
@in_project
def report(project: "Project", cycle: int, to: Path | None) -> CommandResult:
    """Write one cycle as a single HTML file.

    The file has the scores, the gate's verdict, training curves and notes.

    \b
    Example: recover report 3 --to report.html
    """
    from dashboard.html_report import report as render

    recorded = project.reader.project(project.name)
    if recorded is None:
        raise RecoverError("This project has no results yet. Run `recover midtrain --docs DIR`.")
    content = render(project.reader, recorded, cycle)
    to = to or Path(f"report-cycle-{cycle}.html")
    write_page(to, content)
    return CommandResult({"cycle": cycle, "path": str(to), "bytes": to.stat().st_size}, [f"Cycle {cycle} is in {to}"])
