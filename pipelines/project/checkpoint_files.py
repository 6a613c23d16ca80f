"""Where the weights of the project's own checkpoints are: in its folder, or to be fetched from the store."""

import json
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from db.queries import Reader
from db.views import Checkpoint
from pipelines.project.paths import relocate
from pipelines.project.project_store import ProjectStore
from recovery.errors import RecoverError


@dataclass(frozen=True)
class CheckpointFiles:
    home: Path
    store: ProjectStore | None
    reader: Reader

    def locate(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with the path where its weights are now; raises RecoverError if they are gone."""
        self._fetch(checkpoint)
        folder = relocate(self.home, Path(checkpoint.path))
        if not folder.is_dir():
            raise RecoverError(self._gone(checkpoint, folder))
        return replace(checkpoint, path=str(folder))

    def fetch_again(self, checkpoint: Checkpoint) -> bool:
        """Replace weights that are not the recorded ones, as a machine may have that was cut off; False if the store
        does not have them."""
        folder = self._own_folder(checkpoint)
        stored = self.store and checkpoint.hash and self.store.has_checkpoint(folder, checkpoint.hash)
        if stored:
            shutil.rmtree(folder, ignore_errors=True)
            self._fetch(checkpoint)
        return bool(stored)

    def _fetch(self, checkpoint: Checkpoint) -> None:
        """From the store, if it is not here; of an adapter, also the checkpoint that it was trained on."""
        folder = self._own_folder(checkpoint)
        if self.store is None or checkpoint.hash is None or checkpoint.deleted_at:
            return
        is_here = folder.is_dir() or self.store.fetch_checkpoint(folder, checkpoint.hash)
        if is_here and checkpoint.kind == "adapter" and (folder / "recover.json").is_file():
            base = Path(json.loads((folder / "recover.json").read_text(encoding="utf-8"))["base"])
            for ancestor in self.reader.lineage(checkpoint.id):
                if Path(ancestor.path).name == base.name:
                    self._fetch(ancestor)

    def _own_folder(self, checkpoint: Checkpoint) -> Path:
        return self.home / "checkpoints" / Path(checkpoint.path).name

    def _gone(self, checkpoint: Checkpoint, folder: Path) -> str:
        cycles = self.reader.cycles(checkpoint.project_id)
        cycle = next((c for c in cycles if c.number == checkpoint.cycle), None)
        documents = cycle.documents if cycle and checkpoint.role == "midtrained" else None
        todo = (
            f"Mid-train again with `recover cycle --docs {shlex.quote(documents)}`." if documents else "Train it again."
        )
        if checkpoint.deleted_at:
            return f"The weights of {checkpoint.reference} were deleted (`recover gc --rejected`). {todo}"
        return f"The weights of {checkpoint.reference} are gone from {folder}. {todo}"
