"""Where and with which code a run happens."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def code_version() -> str:
    """The release, and in a checkout the commit as well: its release number alone says little."""
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
