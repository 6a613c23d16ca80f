"""The command that says how the vLLM servers of a training are started: serve-plan."""

from pathlib import Path

from pipelines.cli import CommandResult, command_result, main
from pipelines.cli import shared_options as options
from pipelines.request import Request
from pipelines.settings.sources import EngineName


@main.command()
@options.of_request("base", "engine", "teacher", "assignments")
@command_result
def serve_plan(
    project: Path | None, base: str | None, engine: EngineName | None, teacher: str | None, assignments: tuple[str, ...]
) -> CommandResult:
    """Print the commands that start this project's vLLM servers.

    Give it the --engine and --teacher of the command that is to use the servers; without an address it prints the
    command for one engine on this machine. The lines can be pasted into a shell.

    \b
    Example: recover serve-plan --engine http://gpu1:8000 --teacher http://gpu2:8000
    """
    from pipelines.machine.server_check import DEFAULT_ADDRESS, plan_servers
    from pipelines.prepare_job import announce_settings
    from pipelines.project.project import Project
    from pipelines.teacher_choice import Served, parse_teacher
    from recovery.engines.servers import is_address
    from recovery.errors import RecoverError

    opened = Project.open(project, base)
    if not Project.exists(project) and Path(opened.base).is_relative_to(opened.home):
        raise RecoverError(
            f"The servers read what is made of {opened.base_name}. Run `recover init --base` with it first."
        )
    request = Request("cycle", base=base, teacher=teacher, engine=engine, assignments=assignments)
    settings = announce_settings(opened, request).settings
    choice = parse_teacher(teacher)
    of_teacher = choice.addresses if isinstance(choice, Served) else None
    if not is_address(settings.engine) and not of_teacher:
        settings = settings.model_copy(update={"engine": DEFAULT_ADDRESS})
    planned = plan_servers(opened.base, settings, of_teacher)
    lines = [line for p in planned for line in (f"# {p.server.address}: {' and '.join(p.roles)}", str(p.command))]
    return CommandResult({"servers": [p.as_json() for p in planned]}, lines)
