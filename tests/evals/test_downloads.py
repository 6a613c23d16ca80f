import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evals import downloads


def test_a_slow_or_failing_download_gives_none() -> None:
    started = time.perf_counter()
    assert downloads.run_with_timeout(0.1, lambda: time.sleep(5)) is None
    assert time.perf_counter() - started < 1
    assert downloads.run_with_timeout(5, lambda: 1 / 0) is None
    assert downloads.run_with_timeout(5, lambda: 7) == 7


def test_an_unreachable_hub_gives_none_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    started = time.perf_counter()
    assert downloads.public_ifeval() is None
    assert time.perf_counter() - started < 3


WITHOUT_SOCKETS = """
import socket
def fail(*args, **kwargs):
    raise OSError("no network here")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = fail
from evals.downloads import ifeval_checkers, public_ifeval
print(public_ifeval(), ifeval_checkers()[1])
"""


def test_without_a_network_and_with_empty_caches_there_are_replacements(tmp_path: Path) -> None:
    empty_caches = {name: str(tmp_path) for name in ("HOME", "HF_HOME", "NLTK_DATA", "XDG_CACHE_HOME")}
    inherited = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_DATASETS_CACHE")}
    command = [sys.executable, "-c", WITHOUT_SOCKETS]
    process = subprocess.run(command, env=inherited | empty_caches, capture_output=True, text=True, timeout=300)
    assert process.stdout == "None plain\n", process.stderr[-3000:]
