"""Rollouts from vLLM servers (`vllm serve`) on this machine or others: token ids in, token ids and log-probs out.

An adapter is written into a temporary folder (`TMPDIR`), which the servers must be able to read, and loaded under a new
name after every update (`/v1/load_lora_adapter`). Without an adapter the servers must serve the model itself: weights
that are trained are not sent. Nothing is generated before each server's log-probs of a probe text agree with the
student's own.
"""

import secrets
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recovery.engines import VLLM_LOOPS, Generation, Sampling, row_seeds
from recovery.engines.served_model import Probe, ServeCommand, identify, serve_command, token_logprobs
from recovery.engines.servers import Refused, Server, Servers, Unavailable
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models import adapters
from recovery.models.adapters import preserve_adapter_state
from recovery.models.students import Student

NO_LIMITS = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
NO_LIMITS |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


class HttpEngine:
    def __init__(self, student: Student, addresses: str):  # with a comma between several, which share the rows
        if student.trainable() and not student.has_adapter:
            raise RecoverError(
                "vLLM servers generate for adapters, not for a model whose full weights are trained. Train an adapter "
                "(--set lora_rank=128), or generate on this machine (--engine auto)."
            )
        self._servers, self._student = Servers(addresses, self._prepare), student
        self._probe, self._rows = Probe(student.chat), len(student.whole_head.weight)
        self._folder = tempfile.TemporaryDirectory(prefix="recover-weights-")
        self._name, self._version, self._updates = "", 0, -1
        self._expected, self._base = [0.0], [0.0]  # log-probs of the probe: the student's, and below its adapter
        self.sync(student)
        try:
            self._servers.connect()
        except Exception:
            self.close()
            raise

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        options: dict[str, Any] = {"temperature": sampling.temperature, **NO_LIMITS}
        ends = self._student.chat.reply_ends(sampling.of_turns)
        options |= {"ignore_eos": True, "stop_token_ids": ends}
        options |= {"logprobs": 0} if sampling.with_logprobs else {}
        if sampling.end_loops:
            options["repetition_detection"] = VLLM_LOOPS
        seeds = row_seeds(sampling, len(prompts))

        def generate_row(server: Server, row: int) -> Generation:
            length = min(sampling.max_new_tokens, self._room(server, prompts[row]))
            row_options = {"max_tokens": length, "seed": seeds[row]}
            choice = server.complete(self._model(server), prompts[row], options | row_options)
            return self._generation(server, choice, sampling.with_logprobs, ends)

        return self._servers.run(generate_row, len(prompts), "replies")

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        def score_row(server: Server, row: int) -> list[float]:
            self._room(server, sequences[row])
            return token_logprobs(server, self._model(server), sequences[row])

        return self._servers.run(score_row, len(sequences), "texts scored")

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        # vLLM would read the context again for every continuation.
        return TransformersEngine(self._student).continuation_logprobs(contexts, continuations)

    def sync(self, student: Student) -> None:
        """Write the weights where the servers can read them; they load them before the next row."""
        if student is self._student and student.updates == self._updates:
            return
        self._student, self._updates, self._version = student, student.updates, self._version + 1
        self._expected = self._base = self._probe.logprobs(student)
        for folder in Path(self._folder.name).iterdir():
            shutil.rmtree(folder)
        if student.has_adapter:
            with preserve_adapter_state(student.model), student.model.disable_adapter():
                self._base = self._probe.logprobs(student)
            self._name = f"recover-{secrets.token_hex(4)}-{self._version}"
            self._weights.mkdir()
            adapters.save(student.model, self._weights)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that every server scores: vLLM always writes one token more."""
        return min(server.max_tokens for server in self._servers.servers if server.model) - 1

    def close(self) -> None:
        for server in self._servers.servers:
            if server.serves == self._version and self._student.has_adapter:
                self._unload(server)
        self._folder.cleanup()

    @property
    def _weights(self) -> Path:
        return Path(self._folder.name) / str(self._version)

    def _model(self, server: Server) -> str:
        return self._name if self._student.has_adapter else server.model

    def _prepare(self, server: Server) -> None:
        """Have the server serve the student's weights; raise if it does not."""
        if server.serves == self._version and (not server.may_have_restarted or self._agrees(server)):
            return
        if server.serves is None:
            identify(server, self._student.chat)
        problem, advice = f"serves another model than {self._student.path}", "Start it with that model:"
        if self._student.has_adapter:
            self._load_adapter(server)
            problem, advice = "does not serve the student's weights, although it has loaded them", "Start it again:"
        self._probe.check(server, self._model(server), self._expected, problem, f"{advice} {self._command(server)}")
        server.serves = self._version

    def _agrees(self, server: Server) -> bool:
        try:
            return self._probe.agrees(server, self._model(server), self._expected)
        except Refused:  # it has restarted without the adapter
            return False

    def _load_adapter(self, server: Server) -> None:
        below = f"the one below the student's adapter ({self._student.adapter_base})"
        problem, advice = f"serves {server.model}, which is another model than {below}", "Start it with that model:"
        self._probe.check(server, server.model, self._base, problem, f"{advice} {self._command(server)}")
        self._unload(server)
        try:
            server.call("/v1/load_lora_adapter", {"lora_name": self._name, "lora_path": str(self._weights)})
        except Refused as error:
            if error.status >= 500:
                server.call("/health")  # raises where the server itself has failed
            reason = "" if error.message == "Not Found" else f" ({error.message})"
            raise RecoverError(
                f"The server {server.address} loads no adapter{reason}. It must be able to read {self._folder.name} "
                f"(TMPDIR), and be started so: {self._command(server)}"
            ) from error
        server.adapter = self._name

    def _unload(self, server: Server) -> None:
        if server.adapter:
            with suppress(Unavailable):  # it has restarted, or is gone
                server.call("/v1/unload_lora_adapter", {"lora_name": server.adapter})
        server.adapter = ""

    def _command(self, server: Server) -> ServeCommand:
        student = self._student
        if not student.has_adapter:
            return serve_command(server, student.path)
        rank, layers = adapters.rank(student.model), sorted(adapters.layer_kinds(student.model))
        return serve_command(server, student.adapter_base or "", rank, layers)

    def _room(self, server: Server, tokens: list[int]) -> int:
        """How many tokens a server has memory for behind these."""
        if len(tokens) >= server.max_tokens:
            raise RecoverError(
                f"A sequence of {len(tokens)} tokens does not fit into the {server.max_tokens} that {server.address} "
                "takes. Shorten it, or start the server with a higher --max-model-len."
            )
        return server.max_tokens - len(tokens)

    def _generation(
        self, server: Server, choice: dict[str, Any], with_logprobs: bool, ends: Sequence[int]
    ) -> Generation:
        tokens, scores = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs") or []
        if not isinstance(tokens, list) or (with_logprobs and len(scores) != len(tokens)):
            raise RecoverError(
                f"The server {server.address} leaves out token ids or their log-probs. Use vLLM 0.32 or later."
            )
        if any(not isinstance(token, int) or not 0 <= token < self._rows for token in tokens):
            raise RecoverError(
                f"The server {server.address} returned a token that the student lacks. Serve the student's base."
            )
        reason = choice.get("finish_reason")
        if reason not in ("stop", "length", "repetition"):
            raise Unavailable(f"a reply ended with {reason!r}")
        if reason == "stop" and (not tokens or tokens[-1] not in ends):
            raise RecoverError(
                f"The server {server.address} ends replies at other tokens than the student's chat does. Start it "
                f"again: {self._command(server)}"
            )
        return Generation(tokens, scores, reason == "stop")
