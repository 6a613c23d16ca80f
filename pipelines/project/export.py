"""A checkpoint as anyone can load it, with a card that says what it is."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.views import Checkpoint
from evals.suites.config import files_of, is_file, tasks
from pipelines.project.project import Project
from recovery.errors import RecoverError
from recovery.models.interpolation import merge
from recovery.models.students import checkpoint_metadata, load_student, save_student


def export_checkpoint(project: Project, checkpoint: Checkpoint, to: Path, *, adapter: bool) -> str:
    if to.exists() and any(to.iterdir()):
        raise RecoverError(f"{to} is not empty; name another folder")
    if adapter and checkpoint.kind != "adapter":
        raise RecoverError(f"{checkpoint.reference} has full weights, so there is no adapter to export; drop --adapter")
    student = load_student(checkpoint.path, frozen=True, dtype="auto")
    if student.has_adapter and not adapter:
        student = merge(student)
    kind = "adapter" if student.has_adapter else "full"
    about = {
        key: value for key, value in checkpoint_metadata(checkpoint.path).items() if key in ("suites", "step", "run")
    }
    about["suites"], left = without_files(about.get("suites") or {})
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.exists():
            to.rmdir()
        save_student(student, to, {**about, "kind": kind, "parent": project.base})
    except OSError as error:
        raise RecoverError(f"cannot write to {to} ({error.strerror or error}); name another folder") from error
    settings = Path(checkpoint.path) / "generation_config.json"
    if settings.is_file() and not (to / settings.name).exists():
        shutil.copy(settings, to)
    (to / "README.md").write_text(card(project, checkpoint, kind, left), encoding="utf-8")
    return kind


def without_files(suites: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What the model is measured by that goes with it anywhere, and the names of the files that stay where they are."""
    kept = {suite: ",".join(task for task in tasks(named) if not is_file(task)) for suite, named in suites.items()}
    return {suite: named for suite, named in kept.items() if named}, [file.name for file in files_of(suites)]


def card(project: Project, checkpoint: Checkpoint, kind: str, left: Sequence[str] = ()) -> str:
    """Markdown, as hubs show it; `left` are the files of tasks that are not with the model."""
    stages = {stage.checkpoint.id: stage for stage in project.reader.stages(project.id) if stage.checkpoint}
    line = project.reader.lineage(checkpoint.id)
    rows = [
        f"| {c.reference if c.role != 'base' else f'clean model ({project.base})'} | "
        + " | ".join(_cell(stages[c.id].scores.get(suite)) for suite in ("behaviour", "knowledge", "retention"))
        + " |"
        for c in line
    ]
    cycles = {c.number: c for c in project.reader.cycles(project.id)}
    taught = [cycles[n].documents for n in dict.fromkeys(c.cycle for c in reversed(line) if c.cycle) if n in cycles]
    verdict = (cycles[checkpoint.cycle].verdict or {}).get("reason") if checkpoint.cycle in cycles else None
    return "\n".join(
        [
            "---",
            f"base_model: {project.base if not Path(project.base).is_dir() else Path(project.base).name}",
            "library_name: " + ("peft" if kind == "adapter" else "transformers"),
            "---",
            "",
            f"# {checkpoint.reference}",
            "",
            "Mid-trained on new documents, its behaviour distilled back from the clean model, with `recover`.",
            "",
            "| from this checkpoint back to the clean model | behaviour | knowledge | retention |",
            "|---|---|---|---|",
            *rows,
            "",
            *([f"The gate: {verdict}.", ""] if verdict else []),
            *(["Documents, oldest first: " + ", ".join(Path(d).name for d in taught if d) + ".", ""] if taught else []),
            *([f"Measured besides by tasks that are not with it: {', '.join(left)}.", ""] if left else []),
            f"Weights: {kind}, safetensors; sha256 of those it was exported from: {checkpoint.hash}.",
            "",
        ]
    )


def _cell(score: object) -> str:
    value, n = getattr(score, "value", None), getattr(score, "n", 0)
    return "-" if value is None else f"{value:.3f} (n = {n})"
