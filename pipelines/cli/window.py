"""The commands that show the record: dashboard."""

from pathlib import Path

import click

from pipelines.cli import ERROR, fail, main


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
def dashboard(project: Path | None, host: str, port: int | None, auth: str | None) -> None:
    """Open the record as pages: knowledge against instruction following, cycle by cycle.

    \b
    Example: recover dashboard --port 7861
    """
    from dashboard.serve import ServeError, serve
    from db.errors import RecordError
    from pipelines.project import Project
    from recovery.errors import RecoverError

    try:
        if not Project.is_begun(project):
            fail("there is no project here yet to show: run recover demo, or recover midtrain --docs DIR", ERROR)
        opened = Project.open(project)
        serve(opened.reader, host=host, port=port, auth=auth, project=opened.name)
    except (ServeError, RecordError, RecoverError) as error:
        fail(str(error), ERROR)
