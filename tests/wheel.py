"""The wheel as a stranger has it: built from the sdist, installed into an empty environment, run far from here.

python -m tests.wheel [EXTRA …]      extras to add, once the wheel has passed without any
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("recovery", "evals", "db", "pipelines", "dashboard")
MODULE_OF = {"postgres": "psycopg", "documents": "pypdf", "bench": "trl", "vllm": "vllm"}


def main(extras: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="recover-wheel-") as folder:
        place = Path(folder)
        wheel = build(place / "dist")
        print(
            f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, holds all {holds_every_file(wheel)} files of the rooms"
        )
        python = install(place / "venv", str(wheel))
        smoke(python, place / "elsewhere")
        for extra in extras:
            pip(python, f"recover[{extra}] @ {wheel.as_uri()}")
            ran(python, place / "elsewhere", "-c", f"import {MODULE_OF[extra]}")
            print(f"with [{extra}]: {MODULE_OF[extra]} is there")


def build(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def holds_every_file(wheel: Path) -> int:
    """Weights, templates, styles and migrations are files no import would miss until they are wanted."""
    listed = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    missing = tracked - set(zipfile.ZipFile(wheel).namelist())
    assert not missing, f"list them under [tool.setuptools.package-data]: {sorted(missing)}"
    return len(tracked)


def install(folder: Path, what: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip(python, what)
    return python


def pip(python: Path, what: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", what], check=True, env=environment(python))


def smoke(python: Path, folder: Path) -> None:
    """A version, help, a measurement on record, and the page that shows it."""
    folder.mkdir()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert recover(python, folder, "--version").strip() == declared
    assert "midtrain" in recover(python, folder, "--help")
    where = json.loads(ran(python, folder, "-c", f"import json, {', '.join(ROOMS)}; print(json.dumps(db.__file__))"))
    assert not Path(where).is_relative_to(ROOT), f"{where} is the repository's, not the wheel's"
    measured = json.loads(recover(python, folder, "eval", "base", "--limit", "5", "--json"))
    tasks = {each["task"]: len(each["metrics"]) for each in measured["evaluations"]}
    assert "ifeval" in tasks, tasks
    assert (folder / ".recover" / "recover.db").is_file()
    page = served(python, folder)
    assert "gradio" in page
    print(f"without extras: measured {', '.join(tasks)}, put it on record, showed the dashboard")


def served(python: Path, folder: Path) -> str:
    command = [python.parent / "recover", "dashboard"]
    with subprocess.Popen(command, cwd=folder, env=environment(python), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address, "the dashboard did not say where it is"
            for _ in range(20):
                with urllib.request.urlopen(address[0], timeout=30) as answer:
                    if answer.status == 200:
                        return str(answer.read().decode())
                time.sleep(0.5)
        finally:
            server.terminate()
    raise AssertionError("the dashboard did not answer")


def recover(python: Path, folder: Path, *arguments: str) -> str:
    return _output([python.parent / "recover", *arguments], python, folder)


def ran(python: Path, folder: Path, *arguments: str) -> str:
    return _output([python, *arguments], python, folder)


def _output(command: list[Path | str], python: Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(python), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[1:]} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def environment(python: Path) -> dict[str, str]:
    """A home of its own, and nothing on Python's path that is not installed."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "RECOVER_DB", "RECOVER_BASE")}
    cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    return kept | {"HOME": str(python.parents[1]), "PIP_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    main(sys.argv[1:])
