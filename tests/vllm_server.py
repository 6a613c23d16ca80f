"""A real vLLM server on the loopback interface, in a process group of its own, so that a test may kill it."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from recovery.engines.served_model import linear_layers, serve_command
from recovery.engines.servers import Server

ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
START_SECONDS = 900  # on a busy machine


class VllmServer:
    """Started by the command that users are given, in float32; with a rank for adapters."""

    def __init__(self, model: str, log: Path, rank: int = 0):
        if importlib.util.find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
            pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.model, self.log, self.process = model, log, None
        self.address = f"http://127.0.0.1:{self.port}"
        planned = serve_command(Server(self.address), model, rank, linear_layers(model))
        # The program `vllm` of the package for CPUs does not start: it looks for the version of another package.
        assert planned.words[:3] == ["vllm", "serve", model]
        self.command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *planned.words[2:]]
        self.command += ["--dtype", "float32", "--enforce-eager"]
        self.environment = {**os.environ, **ENVIRONMENT, **planned.environment}

    process: subprocess.Popen[bytes] | None

    def start(self) -> "VllmServer":
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def wait_until_ready(self) -> "VllmServer":
        assert self.process is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urlopen(f"{self.address}/health", timeout=5):
                    return self
            except OSError:
                time.sleep(0.5)
        self.kill()
        raise AssertionError(f"vLLM did not start:\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """At once, as when a machine is lost."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def running(*servers: VllmServer) -> Iterator[None]:
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_until_ready()
        yield
    finally:
        for server in servers:
            server.kill()
