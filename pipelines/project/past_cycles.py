"""The promoted cycles behind a checkpoint: their documents, their questions, and their knowledge scores."""

from dataclasses import dataclass
from pathlib import Path

from db.run_inputs import RunInputs
from db.views import Checkpoint
from pipelines.project.paths import relocate
from pipelines.project.project import Project


@dataclass(frozen=True)
class PastCycle:
    cycle: int  # its number
    checkpoint: int  # id of its recovered checkpoint
    corpus: str  # hash
    documents: str  # path
    questions: Path | None
    knowledge: float  # score of the recovered checkpoint


def past_cycles(project: Project, checkpoint: Checkpoint) -> list[PastCycle]:
    """The promoted cycles in the lineage of a checkpoint, oldest first."""
    lineage = {ancestor.id for ancestor in project.reader.lineage(checkpoint.id)}
    runs = {run.id: run for run in project.reader.runs(project.id)}
    past = []
    for cycle in project.reader.cycles(project.id):
        recovered, damaged = cycle.recovered.checkpoint, cycle.damaged.checkpoint
        if cycle.status != "promoted" or recovered is None or damaged is None or recovered.id not in lineage:
            continue
        midtraining = runs.get(damaged.run_id or 0)
        inputs = midtraining.inputs if midtraining else RunInputs()
        if inputs.corpus is None:
            continue
        knowledge = cycle.recovered.scores.get("knowledge")
        past.append(
            PastCycle(
                cycle.number,
                recovered.id,
                inputs.corpus,
                cycle.documents or "",
                relocate(project.home, Path(inputs.questions)) if inputs.questions else None,
                (knowledge.value if knowledge else None) or 0.0,  # 0 if only bits per byte were measured
            )
        )
    return past
