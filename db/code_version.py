"""The version of the code that a run uses; stored with every run."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def code_version() -> str:
    """The release number; in a git checkout followed by the commit (`0.1.0+g1a2b3c4`)."""
    try:
        release = version("recover")
    except PackageNotFoundError:
        release = "unknown"
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return release
    describe = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return release
    return f"{release}+g{commit}"
