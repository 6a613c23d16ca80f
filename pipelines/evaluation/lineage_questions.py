"""The questions that the mid-training behind a checkpoint was given: what it is measured by without `--questions`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from db.tables import Checkpoint, Run
from pipelines.project.paths import relocate
from pipelines.project.project import Project


def midtrainings(project: Project, checkpoints: Sequence[Checkpoint]) -> Iterator[Run]:
    """The runs in the lineages, the last one first."""
    ancestors = [ancestor for checkpoint in checkpoints for ancestor in project.reader.lineage(checkpoint.id)]
    for ancestor in sorted(ancestors, key=lambda checkpoint: -checkpoint.id):
        run = project.reader.run(ancestor.run_id) if ancestor.role == "midtrained" and ancestor.run_id else None
        if run is not None:
            yield run


def questions_of_run(project: Project, run: Run) -> Path | None:
    """The stored copy; None if there were no questions, or the copy is gone."""
    file = relocate(project.home, Path(run.inputs.questions or ""))
    return file if file.is_file() else None


def lineage_questions(project: Project, checkpoints: Sequence[Checkpoint]) -> Path | None:
    """Of the last mid-training in the checkpoints' lineages."""
    last = next(midtrainings(project, checkpoints), None)
    return questions_of_run(project, last) if last else None
