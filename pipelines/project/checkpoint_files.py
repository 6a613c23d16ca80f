"""Where the weights of the project's own checkpoints are."""

import shlex
from dataclasses import replace
from pathlib import Path

from db.queries import Reader
from db.views import Checkpoint
from pipelines.project.paths import relocate
from recovery.errors import RecoverError


def locate_weights(checkpoint: Checkpoint, home: Path, reader: Reader) -> Checkpoint:
    """The checkpoint with the path where its weights are now; raises RecoverError if they are gone."""
    folder = relocate(home, Path(checkpoint.path))
    if not folder.is_dir():
        raise RecoverError(_gone(checkpoint, folder, reader))
    return replace(checkpoint, path=str(folder))


def _gone(checkpoint: Checkpoint, folder: Path, reader: Reader) -> str:
    cycles = reader.cycles(checkpoint.project_id)
    cycle = next((c for c in cycles if c.number == checkpoint.cycle), None)
    documents = cycle.documents if cycle and checkpoint.role == "midtrained" else None
    todo = f"Mid-train again with `recover cycle --docs {shlex.quote(documents)}`." if documents else "Train it again."
    if checkpoint.deleted_at:
        return f"The weights of {checkpoint.reference} were deleted (`recover gc --rejected`). {todo}"
    return f"The weights of {checkpoint.reference} are gone from {folder}. {todo}"
