"""`recover export`: write a checkpoint as a folder that other tools can load, with a model card."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from transformers.utils import IMAGE_PROCESSOR_NAME, PROCESSOR_NAME, VIDEO_PROCESSOR_NAME, cached_file

from db.headline_scores import MEASURES
from db.next_attempt import RESTORING
from db.tables import Checkpoint, Run, Stage, promotion_against_gate
from db.verdict_lines import measure_lines
from evals.suites.config import is_task_file, suite_files, task_names
from pipelines.log import log
from pipelines.model_loading import frozen_dtype
from pipelines.project.locations import EXPORT
from pipelines.project.project import Project
from pipelines.storage import RemoteFolder
from recovery.errors import RecoverError
from recovery.models.adapters import base_of, name_and_revision, same_model
from recovery.models.interpolation import merge
from recovery.models.students import checkpoint_metadata, has_no_files, load_student, save_student


def export_checkpoint(project: Project, checkpoint: Checkpoint, to: Path | str, *, adapter: bool) -> str:
    """Write weights, tokenizer and model card into a folder, or to an address; adapters are merged unless `adapter`.
    Returns "full" or "adapter"."""
    remote = RemoteFolder(to) if isinstance(to, str) else None
    is_empty = remote.is_empty() if remote else not Path(to).exists() or has_no_files(Path(to))
    if not is_empty:
        raise RecoverError(f"The folder {remote.label if remote else to} is not empty. Name another one with --to.")
    if remote is None:
        return _write(project, checkpoint, Path(to), adapter=adapter)
    cache = project.home / "cache"
    cache.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix=EXPORT, suffix=".partial", dir=cache) as temporary:
        folder = Path(temporary) / "model"
        kind = _write(project, checkpoint, folder, adapter=adapter)
        log.info(f"Sending it to {remote.label}")
        remote.send(folder)
    return kind


def _write(project: Project, checkpoint: Checkpoint, folder: Path, *, adapter: bool) -> str:
    if adapter and base_of(checkpoint.path) is None:
        raise RecoverError(
            f"The checkpoint {checkpoint.reference} has full weights, so there is no adapter to export. Drop --adapter."
        )
    measured_in = frozen_dtype(checkpoint.path)
    is_large = measured_in == torch.bfloat16 and base_of(checkpoint.path) is None  # what is trained is in float32
    student = load_student(checkpoint.path, frozen=True, dtype=measured_in if is_large else "auto")
    if student.has_adapter and not adapter:
        student = merge(student)
    kind = "adapter" if student.has_adapter else "full"
    about = {
        key: value for key, value in checkpoint_metadata(checkpoint.path).items() if key in ("suites", "step", "run")
    }
    about["suites"], task_files = without_files(about.get("suites") or {})
    beside = [Path(checkpoint.path) / "generation_config.json", *_processor_files(project.base)]

    def add(files: Path) -> None:
        for file in beside:
            if file.is_file() and not (files / file.name).exists():
                shutil.copy(file, files)
        model_card(project, checkpoint, kind, task_files, student.adapter_base).save(files / "README.md")

    advice = "Name another folder with --to, or free space there."
    save_student(student, folder, {**about, "kind": kind, "parent": project.base}, add, advice)
    return kind


def _processor_files(base: str) -> list[Path]:
    """How a base that reads pictures, too, prepares them: it cannot be loaded for that without these files."""
    name, revision = name_and_revision(base)
    try:
        found = [
            cached_file(name, file, revision=revision, _raise_exceptions_for_missing_entries=False)
            for file in (PROCESSOR_NAME, IMAGE_PROCESSOR_NAME, VIDEO_PROCESSOR_NAME)
        ]
    except OSError:  # the base is gone, or out of reach
        return []
    return [Path(file) for file in found if file]


def without_files(suites: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The suites' tasks without those that are local files, and the names of these files."""
    named = {suite: ",".join(t for t in task_names(listed) if not is_task_file(t)) for suite, listed in suites.items()}
    return {suite: listed for suite, listed in named.items() if listed}, [file.name for file in suite_files(suites)]


