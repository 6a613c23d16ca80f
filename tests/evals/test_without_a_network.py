"""Without a network and caches, everything is measured and the results record what was replaced."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import json, socket, sys
def fail(*args, **kwargs):
    raise OSError("no network here")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = fail
from evals.suites.suite_measurement import measure
from tests.evals.fakes import fake_subject
suites = {"retention": "lab", "knowledge": "lab"}
results = measure(fake_subject("I can't share that. 3, so it is."), limit=4, suites=suites)
print(json.dumps([result.to_json() for result in results]))
"""


@pytest.mark.slow
def test_all_suites_run_and_record_replacements(tmp_path: Path) -> None:
    empty_caches = {name: str(tmp_path) for name in ("HOME", "HF_HOME", "NLTK_DATA", "XDG_CACHE_HOME")}
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_DATASETS_CACHE")} | empty_caches
    start = time.perf_counter()
    process = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr[-3000:]
    assert time.perf_counter() - start < 300
    results = json.loads(process.stdout)
    assert [(r["suite"], r["task"], r["data"]) for r in results] == [
        ("behaviour", "ifeval", "lab-natural"),
        ("knowledge", "closed_book", "lab"),
        ("retention", "arithmetic", "lab"),
        ("retention", "own_world", "lab"),
    ]
    assert results[0]["settings"]["sentence_splitter"] == "plain"
    assert "public IFEval" in results[0]["settings"]["instead_of"]
