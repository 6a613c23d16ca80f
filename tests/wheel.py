"""Build the wheel from the sdist, install it into an empty environment, and run it outside the repository.

python -m tests.wheel [EXTRA …]      then install these extras as well
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
PACKAGES = ("recovery", "evals", "db", "pipelines", "dashboard", "studies")
MODULE_OF = {"postgres": "psycopg", "store": "s3fs", "documents": "pypdf", "bench": "trl", "vllm": "vllm"}


def main(extras: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="recover-wheel-") as folder:
        root = Path(folder)
        wheel = build(root / "dist")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, has all {check_files(wheel)} tracked files")
        python = install(root / "venv", str(wheel))
        smoke(python, root / "elsewhere")
        for extra in extras:
            pip(python, f"recover[{extra}] @ {wheel.as_uri()}")
            run_python(python, root / "elsewhere", "-c", f"import {MODULE_OF[extra]}")
            print(f"with [{extra}]: {MODULE_OF[extra]} is installed")


def build(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def check_files(wheel: Path) -> int:
    """Check that the wheel has every tracked file, as nothing imports weights, templates, styles or migrations."""
    listing = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in listing.stdout.splitlines() if (ROOT / name).exists()}
    missing = tracked - set(zipfile.ZipFile(wheel).namelist())
    assert not missing, f"list them under [tool.setuptools.package-data]: {sorted(missing)}"
    return len(tracked)


def install(folder: Path, requirement: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip(python, requirement)
    return python


def pip(python: Path, requirement: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True, env=environment(python))


def smoke(python: Path, folder: Path) -> None:
    """Print version and help, evaluate the base, and open the dashboard."""
    folder.mkdir()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert recover(python, folder, "--version").strip() == declared
    assert "midtrain" in recover(python, folder, "--help")
    location = run_python(python, folder, "-c", f"import {', '.join(PACKAGES)}; print(db.__file__)").strip()
    assert not Path(location).is_relative_to(ROOT), f"{location} is in the repository, not from the wheel"
    evaluation = json.loads(recover(python, folder, "eval", "base", "--limit", "5", "--json"))
    tasks = {result["task"]: len(result["metrics"]) for result in evaluation["evaluations"]}
    assert "ifeval" in tasks, tasks
    assert (folder / ".recover" / "recover.db").is_file()
    page = dashboard_page(python, folder)
    assert "gradio" in page
    print(f"without extras: evaluated {', '.join(tasks)}, stored the results, opened the dashboard")


def dashboard_page(python: Path, folder: Path) -> str:
    command = [python.parent / "recover", "dashboard"]
    with subprocess.Popen(command, cwd=folder, env=environment(python), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address, "the dashboard did not print its address"
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


def run_python(python: Path, folder: Path, *arguments: str) -> str:
    return _output([python, *arguments], python, folder)


def _output(command: list[Path | str], python: Path, folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, env=environment(python), capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command[1:]} ended with {result.returncode}: {result.stderr}"
    return result.stdout


def environment(python: Path) -> dict[str, str]:
    """An own home folder, and only installed packages on Python's path."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "RECOVER_DB", "RECOVER_BASE")
    variables = {name: value for name, value in os.environ.items() if name not in dropped}
    cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    return variables | {"HOME": str(python.parents[1]), "PIP_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    main(sys.argv[1:])
