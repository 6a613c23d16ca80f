"""A small HTTP server that answers as vLLM does, with a model of this process; it fails on request."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student, load_student
from recovery.samples import Batch, Sample

MISSING = "There is no such model."


class SmallServer:
    def __init__(self, student: Student, key: str = ""):
        self.student, self.key = student, key
        self.adapters: dict[str, Student] = {}
        self.completions, self.paths = 0, list[str]()
        self.fail_at: set[int] = set()  # completions at which the connection breaks
        self.loses_adapters = False  # at such a break, as a restart does
        self.loads_adapters = True  # else it says so, and serves the base
        self.stall_seconds = 0.0
        self.changes: dict[str, Any] = {}  # of the choice that it answers with
        self.lock = threading.Lock()

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        chat = self.student.chat
        if path == "/v1/models":
            return {"data": [{"id": "base", "parent": None, "max_model_len": 256}]}
        if path == "/health":
            return "ok"
        if path == "/detokenize":
            return {"prompt": chat.tokenizer.decode(body["tokens"])}
        if path == "/tokenize":
            return {
                "tokens": chat.prompt(body["messages"]) if "messages" in body else chat.tokenizer.encode(body["prompt"])
            }
        if path == "/v1/load_lora_adapter":
            loaded = load_student(body["lora_path"], frozen=True) if self.loads_adapters else self.student
            self.adapters[body["lora_name"]] = loaded
            return "Success"
        if path == "/v1/unload_lora_adapter":
            return "Success" if self.adapters.pop(body["lora_name"], None) else None
        model = self.student if body["model"] == "base" else self.adapters.get(body["model"])
        return None if model is None else {"model": body["model"], "choices": [self.complete(model, body)]}

    def complete(self, model: Student, body: dict[str, Any]) -> dict[str, Any]:
        prompt, limit, choice = body["prompt"], body["max_tokens"], dict[str, Any]()
        if (top := body.get("prompt_logprobs")) is not None:
            choice["prompt_logprobs"] = [None, *_listed(model, prompt, top)]
        if "seed" in body:
            of_turns = set(body["stop_token_ids"]) != model.chat.eos_ids
            sampling = Sampling(limit, seed=body["seed"], of_turns=of_turns)
            (reply,) = TransformersEngine(model).generate([prompt], sampling)
            choice |= {"token_ids": reply.tokens, "logprobs": {"token_logprobs": reply.logprobs}}
            choice["finish_reason"] = "stop" if reply.finished else "length"
        return choice | {"prompt_token_ids": prompt} | self.changes


@torch.no_grad()
def _listed(model: Student, tokens: list[int], top: int) -> Iterator[dict[str, dict[str, float]]]:
    batch = Batch.collate([Sample(tokens, [False] + [True] * (len(tokens) - 1))], 0)
    log_p = torch.log_softmax(model.head.logits(model.hidden(batch)), -1)
    for token, row in zip(tokens[1:], log_p, strict=True):
        chosen = dict.fromkeys([token, *row.topk(top).indices.tolist()])
        yield {str(t): {"logprob": float(row[t])} for t in chosen}


class _Http(ThreadingHTTPServer):
    request_queue_size = 128  # more connections at once would be reset


class _Handler(BaseHTTPRequestHandler):
    served: SmallServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        served = self.served
        served.paths.append(self.path)
        if served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
            self._send(401, {"error": "Unauthorized"})
        elif self.path == "/v1/completions" and self._fails():
            self.connection.close()
        else:
            with served.lock:
                answer = served.answer(self.path, body)
            self._send(200 if answer is not None else 404, answer or {"error": {"message": MISSING}})

    def _fails(self) -> bool:
        served = self.served
        time.sleep(served.stall_seconds)
        with served.lock:
            served.completions += 1
            if fails := served.completions in served.fail_at:
                served.adapters = {} if served.loses_adapters else served.adapters
            return fails

    def _send(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # the client has given up
            pass

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(*servers: SmallServer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Start them on free ports; yields their addresses with a comma between them."""
    running, scheme = [], "https" if tls else "http"
    for server in servers:
        handler = type("Handler", (_Handler,), {"served": server})
        running.append(_Http(("127.0.0.1", 0), handler))
        if tls:
            running[-1].socket = tls.wrap_socket(running[-1].socket, server_side=True)
        threading.Thread(target=running[-1].serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield ",".join(f"{scheme}://127.0.0.1:{http.server_address[1]}" for http in running)
    finally:
        for http in running:
            http.shutdown()
            http.server_close()