def model_card(
    project: Project, checkpoint: Checkpoint, kind: str, task_files: Sequence[str] = (), below: str | None = None
) -> ModelCard:
    """The card: lineage with scores, the gate's verdict, and the documents. `task_files` are evaluation tasks that are
    not part of the export; `below` is what an adapter is put on, by default the project's base."""
    below = below or project.base
    name = project.base_name if same_model(below, project.base) else below
    data = ModelCardData(
        license=_license(Path(project.base)),
        base_model=Path(name).name if Path(below).is_dir() else below,
        library_name="peft" if kind == "adapter" else "transformers",
        tags=["recover", "mid-training", "distillation"],
    )
    stages = {stage.checkpoint.id: stage for stage in project.reader.stages(project.id) if stage.checkpoint}
    lineage = project.reader.lineage(checkpoint.id)
    cycles = {c.number: c for c in project.reader.cycles(project.id)}
    numbers = dict.fromkeys(c.cycle for c in reversed(lineage) if c.cycle)
    documents = [Path(d).name for n in numbers if n in cycles and (d := cycles[n].documents)]
    verdict = checkpoint.verdict
    merged = kind == "full" and checkpoint.kind == "adapter"
    overruled = promotion_against_gate(project.reader.promotions(project.id), checkpoint.id)
    paragraphs = [
        f"# {_name(checkpoint)}",
        _about(project, lineage),
        _lineage_table(project.base_name, lineage, stages),
        "\n".join(_verdict_lines(verdict)) if verdict and verdict.get("reason") else "",
        f"{overruled.against_gate.capitalize()} by {overruled.who} on {overruled.at:%d %B %Y}: {overruled.why}"
        if overruled
        else "",
        f"Documents, oldest cycle first: {', '.join(documents)}." if documents else "",
        f"Also evaluated with task files that are not included: {', '.join(task_files)}." if task_files else "",
        f"Weights: {kind}, safetensors."
        + (" The scores are those of the adapter on its base; merging both rounded the weights." if merged else "")
        + (f" SHA-256 of the exported checkpoint: {checkpoint.hash}." if checkpoint.hash else ""),
    ]
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(filter(None, paragraphs)) + "\n")


def _about(project: Project, lineage: Sequence[Checkpoint]) -> str:
    if any(checkpoint.role == "midtrained" for checkpoint in lineage):
        distilled = [checkpoint for checkpoint in lineage if checkpoint.role == "recovered" and checkpoint.step]
        runs = [project.reader.run(checkpoint.run_id or 0) for checkpoint in reversed(distilled)]
        ways = dict.fromkeys(_distillation(run) for run in runs if run)
        return "; ".join(["Mid-trained on new documents with `recover`", *ways]) + "."
    is_repaired = lineage[0].role == "recovered"
    return "A fine-tune of the clean model, which `recover` measured and repaired." if is_repaired else ""


def _distillation(run: Run) -> str:
    distill, teacher = run.settings["distill"], run.inputs.teacher or "base"
    is_by_clean = teacher.split()[0] == "base"
    if distill["recipe"] in RESTORING and is_by_clean and distill.get("teacher_weight") in (None, 1):
        return "its instruction following was then distilled back from the clean model"
    other = ", by its own weights" if teacher.startswith("the ") else ", by another teacher"
    return f"it was then trained with the recipe {distill['recipe']}" + ("" if is_by_clean else other)


def _name(checkpoint: Checkpoint) -> str:
    """A model from outside without the folders of this machine."""
    is_folder = checkpoint.role == "external" and Path(checkpoint.path).is_dir()
    return Path(checkpoint.path).name if is_folder else checkpoint.reference


def _verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    yield f"Gate: {verdict['reason']}."
    if lines := measure_lines(verdict):
        yield "\n| measure | clean → now | with 95 % at least | limit | |\n|---|---|---|---|---|"
        for line in lines:
            scores = f"{line.before or '-'} → {line.after}" if line.is_judged else "-"
            yield f"| {line.name} | {scores} | {line.bound} | {line.limit} | {line.word} |"


def _license(base: Path) -> str | None:
    card = base / "README.md"
    try:
        return ModelCard.load(card, ignore_metadata_errors=True).data.license if card.is_file() else None
    except Exception:  # of any kind: of YAML's, too; a card that cannot be read names no licence
        return None


def _lineage_table(base: str, lineage: Sequence[Checkpoint], stages: Mapping[int, Stage]) -> str:
    rows = ["| checkpoint, newest first | " + " | ".join(MEASURES.values()) + " |", "|---" * (1 + len(MEASURES)) + "|"]
    for checkpoint in lineage:
        name = f"clean model ({base})" if checkpoint.role == "base" else _name(checkpoint)
        scores = [stages[checkpoint.id].scores.get(suite) for suite in MEASURES]
        cells = (f"{s.value:.3f} (n = {s.n})" if s and s.value is not None else "-" for s in scores)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
