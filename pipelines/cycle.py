"""One cycle: teach, measure the damage, bring the behaviour back, measure again, promote or reject."""

import getpass
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from db.views import Checkpoint
from evals.behaviour import read_prompts
from evals.knowledge import read_questions
from evals.results import Result, headlines, main_result
from pipelines.documents import Corpus
from pipelines.gate import Verdict, judge
from pipelines.measuring import Measures, measure_checkpoint
from pipelines.project import Project
from pipelines.settings import Settings, defaults_for, differences, merged, read_toml
from pipelines.stages import Say, Trained, distill, midtrain
from recovery.errors import RecoverError
from recovery.recipes import RECIPES, recipe
from recovery.students import load_chat, parameters_of
from recovery.teachers import check_same_language

# What a command line can give all that it needs: the student's rollouts, or the teacher's, and a teacher to judge them.
DISTILLING = [name for name, r in RECIPES.items() if r.share == 1 and r.data in ("none", "teacher")]


@dataclass(frozen=True)
class Outcome:
    """What came of a cycle, or of a distillation alone."""

    cycle: int
    clean: list[Result]
    damaged: list[Result]
    recovered: list[Result]
    verdict: Verdict
    checkpoint: Checkpoint
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "cycle": self.cycle or None,
            "clean": headlines(self.clean),
            "damaged": headlines(self.damaged),
            "recovered": headlines(self.recovered),
            "verdict": self.verdict.as_dict(),
            "promoted": self.verdict.passed,
            "checkpoint": self.checkpoint.reference,
            "path": self.checkpoint.path,
            "seconds": round(self.seconds, 1),
        }


@dataclass
class Cycle:
    """The stages of one cycle, on record under one number."""

    project: Project
    settings: Settings
    measures: Measures
    seed: int
    say: Say
    id: int = 0
    number: int = 0

    def check(self, teacher: Checkpoint | None = None) -> "Cycle":
        """Whatever can be refused is refused here, before anything is computed."""
        if recipe(self.settings.midtrain.recipe).data != "documents":
            raise RecoverError(
                f"mid-training reads documents: {self.settings.midtrain.recipe!r} does not; use midtrain"
            )
        wanted = self.settings.distill
        if wanted.recipe not in DISTILLING:
            raise RecoverError(f"distillation has no recipe {wanted.recipe!r}; choose one of {', '.join(DISTILLING)}")
        if wanted.rows % recipe(wanted.recipe).group:
            raise RecoverError(
                f"distill.rows = {wanted.rows} does not divide into groups of {recipe(wanted.recipe).group}"
            )
        if self.measures.questions is not None:
            read_questions(self.measures.questions)
        if self.measures.ifeval_data is not None:
            read_prompts(self.measures.ifeval_data)
        if teacher is not None:
            check_same_language(load_chat(self.project.base), load_chat(teacher.path))
        return self

    def open(self, corpus: Corpus) -> "Cycle":
        path = corpus.path.resolve()
        documents = self.project.tracker.corpus(path, corpus.hash, corpus.files, sum(map(len, corpus.texts)) // 4)
        self.id, self.number = self.project.tracker.open_cycle(self.project.id, documents)
        return self

    def run(self, corpus: Corpus, teacher: Checkpoint, prompts: list[str] | None) -> Outcome:
        started = time.perf_counter()
        damaged = self.midtrain(corpus)
        outcome = self.recover(damaged.checkpoint, teacher, prompts)
        return replace(outcome, seconds=time.perf_counter() - started)

    def remember_questions(self, damaged: Checkpoint) -> None:
        """Where none are given now, the questions that were given with the documents."""
        run = self.project.reader.run(damaged.run_id) if damaged.run_id else None
        given = run.settings.get("questions") if run else None
        if self.measures.questions is None and given:
            self.measures = replace(self.measures, questions=Path(given))

    def midtrain(self, corpus: Corpus) -> Trained:
        start, questions = self.project.current, self.measures.questions
        return midtrain(self.project, self.settings, corpus, start, self.id, self.seed, self.say, questions)

    def recover(self, damaged: Checkpoint, teacher: Checkpoint, prompts: list[str] | None) -> Outcome:
        started = time.perf_counter()
        clean = self.measure(self.project.clean, "the clean model")
        before = self.measure(damaged, "the mid-trained model")
        recovered = distill(
            self.project, self.settings, damaged, teacher, prompts, self.id or None, self.seed, self.say
        )
        after = self.measure(recovered.checkpoint, "the recovered model")
        verdict = self.judge(clean, before, after)
        self.decide(recovered.checkpoint, verdict)
        seconds = time.perf_counter() - started
        return Outcome(self.number, clean, before, after, verdict, recovered.checkpoint, seconds)

    def measure(self, checkpoint: Checkpoint, name: str) -> list[Result]:
        return measure_checkpoint(self.project, checkpoint, self.measures, self.id or None, self.say, name)

    def judge(self, clean: list[Result], before: list[Result], after: list[Result]) -> Verdict:
        reference, behaviour = main_result(clean, "behaviour"), main_result(after, "behaviour")
        assert reference is not None
        assert behaviour is not None
        knowledge = [main_result(results, "knowledge") for results in (before, after)]
        best = max((k.headline.value for k in knowledge if k is not None), default=None)
        return judge(self.settings.gate, reference, behaviour, knowledge[1], best)

    def decide(self, recovered: Checkpoint, verdict: Verdict) -> None:
        decision: Any = "promoted" if verdict.passed else "rejected"
        self.say(f"{decision}: {verdict.reason}")
        tracker = self.project.tracker
        tracker.promote(self.project.id, self.id or None, recovered.id, decision, _user(), verdict.reason)
        if self.id:
            tracker.close_cycle(self.id, decision, verdict.as_dict())


def begin(
    folder: Path | None, base: str | None, measures: Measures, wanted: dict[str, Any], seed: int, say: Say
) -> Cycle:
    """A cycle ready to run: the project opened, its settings resolved for the model's size and announced."""
    project = Project.open(folder, base)
    if project.base_is_default:
        say(f"base: the built-in lab model ({project.base}); choose another with --base FOLDER or a hub id")
    usual = defaults_for(parameters_of(project.base))
    settings = merged(merged(usual, read_toml(project.root)), wanted)
    for line in differences(settings, usual):
        say(f"setting {line}")
    return Cycle(project, settings, measures, seed, say)


def cycle_of(project: Project, checkpoint: Checkpoint) -> tuple[int, int]:
    """The (id, number) of the open cycle a checkpoint belongs to; zeros for a model from outside.

    A cycle that was decided stays as it was decided: recovering its model once more is a run by itself."""
    found = next((c for c in project.reader.cycles(project.id) if c.number == checkpoint.cycle), None)
    return (found.id, found.number) if found and found.status == "open" else (0, 0)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id, as in a container
        return "unknown"
