"""What is said about the servers of a command before anything is trained."""

import socket

import pytest

from pipelines.model_loading import check_servers
from pipelines.settings.schema import Settings
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import load_student
from tests.recovery.engines.small_server import SmallServer, serving


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("rank", "is_teacher", "command"),
    [
        (8, False, r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve \S+ --host 127.0.0.1 --port \d+ "
                   r"--generation-config vllm --enable-lora --max-lora-rank 8 --lora-target-modules down_proj"),
        (8, True, r"Start one: vllm serve \S+ --host 127.0.0.1 --port \d+ --generation-config vllm$"),
    ],
)  # fmt: skip
def test_where_no_server_answers_the_message_is_the_command_that_starts_it(
    rank: int, is_teacher: bool, command: str, nowhere: str
) -> None:
    settings = Settings(lora_rank=rank, engine="transformers" if is_teacher else nowhere)
    with pytest.raises(RecoverError, match=f"No vLLM server answers at {nowhere} .*{command}"):
        check_servers(str(BASE), settings, nowhere if is_teacher else None)


def test_servers_of_the_base_are_accepted_and_no_servers_need_no_check() -> None:
    check_servers(str(BASE), Settings(), None)
    with serving(SmallServer(load_student(str(BASE), frozen=True))) as named:
        check_servers(str(BASE), Settings(engine=named), named)
        with pytest.raises(RecoverError, match=r"generate for adapters.* lora_rank"):
            check_servers(str(BASE), Settings(engine=named, lora_rank=0), None)
