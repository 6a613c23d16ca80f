"""The command that starts a vLLM server as it is needed here."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from recovery.engines.servers import KEY, Server
from recovery.models.students import config_of, split_revision

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM serves


@dataclass(frozen=True)
class ServeCommand:
    environment: dict[str, str]
    words: list[str]

    def __str__(self) -> str:
        """As a shell reads it."""
        variables = [f"{name}={_quoted(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.words)])


def _quoted(value: str) -> str:
    return f'"{value}"' if value.startswith("$") else shlex.quote(value)


def serve_command(
    server: Server, reference: str, rank: int = 0, layers: Sequence[str] = (), full: bool = False
) -> ServeCommand:
    """The command that starts such a server; with a rank for adapters, `full` for full weights."""
    model, revision = (reference, None) if Path(reference).is_dir() else split_revision(reference)
    words = ["vllm", "serve", model, *(["--revision", revision] if revision else [])]
    words += ["--host", server.host, "--port", str(server.port)]
    words += ["--generation-config", "vllm"]  # no sampling defaults of the model's own
    if server.address.startswith("https:"):
        words += ["--ssl-keyfile", "KEY.pem", "--ssl-certfile", "CERTIFICATE.pem"]
    environment = {}
    if rank:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        # If the layers are not named, vLLM puts an (empty) adapter on the head too, which breaks prompt log-probs.
        max_rank = next((r for r in LORA_RANKS if r >= rank), rank)
        words += ["--enable-lora", "--max-lora-rank", str(max_rank), "--lora-target-modules", *layers]
    elif full:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    if os.environ.get(KEY):  # its name, not the key: commands are printed
        environment["VLLM_API_KEY"] = f"${KEY}"
    return ServeCommand(environment, words)


def linear_layers(reference: str) -> list[str]:
    """The kinds of layers that a new adapter changes, read from the config alone."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(reference))
    head = model.get_output_embeddings()
    linear = (name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and m is not head)
    return sorted({name.rpartition(".")[-1] for name in linear})
