"""Runs a study: its arms on every seed, then the verdicts. What is done already is not computed again."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from db.views import Study as StudyRow
from evals.results import MEASURES
from evals.stats.claims import decide
from pipelines.log import log
from pipelines.project.lock import command_line, lock_holder, project_lock
from pipelines.project.paths import HOME
from pipelines.project.project import Project
from pipelines.storage.atomic_files import write_atomic
from studies.declaration import Study
from studies.differences import hypothesis_of
from studies.seed_project import SeedProject

TUNED = "tuned.json"


@dataclass(frozen=True)
class StudyRun:
    study: Study
    project: Project  # whose record keeps the study

    @property
    def base(self) -> str:
        return self.study.base or self.project.base

    @cached_property
    def folder(self) -> Path:
        return self.project.home / "studies" / f"{self.study.name}-{self.study.size_name}-{self.study.hash[:8]}"

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
        self.folder.mkdir(parents=True, exist_ok=True)
        tuned = self._tune()
        elsewhere = self._run_free_seeds(self.study.size.seeds, tuned)
        if elsewhere := self._run_free_seeds(elsewhere, tuned):
            log.info(
                f"Another process works on seeds {', '.join(map(str, elsewhere))}; the last to end gives the verdict"
            )
        self._store(tuned)
        row = self.project.reader.study(self.id)
        assert row is not None
        return row

    def seed(self, seed: int, tuned: Mapping[str, Mapping[str, Any]] | None = None) -> SeedProject:
        return SeedProject(self.study, seed, self.folder, self.base, tuned or {})

    def _run_free_seeds(self, seeds: Sequence[int], tuned: Mapping[str, Mapping[str, Any]]) -> list[int]:
        """Run the seeds that no other process works on; the others are returned."""
        elsewhere = []
        for seed in seeds:
            one = self.seed(seed, tuned)
            if lock_holder(one.root / HOME):
                elsewhere.append(seed)
            else:
                self._run_seed(one)
        return elsewhere

    def _run_seed(self, one: SeedProject) -> None:
        one.root.mkdir(parents=True, exist_ok=True)
        with project_lock(one.root / HOME, command_line()):
            for name, arm in one.arms.items():
                is_new = one.entry(name) is None
                one.run(name, arm)
                if is_new:
                    self._store(one.tuned)

    def _tune(self) -> Mapping[str, Mapping[str, Any]]:
        """The value that each tuned arm does best with, on a seed that no verdict uses."""
        tune, file = self.study.declared.tune, self.folder / TUNED
        if tune is None or file.is_file():
            return json.loads(file.read_text(encoding="utf-8")) if tune else {}
        best: dict[str, dict[str, Any]] = {}
        measures = [claim.metric for claim in self.study.declared.claims if claim.metric in MEASURES]
        for name in tune.arms:
            scores: dict[float, float] = {}
            for number, value in enumerate(tune.values):
                variant = f"{name}-{number}"
                one = replace(self.seed(tune.seed), tuned={**best, variant: {tune.setting: value}})
                one.root.mkdir(parents=True, exist_ok=True)
                with project_lock(one.root / HOME, command_line()):
                    for role, arm in one.arms.items():  # the arms that it begins with or learns from
                        if role == name:
                            break
                        one.run(role, arm)
                    entry = one.run(variant, self.study.declared.arms[name])
                scores[value] = sum(entry["scores"].get(measure) or 0.0 for measure in measures)
            best[name] = {tune.setting: max(scores, key=lambda value: scores[value])}
            log.info(f"Study {self.study.name}: {name} does best with {tune.setting} = {best[name][tune.setting]:g}")
        write_atomic(file, [json.dumps(best, indent=1)])
        return best

    def _store(self, tuned: Mapping[str, Mapping[str, Any]]) -> None:
        """The arms that are done, and the verdicts once all are."""
        seeds = {seed: self.seed(seed, tuned) for seed in self.study.size.seeds}
        arms = [entry for one in seeds.values() for name in one.arms if (entry := one.entry(name)) is not None]
        planned = sum(len(one.arms) for one in seeds.values())
        is_done = len(arms) == planned
        results = {"arms": arms, "planned": planned, "tuned": tuned, "claims": self._claims(seeds) if is_done else []}
        self.project.tracker.store_study(self.id, results, done=is_done)

    def _claims(self, seeds: Mapping[int, SeedProject]) -> list[dict[str, Any]]:
        declared = self.study.declared
        measured = []
        for one in seeds.values():
            entries = {name: entry for name in one.arms if (entry := one.entry(name))}
            projects = {entries[name]["project"]: one.project_of(arm) for name, arm in one.arms.items()}
            measured.append((projects, entries))
        hypotheses = [hypothesis_of(claim, measured) for claim in declared.claims]
        return [
            {
                **claim.model_dump(exclude_none=True),
                "verdict": decision.verdict,
                "estimate": decision.estimate,
                "low": _finite(decision.low),
                "high": _finite(decision.high),
                "p_support": _finite(decision.p_support),
                "p_refute": _finite(decision.p_refute),
                "needed": decision.needed,
                "seeds": list(hypothesis.differences.means),
                "n": hypothesis.differences.items,
            }
            for claim, hypothesis, decision in zip(
                declared.claims, hypotheses, decide(hypotheses, declared.error), strict=True
            )
        ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
