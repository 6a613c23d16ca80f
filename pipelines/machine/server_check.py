"""Whether the vLLM servers that a command names can be used, before anything is trained."""

from pipelines.settings.schema import Settings
from recovery.engines.served_model import identify, linear_layers, serve_command
from recovery.engines.servers import Server, Unavailable, is_address, parse_addresses
from recovery.errors import RecoverError
from recovery.models.students import load_chat


def check_servers(base: str, settings: Settings, teacher: str | None) -> None:
    """Raise unless each answers and has the base's tokenizer; the sentence says how to start one."""
    engines = parse_addresses(settings.engine) if is_address(settings.engine) else []
    teachers = parse_addresses(teacher) if teacher is not None and is_address(teacher) else []
    if not settings.lora_rank and (shared := sorted(set(engines) & set(teachers))):
        raise RecoverError(
            f"The server {shared[0]} cannot serve both the teacher and a student whose full weights are trained. "
            "Start two servers, or train an adapter (--set lora_rank=128)."
        )
    for address in dict.fromkeys([*engines, *teachers]):
        server = Server(address, timeout=30.0)
        try:
            identify(server, load_chat(base))
        except Unavailable as error:
            rank = settings.lora_rank if address in engines else 0
            layers = linear_layers(base) if rank else []
            command = serve_command(server, base, rank, layers, full=address in engines and not rank)
            raise RecoverError(f"No vLLM server answers at {address} ({error}). Start one: {command}") from error
