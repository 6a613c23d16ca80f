"""What earlier cycles taught a checkpoint: their documents, their questions, and how much it knew when they ended."""

from dataclasses import dataclass
from pathlib import Path

from db.views import Checkpoint, Run
from pipelines.project.paths import relocate
from pipelines.project.project import Project


@dataclass(frozen=True)
class PastCycle:
    cycle: int
    checkpoint: int  # what it ended with
    corpus: str  # its hash
    documents: str
    questions: Path | None
    known: float


def past_cycles(project: Project, checkpoint: Checkpoint) -> list[PastCycle]:
    """The promoted cycles that this checkpoint has gone through, oldest first."""
    line = {c.id for c in project.reader.lineage(checkpoint.id)}
    runs = {r.id: r for r in project.reader.runs(project.id)}
    found = []
    for cycle in project.reader.cycles(project.id):
        made, damaged = cycle.recovered.checkpoint, cycle.damaged.checkpoint
        known = cycle.recovered.scores.get("knowledge")
        if cycle.status != "promoted" or made is None or damaged is None or made.id not in line:
            continue
        run: Run | None = runs.get(damaged.run_id or 0)
        corpus = run.settings.get("corpus") if run else None
        if run is None or corpus is None:
            continue
        questions = run.settings.get("questions")
        found.append(
            PastCycle(
                cycle.number,
                made.id,
                corpus,
                cycle.documents or "",
                relocate(project.home, Path(questions)) if questions else None,
                (known.value if known else None) or 0.0,  # nothing, where only bits were measured
            )
        )
    return found
