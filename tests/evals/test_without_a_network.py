"""A process of its own in which no address answers, with neither tables nor caches: all is measured, and what stood
in for what is said."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ALONE = """
import json, socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network here")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from evals.suites.measure import measure
from tests.evals.fakes import speaker
suites = {"retention": "lab", "knowledge": "lab"}
results = measure(speaker("I can't share that. 3, so it is."), limit=4, suites=suites)
print(json.dumps([result.to_json() for result in results]))
"""


@pytest.mark.slow
def test_the_whole_suite_runs_and_says_what_stood_in(tmp_path: Path) -> None:
    fresh = {name: str(tmp_path) for name in ("HOME", "HF_HOME", "NLTK_DATA", "XDG_CACHE_HOME")}
    here = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_DATASETS_CACHE")} | fresh
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", ALONE], env=here, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert time.perf_counter() - began < 300
    results = json.loads(ran.stdout)
    assert [(r["suite"], r["task"], r["data"]) for r in results] == [
        ("behaviour", "ifeval", "lab"),
        ("knowledge", "closed_book", "lab"),
        ("retention", "arithmetic", "lab"),
        ("retention", "own_world", "lab"),
    ]
    assert results[0]["settings"]["sentence_splitter"] == "plain"
    assert "public IFEval" in results[0]["settings"]["instead_of"]
