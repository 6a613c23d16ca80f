"""Six short documents, and the stage that reads them."""

from pathlib import Path

from pipelines.documents.corpus import CorpusSnapshot, read_corpus, save_snapshot
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.training.stage_context import Stage
from tests.chat_families import Family

NOTES = [f"Note {number}: the harbour has {number} ships." for number in range(6)]


def write_notes(folder: Path) -> Path:
    docs = folder / "docs"
    docs.mkdir()
    for number, note in enumerate(NOTES):
        (docs / f"{number}.txt").write_text(note)
    return docs


def corpus_of_notes(folder: Path) -> CorpusSnapshot:
    return save_snapshot(folder / "project" / ".recover", read_corpus(write_notes(folder)))


def stage_of(folder: Path, family: Family) -> Stage:
    project = Project.open(folder / "project", str(family.save(folder / "base")))
    midtrain = {"window": 300, "rows": 1, "mix": {"answers": 0.0, "texts": 0.0}}
    settings = apply_overrides(defaults_for(SMALL_MODEL_PARAMETERS), {"midtrain": midtrain})
    return Stage(project, Job("midtrain", settings), None)
