"""What other machines need of a project to go on with it, in its part of the store: jobs, inputs, checkpoints, and
the states of unfinished runs.

The names are those in `.recover`, except that the folder of a checkpoint also names its weights, and that of a state
the lease and the step. So nothing that was sent is ever replaced by other content, whichever machine sends it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.log import log
from pipelines.storage.shared_folder import MANIFEST, SharedFolder

INPUTS = ("documents", "questions", "cache")
DONE = ".done"  # marks a job that has ended, for machines that still have its file


@dataclass(frozen=True)
class ProjectStore:
    folder: SharedFolder
    home: Path

    def send_job(self, id: str, values: dict[str, Any], files: Iterable[Path]) -> None:
        """Send the stored inputs of a job (those in `.recover`), then the job itself."""
        for file in files:
            self.folder.send(file, file.relative_to(self.home).as_posix())
        self.folder.delete(f"jobs/{id}{DONE}")  # the same job may be run again
        self.folder.send_text(f"jobs/{id}.json", json.dumps(values, indent=1))

    def end_job(self, id: str) -> None:
        self.folder.send_text(f"jobs/{id}{DONE}", "")
        self.folder.delete(f"jobs/{id}.json")

    def fetch_jobs(self) -> None:
        """Fetch unfinished jobs that are missing here, and forget those that ended elsewhere."""
        jobs = self.folder.names("jobs")
        for name in jobs:
            if name.endswith(DONE):
                (self.home / "jobs" / name).with_suffix(".json").unlink(missing_ok=True)
        ended = {name.removesuffix(DONE) for name in jobs if name.endswith(DONE)}
        ids = {name.removesuffix(".json") for name in jobs if name.endswith(".json")} - ended
        new = [f"{id}.json" for id in ids if not (self.home / "jobs" / f"{id}.json").is_file()]
        for name in sorted(new, key=lambda name: self.folder.modified(f"jobs/{name}")):
            self.folder.fetch(f"jobs/{name}", self.home / "jobs" / name)

    def fetch_inputs(self) -> None:
        """Of all jobs, since a later cycle reads the documents and questions of earlier ones again."""
        for folder in INPUTS:
            for name in self.folder.names(folder):
                if not (file := self.home / folder / name).is_file():
                    self.folder.fetch(f"{folder}/{name}", file)

    def send_checkpoint(self, folder: Path, hash: str, require_lease: Callable[[], None]) -> None:
        self.send_folder(folder, f"checkpoints/{checkpoint_name(folder, hash)}", require_lease)

    def send_folder(self, folder: Path, name: str, require_lease: Callable[[], None]) -> None:
        if not self.folder.has_folder(name):
            log.info(f"Storing {folder.name} in {self.folder.label}")
            self.folder.send_folder(folder, name, require_lease)

    def has_checkpoint(self, folder: Path, hash: str) -> bool:
        return self.folder.has_folder(f"checkpoints/{checkpoint_name(folder, hash)}")

    def fetch_checkpoint(self, folder: Path, hash: str) -> bool:
        return self.fetch_folder(f"checkpoints/{checkpoint_name(folder, hash)}", folder)

    def fetch_folder(self, name: str, folder: Path) -> bool:
        if not self.folder.has_folder(name):
            return False
        log.info(f"Fetching {folder.name} from {self.folder.label}")
        return self.folder.fetch_folder(name, folder)

    def send_progress(self, folder: Path, version: tuple[int, int], require_lease: Callable[[], None]) -> None:
        """Send the state of a run, in place of those sent before; `version` is the token of the lease and the step, so
        that a machine that was cut off sends under another name than the one that has taken over."""
        require_lease()
        earlier = set(self._progress(folder.name)) - {version}
        self.send_folder(folder, _progress_name(folder.name, version), require_lease)
        for one in earlier:
            self._delete_folder(_progress_name(folder.name, one))

    def fetch_progress(self, run: str, lease: int, folder: Path) -> bool:
        """Fetch the last state of a run into a folder, if it is of a later lease than the given one."""
        last = max(self._progress(run), default=(lease, 0))
        return last[0] > lease and self.fetch_folder(_progress_name(run, last), folder)

    def delete_progress(self, run: str) -> None:
        self.folder.delete(f"progress/{run}")

    def delete_all_except(self, kind: str, kept: Callable[[], set[str]], require_lease: Callable[[], None]) -> None:
        """Delete all folders of a kind but these, also what is left of an interrupted or refused upload.

        The store is listed before `kept` is asked, so that what is recorded meanwhile is no candidate."""
        listed = {name.split("/")[0] for name in self.folder.names(kind)}
        for name in sorted(listed - kept()):
            require_lease()
            self._delete_folder(f"{kind}/{name}")

    def delete_documents(self, name: str) -> None:
        self.folder.delete(f"documents/{name}")

    def _progress(self, run: str) -> list[tuple[int, int]]:
        """The versions that are complete."""
        names = [name.split("/") for name in self.folder.names(f"progress/{run}")]
        versions = [version.split("-") for version, *rest in names if rest == [MANIFEST]]
        return [(int(token), int(step)) for token, step in versions]

    def _delete_folder(self, name: str) -> None:
        self.folder.delete(f"{name}/{MANIFEST}")  # first, so that a folder that is half deleted counts as incomplete
        self.folder.delete(name)


def _progress_name(run: str, version: tuple[int, int]) -> str:
    return f"progress/{run}/{version[0]}-{version[1]}"


def checkpoint_name(folder: Path, hash: str) -> str:
    return f"{folder.name}@{hash[:12]}"
