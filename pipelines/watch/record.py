"""Readings in the record of a project, as the points of a run."""

from pathlib import Path

from db.run_inputs import RunInputs
from pipelines.project.project import Project


class WatchRecord:
    def __init__(self, folder: Path):
        self._folder = folder
        self._project: Project | None = None
        self._run = 0

    def start(self, base: str, steps: int) -> None:
        """The first run in a new folder makes a project there, with that base."""
        is_new = not Project.exists(self._folder)
        self._project = project = Project.open(self._folder, base if is_new else None)
        self._run = project.tracker.start_run(project.id, "midtrain", None, {}, 0, steps, RunInputs(stage="watched"))

    def step(self, step: int, values: dict[str, float]) -> None:
        if self._project:
            self._project.tracker.step(self._run, step, values)

    def finish(self) -> None:
        if self._project:
            self._project.tracker.finish_run(self._run, "done")
