"""Runs a study: its arms on every seed, then the verdicts. What is done already is not computed again.

The arms of a seed are jobs of the product, in a project of their own, from one damaged start. An arm is done when its
entry is written. Everything before that is in the project's record: the job of an arm has the arm's name, so a run that
was killed goes on where it stopped.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import linear_regression
from typing import Any

from db.tables import Checkpoint, RunInputs
from db.tables import Study as StudyRow
from evals.results import headline, headlines
from evals.suites.config import load_suites
from pipelines.cycle import Answer, run_job
from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
from pipelines.evaluation.drift import NewTask, checkpoint_drift
from pipelines.job import unfinished_jobs
from pipelines.log import log
from pipelines.prepare_job import eval_plan, prepare_job
from pipelines.project.locations import HOME
from pipelines.project.lock import AlreadyRunning, command_line, project_lock
from pipelines.project.project import Project
from pipelines.project.runs import run_of_stage, runs_of_job
from pipelines.request import Request
from pipelines.settings.defaults import MEDIUM_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import engine_of, flatten, resolve_layers
from pipelines.settings.schema import Settings
from pipelines.settings.sources import parse_set_options, read_environment
from pipelines.storage import write_atomic
from pipelines.teacher_choice import NAMED
from pipelines.training.recipe_inputs import check_recipes
from recovery.errors import RecoverError
from recovery.lab import instruction_tasks, make_world
from recovery.lab.worlds import World
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat, parameters_of
from studies.declaration import (
    CLEAN,
    DRIFT_METRICS,
    INSTRUCTIONS,
    QUESTIONS,
    Arm,
    Study,
    Tune,
    as_assignments,
    length_groups,
)
from studies.entries import ArmFiles, Entry, Tuned, new_entry, outcomes, results_of, run_entry

LAST_CYCLES = 5  # whose instruction following the slope is of
NOT_PROMOTED = Answer(False, "an arm of a study: the next one begins with the same model")
PROMOTED = Answer(True, "an arm of a study: the next cycle begins with this model")
FIRST_WORLD = 10_000  # no other command uses worlds from here on
PROMPTS_SEED = 7  # of the prompts by length: other items than those of the suite
MAX_TASKS = 200_000  # that are looked through for long answers
TRAINING_PROMPTS = 2560
KEPT = ("scores", "outcomes", "stopped", "runs")  # of each cycle of an arm
RESULT_STAYS = ("engine", "tokens_at_once", "checkpointing", "report_to", "save_minutes")


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

    def check(self) -> None:
        """Raise RecoverError unless the files that it names exist and the settings of every arm go together."""
        for name in self.study.named_files:
            _locate(self.study, name)
        given = flatten(read_environment(os.environ, flatten(Settings().model_dump())))
        if changing := sorted(given.keys() - RESULT_STAYS):
            variables = ", ".join(f"RECOVER_{name.upper().replace('.', '__')}" for name in changing)
            raise RecoverError(f"A study's settings are those of its declaration. Unset {variables}.")
        parameters = parameters_of(self.base) if Path(self.base).is_dir() else MEDIUM_MODEL_PARAMETERS
        for name, arm in self.study.arms.items():
            values = self.study.settings_of(arm)
            recipe = arm.recipe if arm.command == "midtrain" else values.get("recipe")
            flags = Request(arm.command, recipe=recipe, mix=values.get("mix")).setting_flags()
            try:
                check_recipes(resolve_layers(parameters, [flags, parse_set_options(as_assignments(values))]).settings)
            except RecoverError as error:
                raise RecoverError(f"The arm {name} cannot run: {error}") from error

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

    def seed(self, seed: int, tuned: Tuned | None = None) -> "SeedProject":
        return SeedProject(self.files, seed, self.base, tuned or {})

    def _run_free_seeds(self, seeds: Sequence[int], tuned: Tuned) -> list[int]:
        """Run the seeds that no other process works on; the others are returned."""
        elsewhere = []
        for seed_project in (self.seed(seed, tuned) for seed in seeds):
            if not self._missing_arms(seed_project.seed):
                continue
            with ExitStack() as stack:
                try:
                    stack.enter_context(project_lock(seed_project.root / HOME, command_line()))
                except AlreadyRunning:
                    elsewhere.append(seed_project.seed)
                    continue
                for name in self._missing_arms(seed_project.seed):  # another process may have run some until now
                    seed_project.run(name, self.study.arms[name])
                    self._store()
        return elsewhere

    def _missing_arms(self, seed: int) -> list[str]:
        return [name for name in self.study.arms if self.files.entry(seed, name) is None]

    def _tune(self) -> Tuned:
        """The learning rate that each tuned arm does best with, on a seed that no verdict uses."""
        tune = self.study.declared.tune
        if tune is None:
            return {}
        if (tuned := self.files.tuned()) is not None:
            return tuned
        with ExitStack() as stack:
            try:
                stack.enter_context(project_lock(self.seed(tune.seed).root / HOME, command_line()))
            except AlreadyRunning as error:
                raise RecoverError(
                    "Another process looks for the learning rates of this study, which every arm needs. Run this "
                    "command again when it has found them."
                ) from error
            best = self.files.tuned() or self._best_rates(tune)
            self.files.add_tuned(best)
        return best

    def _best_rates(self, tune: Tune) -> Tuned:
        best: dict[str, dict[str, Any]] = {}
        measures = self.study.declared.claimed_measures
        for name in tune.arms:
            scores: dict[float, float] = {}
            for number, times in enumerate(tune.rate_times):
                variant = f"{name}-{number}"
                seed_project = replace(self.seed(tune.seed), tuned={**best, variant: {"rate_times": times}})
                entry = seed_project.run(variant, self.study.declared.arms[name])
                scores[times] = sum(entry["scores"].get(measure) or 0.0 for measure in measures)
            best[name] = {"rate_times": max(scores, key=lambda times: scores[times])}
            log.info(f"Study {self.study.name}: {name} does best at {best[name]['rate_times']:g} times its usual rate")
        return best

    def _store(self) -> None:
        """The arms that are done, and the verdicts once all are."""
        self.files.share()
        results = results_of(self.study, self.files.entries())
        self.project.tracker.store_study(self.id, results, done=bool(results["claims"]))


@dataclass(frozen=True)
class SeedProject:
    files: ArmFiles
    seed: int
    base: str
    tuned: Tuned

    @property
    def study(self) -> Study:
        return self.files.study

    @property
    def root(self) -> Path:
        return self.files.folder / f"seed-{self.seed}"

    @cached_property
    def project(self) -> Project:
        return Project.open(self.root, self.base)

    def run(self, name: str, arm: Arm) -> Entry:
        """The arm's entry; what is missing of it is computed."""
        if (entry := self.files.entry(self.seed, name)) is not None:
            return entry
        log.info(f"Study {self.study.name}, seed {self.seed}: {name}")
        stages = [self._run_cycle(name, arm, cycle) for cycle in range(arm.cycles)]
        scores = [stage["scores"] for stage in stages]
        pflops = round(sum(stage["pflops"] for stage in stages), 6)
        measured = {
            "steps": sum(stage["steps"] for stage in stages),
            "pflops": pflops,
            "seconds": round(sum(stage["seconds"] for stage in stages), 1),
            "scores": scores[-1],
            "n": stages[-1]["n"],
            "values": stages[-1]["values"] | {"pflops": pflops, "slope": _slope(scores)},
            "stages": [{key: stage[key] for key in KEPT} for stage in stages],
        }
        return self.files.add(new_entry(self.study, self.seed, name, self._settings(name, arm), measured))

    def project_of(self, name: str, arm: Arm) -> Project:
        """An arm of several cycles promotes them, so it has a project of its own."""
        if arm.cycles == 1:
            return self.project
        return Project.open(self.files.folder / f"seed-{self.seed}-{name}", self.base)

    def request(self, name: str, arm: Arm, cycle: int = 0) -> Request:
        """The arm as a training command; for the clean model, one that is only measured."""
        command = arm.command
        values = self._settings(name, arm)
        docs, questions = documents(self.study, self.seed, cycle, self.root)
        warm_start = values.get("warm_start")
        return Request(
            command,
            docs=None if command == "distill" else docs,
            questions=questions,
            student=self._reference(arm.student) if command == "distill" else None,
            teacher=self._reference(arm.teacher) if command != "midtrain" else None,
            prompts=arm_file(self.study, arm.prompts, self.seed, self.root),
            teacher_context=arm_file(self.study, arm.teacher_context, self.seed, self.root),
            ifeval_data=prompts_by_length(self.study, load_chat(self.project.base), self.root),
            limit=self.study.size.items,
            secondary_limit=max(1, self.study.size.items // 2),
            seed=self.seed,
            recipe=arm.recipe if command == "midtrain" else values.get("recipe"),
            mix=values.get("mix"),
            warm_start=None if warm_start is None else str(warm_start),
            assignments=as_assignments(values),
        )

    def _settings(self, name: str, arm: Arm) -> dict[str, Any]:
        values = self.study.settings_of(arm) | dict(self.tuned.get(name, {}))
        times = values.pop("rate_times", None)
        if times is None:
            return values
        stage = "midtrain" if arm.command == "midtrain" else "distill"
        usual = defaults_for(parameters_of(self.project.base), values.get("recipe") if stage == "distill" else None)
        rate = times * getattr(usual, stage).learning_rate
        return values | {f"{stage}.learning_rate": float(f"{rate:.6g}")}

    def _run_cycle(self, name: str, arm: Arm, cycle: int) -> dict[str, Any]:
        project = self.project_of(name, arm)
        request = self.request(name, arm, cycle)
        checkpoint = project.clean if name == CLEAN else self._train(name, arm, cycle)
        plan = eval_plan(project, request, *_midtraining(project, checkpoint))
        plan = plan.with_public_ifeval_checked(load_suites(project.base))
        inputs, engine = RunInputs(stage=f"measure/{name}"), engine_of(project.root, None)
        results = measure_checkpoint(project, checkpoint, plan, None, name, engine=engine, inputs=inputs)
        runs = [run for run in runs_of_job(project, _job_id(name, cycle)) if run.kind != "eval"]
        seconds = project.reader.busy_seconds(run.id for run in runs)
        flops = [point.value for run in runs for point in project.reader.points(run.id, names=["flops"])]
        return {
            "steps": sum(ended.step or 0 for run in runs if (ended := project.reader.run_checkpoint(run.id))),
            "pflops": sum(flops) / 1e15,
            "seconds": sum(seconds.values()),
            "scores": headlines(results),
            "n": {measure: metric.n for measure in headlines(results) if (metric := headline(results, measure))},
            "values": self._drift(project, checkpoint, request) if self.study.measures_drift else {},
            "outcomes": outcomes(results),
            "stopped": next((run.stopped for run in runs if run.stopped), None),
            "runs": [run_entry(project.reader, run) for run in reversed(runs)],
        }

    def _train(self, name: str, arm: Arm, cycle: int) -> Checkpoint:
        """The model of an arm after a cycle; it is trained unless this machine has it."""
        project, job_id = self.project_of(name, arm), _job_id(name, cycle)
        stage = "midtrained" if arm.command == "midtrain" else "recovered"
        job = next((job for job in unfinished_jobs(project.home) if job.id == job_id), None)
        if job is None and _checkpoint_of(project, job_id, stage) is None:
            job = prepare_job(project, self.request(name, arm, cycle), job_id, is_alone=False)
        if job is not None:
            run_job(project, job, PROMOTED if arm.cycles > 1 else NOT_PROMOTED)
        checkpoint = _checkpoint_of(project, job_id, stage)
        assert checkpoint is not None
        return project.locate(checkpoint)

    def _drift(self, project: Project, checkpoint: Checkpoint, request: Request) -> dict[str, float]:
        engine = engine_of(project.root, None)
        results = checkpoint_drift(project, checkpoint, NewTask(request.questions), engine=engine)
        metrics = {name: metric.value for result in results for name, metric in result.metrics.items()}
        return {name: metrics[name] for name in DRIFT_METRICS if name in metrics}

    def _reference(self, role: str) -> str:
        if role == CLEAN or role in NAMED:
            return "base" if role == CLEAN else role
        arm = self.study.arms[role]
        model = [self._train(role, arm, cycle) for cycle in range(arm.cycles)][-1]
        return f"run:{model.run_id}"


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
    values = [score["behaviour"] or 0.0 for score in scores[-LAST_CYCLES:]]
    return linear_regression(range(len(values)), values).slope if len(values) > 1 else 0.0


# What the arms read and are measured by.


def documents(study: Study, seed: int, cycle: int, folder: Path) -> tuple[Path, Path | None]:
    """The documents of a cycle and the questions about them; worlds are written into the folder."""
    if data := study.declared.data:
        docs, questions = (_locate(study, name) for name in (data.docs, data.questions))
        assert docs is not None
        return docs, questions
    folder = folder / f"world-{cycle}"
    if not (folder / "questions.jsonl").is_file():  # written last
        _world(study, seed, cycle).write(folder)
    return folder / "docs", folder / "questions.jsonl"


def _world(study: Study, seed: int, cycle: int = 0) -> World:
    return make_world(FIRST_WORLD + 100 * seed + cycle, study.size.world)


def arm_file(study: Study, name: str | None, seed: int, folder: Path) -> Path | None:
    """A file of an arm: one of the user's, or prompts of the lab for training, other ones for each seed."""
    if name not in (INSTRUCTIONS, QUESTIONS):
        return _locate(study, name)
    file = folder / f"{name}.jsonl"
    if not file.is_file():
        rows = _instruction_rows(seed) if name == INSTRUCTIONS else _question_rows(_world(study, seed))
        write_atomic(file, (json.dumps(row) + "\n" for row in rows))
    return file


def _instruction_rows(seed: int) -> Iterator[Mapping[str, object]]:
    """With what every recipe looks for: a reply, its checks, and the same reply for a teacher to read. Without those
    whose answer repeats the prompt: a teacher may not read the words of what is measured."""
    for task in instruction_tasks(FIRST_WORLD + seed, TRAINING_PROMPTS, "train"):
        if "combination:repeat_prompt" not in task.instruction_id_list:
            asked = zip(task.instruction_id_list, task.kwargs, strict=True)
            checks = [{"instruction": id, "kwargs": kwargs} for id, kwargs in asked]
            shown = {"demonstration": task.answer, "solution": task.answer}
            yield {"prompt": task.prompt, "answer": task.answer, "checks": checks, **shown}


def _question_rows(world: World) -> Iterator[Mapping[str, object]]:
    of_the_suite = {question.question for question in world.questions()}
    for fact in world.facts:
        wordings = (fact.question(wording).question for wording in range(len(fact.relation.questions)))
        yield from ({"prompt": wording} for wording in wordings if wording not in of_the_suite)


def prompts_by_length(study: Study, chat: Chat, folder: Path) -> Path | None:
    """Held-out instructions, as many of each group of lengths; the group is the first part of an item's key."""
    groups = length_groups(study.declared.answer_tokens)
    if not groups:
        return None
    file = folder / "prompts-by-length.jsonl"
    if not file.is_file():
        write_atomic(file, (json.dumps(row) + "\n" for row in _rows(study, chat, groups)))
    return file


def _rows(study: Study, chat: Chat, groups: list[str]) -> Iterator[dict[str, object]]:
    left = dict.fromkeys(groups, study.size.items // len(groups))
    for task in instruction_tasks(PROMPTS_SEED, MAX_TASKS, "heldout"):
        tokens = len(chat.tokenizer(task.answer, add_special_tokens=False)["input_ids"])
        group = groups[sum(tokens > bound for bound in study.declared.answer_tokens)]
        if left[group]:
            left[group] -= 1
            yield {**asdict(task), "key": f"{group}/{task.key}"}
        if not any(left.values()):
            return
    raise RecoverError(
        f"There are too few prompts with long answers for {study.size.items} items. Lower items, or answer_tokens."
    )


def _locate(study: Study, name: str | None) -> Path | None:
    if name is None:
        return None
    path = study.path_of(name)
    if not path.exists():
        raise RecoverError(f"There is no {path}, which the study {study.name} names. Paths are relative to its file.")
    return path
