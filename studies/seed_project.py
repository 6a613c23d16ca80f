"""The arms of one seed of a study: jobs of the product, in a project of their own, from one damaged start.

An arm is done when its entry is written. Everything before that is in the project's record: the job of an arm has the
arm's name, so a run that was killed goes on where it stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from db.tables import Checkpoint, RunInputs
from evals.results import headline, headlines
from evals.suites.config import load_suites
from pipelines.cycle import run_job
from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
from pipelines.evaluation.drift import NewTask, checkpoint_drift
from pipelines.jobs.job import unfinished_jobs
from pipelines.jobs.teacher_choice import NAMED
from pipelines.log import log
from pipelines.outcome import Answer
from pipelines.prepare_job import eval_plan, prepare_job
from pipelines.project.project import Project
from pipelines.project.runs import run_of_stage, runs_of_job
from pipelines.request import Request
from recovery.models.students import load_chat
from studies.declaration import CLEAN, DRIFT_METRICS, Arm, Study, WithSettings, as_assignments
from studies.entries import ArmFiles, Entry, Tuned, new_entry, outcomes
from studies.materials import arm_file, documents, prompts_by_length

LAST_CYCLES = 5  # whose instruction following the slope is of
NOT_PROMOTED = Answer(False, "an arm of a study: the next one begins with the same model")
PROMOTED = Answer(True, "an arm of a study: the next cycle begins with this model")


@dataclass(frozen=True)
class SeedProject:
    files: ArmFiles
    seed: int
    base: str
    tuned: Tuned = field(default_factory=dict)

    @property
    def study(self) -> Study:
        return self.files.study

    @property
    def root(self) -> Path:
        return self.files.folder / f"seed-{self.seed}"

    @cached_property
    def project(self) -> Project:
        return Project.open(self.root, self.base)

    def run(self, name: str, arm: WithSettings | None) -> Entry:
        """The arm's entry; what is missing of it is computed."""
        if (entry := self.files.entry(self.seed, name)) is not None:
            return entry
        log.info(f"Study {self.study.name}, seed {self.seed}: {name}")
        stages = [self._run_cycle(name, arm, cycle) for cycle in range(_cycles(arm))]
        scores = [stage["scores"] for stage in stages]
        pflops = round(sum(stage["pflops"] for stage in stages), 6)
        measured = {
            "steps": sum(stage["steps"] for stage in stages),
            "pflops": pflops,
            "seconds": round(sum(stage["seconds"] for stage in stages), 1),
            "scores": scores[-1],
            "n": stages[-1]["n"],
            "values": stages[-1]["values"] | {"pflops": pflops, "slope": _slope(scores)},
            "stages": [{key: stage[key] for key in ("scores", "outcomes")} for stage in stages],
        }
        return self.files.add(new_entry(self.study, self.seed, name, self._settings(name, arm), measured))

    def project_of(self, arm: WithSettings | None) -> Project:
        """An arm of several cycles promotes them, so it has a project of its own."""
        if not isinstance(arm, Arm) or arm.cycles == 1:
            return self.project
        name = next(name for name, other in self.study.declared.arms.items() if other is arm)
        return Project.open(self.files.folder / f"seed-{self.seed}-{name}", self.base)

    def request(self, name: str, arm: WithSettings | None, cycle: int = 0) -> Request:
        """The arm as a training command; for the clean model, one that is only measured."""
        command = _command(arm)
        values = self._settings(name, arm)
        docs, questions = documents(self.study, self.seed, cycle, self.root)
        warm_start = values.get("warm_start")
        return Request(
            command,
            docs=None if command == "distill" else docs,
            questions=questions,
            student=self._reference(arm.student) if isinstance(arm, Arm) and command == "distill" else None,
            teacher=self._reference(arm.teacher) if isinstance(arm, Arm) and command != "midtrain" else None,
            prompts=self._arm_file(arm, "prompts"),
            teacher_context=self._arm_file(arm, "teacher_context"),
            ifeval_data=prompts_by_length(self.study, load_chat(self.base), self.root),
            limit=self.study.size.items,
            secondary_limit=max(1, self.study.size.items // 2),
            seed=self.seed,
            recipe=getattr(arm, "recipe", None) if command == "midtrain" else values.get("recipe"),
            mix=values.get("mix"),
            warm_start=None if warm_start is None else str(warm_start),
            assignments=as_assignments(values),
        )

    def _settings(self, name: str, arm: WithSettings | None) -> dict[str, Any]:
        return self.study.settings_of(arm) | dict(self.tuned.get(name, {}))

    def _run_cycle(self, name: str, arm: WithSettings | None, cycle: int) -> dict[str, Any]:
        project = self.project_of(arm)
        request = self.request(name, arm, cycle)
        checkpoint = project.clean if name == CLEAN else self._train(name, arm, cycle)
        plan = eval_plan(project, request, *_midtraining(project, checkpoint))
        plan = plan.with_public_ifeval_checked(load_suites(project.base))
        inputs = RunInputs(stage=f"measure/{name}")
        results = measure_checkpoint(project, checkpoint, plan, None, name, inputs=inputs)
        runs = [run for run in runs_of_job(project, _job_id(name, cycle)) if run.kind != "eval"]
        seconds = project.reader.busy_seconds(run.id for run in runs)
        flops = [point.value for run in runs for point in project.reader.points(run.id, names=["flops"])]
        return {
            "steps": sum(one.step or 0 for run in runs if (one := project.reader.run_checkpoint(run.id))),
            "pflops": sum(flops) / 1e15,
            "seconds": sum(seconds.values()),
            "scores": headlines(results),
            "n": {measure: metric.n for measure in headlines(results) if (metric := headline(results, measure))},
            "values": self._drift(project, checkpoint, request) if self.study.measures_drift else {},
            "outcomes": outcomes(results),
        }

    def _train(self, name: str, arm: WithSettings | None, cycle: int) -> Checkpoint:
        """The model of an arm after a cycle; it is trained unless this machine has it."""
        project, job_id = self.project_of(arm), _job_id(name, cycle)
        stage = "midtrained" if _command(arm) == "midtrain" else "recovered"
        job = next((job for job in unfinished_jobs(project.home) if job.id == job_id), None)
        if job is None and _checkpoint_of(project, job_id, stage) is None:
            job = prepare_job(project, self.request(name, arm, cycle), job_id, is_alone=False)
        if job is not None:
            answer = PROMOTED if _cycles(arm) > 1 else NOT_PROMOTED
            run_job(project, job, lambda verdict: answer)
        checkpoint = _checkpoint_of(project, job_id, stage)
        assert checkpoint is not None
        return project.locate(checkpoint)

    def _drift(self, project: Project, checkpoint: Checkpoint, request: Request) -> dict[str, float]:
        results = checkpoint_drift(project, checkpoint, NewTask(request.questions))
        metrics = {name: metric.value for result in results for name, metric in result.metrics.items()}
        return {name: metrics[name] for name in DRIFT_METRICS if name in metrics}

    def _arm_file(self, arm: WithSettings | None, key: str) -> Path | None:
        return arm_file(self.study, getattr(arm, key, None), self.seed, self.root)

    def _reference(self, role: str) -> str:
        if role == CLEAN or role in NAMED:
            return "base" if role == CLEAN else role
        arm = self.study.arms[role]
        model = [self._train(role, arm, cycle) for cycle in range(_cycles(arm))][-1]
        return f"run:{model.run_id}"


def _command(arm: WithSettings | None) -> Literal["distill", "midtrain", "cycle"]:
    return arm.command if isinstance(arm, Arm) else "midtrain"


def _cycles(arm: WithSettings | None) -> int:
    return arm.cycles if isinstance(arm, Arm) else 1


def _job_id(name: str, cycle: int) -> str:
    return f"{name}-{cycle + 1}"


def _midtraining(project: Project, checkpoint: Checkpoint) -> tuple[Checkpoint, Checkpoint | None]:
    """What the last mid-training behind a checkpoint began with, and what it made; the checkpoint and None if there
    was none."""
    lineage = project.reader.lineage(checkpoint.id)
    index = next((index for index, ancestor in enumerate(lineage) if ancestor.role == "midtrained"), None)
    return (lineage[index + 1], lineage[index]) if index is not None else (checkpoint, None)


def _checkpoint_of(project: Project, job_id: str, stage: str) -> Checkpoint | None:
    run = run_of_stage(project, job_id, stage)
    return project.reader.run_checkpoint(run.id) if run else None


def _slope(scores: list[Mapping[str, float | None]]) -> float:
    """How much instruction following changes with each of the last cycles, by least squares."""
    values = [one["behaviour"] or 0.0 for one in scores[-LAST_CYCLES:]]
    middle = (len(values) - 1) / 2
    spread = sum((x - middle) ** 2 for x in range(len(values)))
    return sum((x - middle) * value for x, value in enumerate(values)) / spread if spread else 0.0
