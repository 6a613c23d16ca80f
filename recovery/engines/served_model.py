"""Whether a server serves the model it should: its tokenizer, its chat template, and the log-probs of a probe text; and
the command that starts it as it is needed here."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from recovery.engines.servers import KEY, TIMEOUT, Refused, Server
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.adapters import name_and_revision
from recovery.models.chat_template import Chat, prints_date
from recovery.models.students import Student, model_without_weights

PROBE = (
    "The first railway of the valley was opened in 1871. It ran from the harbour to the mines, and carried 40 tons of "
    "ore a day. What did it carry on Sundays? Nobody knows; the books were lost."
)
PROBE_TOKENS = 64
PROBE_TIMEOUT = 60.0  # seconds: a server that stalls must not stall every call
EXACT = 1e-3  # nats a token, on average: float32 on both sides
LIMIT = 0.1  # nats a token, on average: weights in 16 bits on either side
NOISE = 5  # times the difference at the first probe: other weights of the same model differ by more
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM serves


def identify(server: Server, chat: Chat) -> None:
    """Ask a server what it was started with; raise unless its tokenizer and chat template are those of `chat`."""
    try:
        listed = server.call("/v1/models")
        card = next(model for model in listed["data"] if model.get("parent") is None)
        server.model, server.max_tokens = str(card["id"]), int(card["max_model_len"])
    except (Refused, KeyError, TypeError, ValueError, StopIteration) as error:
        if isinstance(error, Refused) and error.status >= 500:
            raise
        raise RecoverError(f"{server.address} is no vLLM server: it lists no model. Check the address.") from error
    ids = sorted(set(chat.tokenizer.get_vocab().values()))
    texts = _ask(server, "/detokenize", tokens=ids).get("prompt")
    encoded = _ask(server, "/tokenize", prompt=PROBE).get("tokens")
    if texts != chat.tokenizer.decode(ids) or encoded != chat.tokenizer.encode(PROBE):
        raise RecoverError(
            f"The server {server.address} serves {server.model}, whose tokenizer is another than the student's. "
            "Serve a model of the same family."
        )
    message, options = [{"role": "user", "content": "Hello?"}], {"enable_thinking": False}
    rendered = _ask(server, "/tokenize", messages=message, chat_template_kwargs=options).get("tokens")
    if rendered is not None and rendered != chat.prompt(message) and not prints_date(chat.tokenizer):
        raise RecoverError(
            f"The server {server.address} serves {server.model}, whose chat template is another than the student's. "
            "Serve the model that the student was made from."
        )


def _ask(server: Server, path: str, **body: Any) -> dict[str, Any]:
    """Empty where the server refuses: a model without a chat template renders no chat."""
    try:
        answer = server.call(path, {"model": server.model, **body})
    except Refused as error:
        if error.status >= 500:
            raise
        return {}
    return answer if isinstance(answer, dict) else {}


def prompt_logprobs(
    server: Server, model: str, tokens: list[int], top: int = 0, timeout: float = TIMEOUT
) -> list[dict[int, float]]:
    """Return, for every token but the first, the log-probs of that token and of the `top` likeliest there."""
    options = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": top}
    listed = server.complete(model, tokens, options, timeout).get("prompt_logprobs") or []
    try:
        rows = [{int(token): float(entry["logprob"]) for token, entry in row.items()} for row in listed[1:]]
        complete = [token in row for token, row in zip(tokens[1:], rows, strict=True)]
    except (AttributeError, KeyError, TypeError, ValueError):
        complete = [False]
    if not all(complete):
        raise RecoverError(f"The server {server.address} leaves out log-probs of the prompt. Use vLLM 0.32 or later.")
    return rows


def token_logprobs(server: Server, model: str, tokens: list[int], timeout: float = TIMEOUT) -> list[float]:
    rows = prompt_logprobs(server, model, tokens, timeout=timeout)
    return [row[token] for token, row in zip(tokens[1:], rows, strict=True)]


class Probe:
    """A text whose log-probs show which weights are served.

    What a server may differ by is at first `LIMIT`. The first comparison that it passes shows how far the two sides lie
    apart in precision; from then on only a few times that is allowed."""

    def __init__(self, chat: Chat):
        self.tokens: list[int] = chat.tokenizer.encode(PROBE)[:PROBE_TOKENS]
        self._limits: dict[str, float] = {}  # by the server's address

    def logprobs(self, student: Student) -> list[float]:
        return TransformersEngine(student).logprobs([self.tokens])[0]

    def agrees(self, server: Server, model: str, expected: Sequence[float]) -> bool:
        return self._difference(server, model, expected) < self._limit(server)

    def check(self, server: Server, model: str, expected: Sequence[float], problem: str, advice: str) -> None:
        """Raise unless the server's log-probs are those `expected`."""
        difference, limit = self._difference(server, model, expected), self._limit(server)
        if not difference < limit:
            raise RecoverError(
                f"The server {server.address} {problem}: log-probs of a probe text differ by {difference:.2g} on "
                f"average (limit {limit:.2g}). {advice}"
            )
        self._limits.setdefault(server.address, min(LIMIT, max(EXACT, NOISE * difference)))

    def _difference(self, server: Server, model: str, expected: Sequence[float]) -> float:
        """The mean difference; not a number where the server's log-probs are none."""
        served = token_logprobs(server, model, self.tokens, PROBE_TIMEOUT)
        return sum(abs(a - b) for a, b in zip(expected, served, strict=True)) / len(expected)

    def _limit(self, server: Server) -> float:
        return self._limits.get(server.address, LIMIT)


@dataclass(frozen=True)
class ServeCommand:
    environment: dict[str, str]
    words: list[str]

    def __str__(self) -> str:
        quoted = {n: f'"{v}"' if v.startswith("$") else shlex.quote(v) for n, v in self.environment.items()}
        return " ".join([*(f"{name}={value}" for name, value in quoted.items()), shlex.join(self.words)])


def serve_command(server: Server, reference: str, rank: int = 0, layers: Sequence[str] = ()) -> ServeCommand:
    """The command that starts such a server; with a rank for adapters."""
    model, revision = name_and_revision(reference)
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
    if os.environ.get(KEY):  # its name, not the key: commands are printed
        environment["VLLM_API_KEY"] = f"${KEY}"
    return ServeCommand(environment, words)


def linear_layers(reference: str) -> list[str]:
    """The kinds of layers that a new adapter changes, read from the config alone."""
    model = model_without_weights(reference)
    head = model.get_output_embeddings()
    kinds = torch.nn.Linear | Conv1D  # GPT-2 has its linear layers as convolutions
    linear = (name for name, m in model.named_modules() if isinstance(m, kinds) and m is not head)
    return sorted({name.rpartition(".")[-1] for name in linear})
