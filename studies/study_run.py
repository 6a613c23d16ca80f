"""Runs a study: its arms on every seed, then the verdicts. What is done already is not computed again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from db.tables import Study as StudyRow
from evals.results import MEASURES
from pipelines.log import log
from pipelines.project.lock import command_line, lock_holder, project_lock
from pipelines.project.paths import HOME
from pipelines.project.project import Project
from studies.declaration import Study
from studies.differences import results_of
from studies.entries import ArmFiles, Tuned
from studies.seed_project import SeedProject


@dataclass(frozen=True)
class StudyRun:
    study: Study
    project: Project  # whose record keeps the study
    results: Path | None = None  # a folder of results, to read from and to write to
    again: bool = False

    @property
    def base(self) -> str:
        return self.study.base or self.project.base

    @cached_property
    def folder(self) -> Path:
        return self.project.home / "studies" / self.study.folder_name

    @property
    def files(self) -> ArmFiles:
        return ArmFiles(self.study, self.folder, self.results, self.again)

    @cached_property
    def id(self) -> int:
        """The study in the record, with its declaration; stored before anything runs."""
        study = self.study
        return self.project.tracker.study(
            self.project.id, study.name, study.size_name, study.hash, study.as_json() | {"base": self.base}
        )

    def run(self) -> StudyRow:
        """Run what is missing. A seed that another process works on is left to it; the verdicts wait for all seeds."""
        _ = self.id
        tuned = self._tune()
        elsewhere = self._run_free_seeds(self.study.size.seeds, tuned)
        if elsewhere := self._run_free_seeds(elsewhere, tuned):
            log.info(
                f"Another process works on seeds {', '.join(map(str, elsewhere))}; the last to end gives the verdict"
            )
        self._store()
        row = self.project.reader.study(self.id)
        assert row is not None
        return row

    def seed(self, seed: int, tuned: Tuned | None = None) -> SeedProject:
        return SeedProject(self.files, seed, self.base, tuned or {})

    def _run_free_seeds(self, seeds: Sequence[int], tuned: Tuned) -> list[int]:
        """Run the seeds that no other process works on; the others are returned."""
        elsewhere = []
        for one in (self.seed(seed, tuned) for seed in seeds):
            missing = [name for name in self.study.arms if self.files.entry(one.seed, name) is None]
            if missing and lock_holder(one.root / HOME):
                elsewhere.append(one.seed)
            elif missing:
                self._run_seed(one, missing)
        return elsewhere

    def _run_seed(self, one: SeedProject, missing: Sequence[str]) -> None:
        one.root.mkdir(parents=True, exist_ok=True)
        with project_lock(one.root / HOME, command_line()):
            for name in missing:
                one.run(name, self.study.arms[name])
                self._store()

    def _tune(self) -> Tuned:
        """The value that each tuned arm does best with, on a seed that no verdict uses."""
        tune = self.study.declared.tune
        if tune is None:
            return {}
        if (tuned := self.files.tuned()) is not None:
            return tuned
        best: dict[str, dict[str, Any]] = {}
        measures = [claim.metric for claim in self.study.declared.claims if claim.metric in MEASURES]
        for name in tune.arms:
            scores: dict[float, float] = {}
            for number, value in enumerate(tune.values):
                variant = f"{name}-{number}"
                one = replace(self.seed(tune.seed), tuned={**best, variant: {tune.setting: value}})
                one.root.mkdir(parents=True, exist_ok=True)
                with project_lock(one.root / HOME, command_line()):
                    entry = one.run(variant, self.study.declared.arms[name])
                scores[value] = sum(entry["scores"].get(measure) or 0.0 for measure in measures)
            best[name] = {tune.setting: max(scores, key=lambda value: scores[value])}
            log.info(f"Study {self.study.name}: {name} does best with {tune.setting} = {best[name][tune.setting]:g}")
        self.files.add_tuned(best)
        return best

    def _store(self) -> None:
        """The arms that are done, and the verdicts once all are."""
        self.files.share()
        results = results_of(self.study, self.files.entries())
        self.project.tracker.store_study(self.id, results, done=bool(results["claims"]))
