"""The vLLM servers of a command: how each is started, and whether it can be used before anything is trained."""

from dataclasses import dataclass
from typing import Any

from pipelines.settings.schema import Settings
from recovery.engines.served_model import ServeCommand, check_head_reloads, identify, linear_layers, serve_command
from recovery.engines.servers import Server, Unavailable, is_address, parse_addresses
from recovery.errors import RecoverError
from recovery.models.students import config_of, load_chat

DEFAULT_ADDRESS = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class PlannedServer:
    server: Server
    roles: list[str]  # "engine", "teacher"
    command: ServeCommand

    def as_json(self) -> dict[str, Any]:
        command = {"environment": self.command.environment, "command": self.command.words}
        return {"address": self.server.address, "roles": self.roles, **command}


def plan_servers(base: str, settings: Settings, of_teacher: str | None) -> list[PlannedServer]:
    """The servers of the engine and those of the teacher, each once."""
    engines = parse_addresses(settings.engine) if is_address(settings.engine) else []
    teachers = parse_addresses(of_teacher) if of_teacher else []
    rank = settings.lora_rank
    if not rank and (shared := sorted(set(engines) & set(teachers))):
        raise RecoverError(
            f"The server {shared[0]} cannot serve both the teacher and a student whose full weights are trained. "
            "Start two servers, or train an adapter (--set lora_rank=128)."
        )
    layers = linear_layers(base) if rank and engines else []
    planned = []
    for address in dict.fromkeys([*engines, *teachers]):
        server, generates = Server(address, timeout=30.0), address in engines
        command = serve_command(server, base, rank if generates else 0, layers, full=generates and not rank)
        roles = [role for role, addresses in (("engine", engines), ("teacher", teachers)) if address in addresses]
        planned.append(PlannedServer(server, roles, command))
    return planned


def check_servers(base: str, settings: Settings, of_teacher: str | None) -> None:
    """Raise unless each answers, has the base's tokenizer and can take its weights; where none answers, the sentence
    says how to start one."""
    for planned in plan_servers(base, settings, of_teacher):
        try:
            identify(planned.server, load_chat(base))
            if not settings.lora_rank and "engine" in planned.roles:
                check_head_reloads(planned.server, config_of(base))
        except Unavailable as error:
            address = planned.server.address
            raise RecoverError(
                f"No vLLM server answers at {address} ({error}). Start one: {planned.command}"
            ) from error
