"""One cycle: teach, measure the damage, bring the behaviour back, measure again, promote or reject.

Every stage asks the record first whether it is done already: a cycle that was interrupted is carried out by the same
code as a fresh one.
"""

import getpass
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from db.views import Checkpoint
from evals.contamination import sift
from evals.results import Result, headlines, main_result
from evals.suites.config import suites_of
from evals.suites.knowledge import read_questions
from pipelines.documents.snapshot import CorpusSnapshot, delete_snapshot, load_snapshot, require_snapshot
from pipelines.evaluation.measure import EvalPlan, earlier_results, knowledge_of, measure_checkpoint
from pipelines.gate import Verdict, judge, must_pass_or_fail
from pipelines.job import Job
from pipelines.log import log
from pipelines.project.past_cycles import PastCycle, past_cycles
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from pipelines.project.runs import runs_of
from pipelines.settings import AUTO, Settings, apply_overrides
from pipelines.synthetic.prefixes import document_prefixes
from pipelines.synthetic.prompts import read_prompts
from pipelines.training.probes import ReadingProber, probe_part, probing
from pipelines.training.run import RunResult
from pipelines.training.stages import Stages
from pipelines.training.teachers import Teachers
from recovery.errors import RecoverError

RUN = 40  # words in a row that make a prompt an item: instructions are made of shorter ones that everybody uses
Ask = Callable[[Verdict], bool | None]  # a person's decision; None: later


@dataclass(frozen=True)
class Outcome:
    """What came of a cycle, or of a distillation alone."""

    cycle: int
    clean: list[Result]
    damaged: list[Result]
    recovered: list[Result]
    verdict: Verdict
    promoted: bool
    distilled: RunResult
    decided: bool = True
    replay: dict[str, Any] | None = None  # as mid-training chose it, where it was asked to

    def as_json(self) -> dict[str, Any]:
        made = self.distilled.checkpoint
        clean, damaged, recovered = (headlines(r) for r in (self.clean, self.damaged, self.recovered))
        gained = (recovered["behaviour"] or 0.0) - (damaged["behaviour"] or 0.0)
        seconds = round(self.distilled.seconds, 1)
        return {
            "cycle": self.cycle or None,
            "clean": clean,
            "damaged": damaged,
            "recovered": recovered,
            "earlier": {str(n): result.headline.value for n, result in earlier_results(self.recovered).items()},
            "verdict": self.verdict.as_dict(),
            "promoted": self.promoted,
            "awaiting_decision": not self.decided,
            "checkpoint": made.reference,
            "path": made.path,
            "steps": self.distilled.steps,
            "stopped": self.distilled.stopped or None,
            "answers_search": self.replay,
            "warm_start": self.distilled.warm,
            "cost": {"seconds": seconds, "seconds_per_point": round(seconds / gained / 100, 2) if gained > 0 else None},
        }


@dataclass
class Cycle:
    """The stages of one job, on record under one number."""

    project: Project
    job: Job
    id: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.settings: Settings = apply_overrides(Settings(), self.job.settings)
        self.measures = EvalPlan.from_json(self.job.measures).located(self.project.home)

    def teach(self) -> RunResult:
        """The first stage, in a cycle of its own."""
        corpus = self._corpus()
        self._open(corpus)
        earlier = self._earlier_corpora() if self.settings.midtrain.mix.earlier else []
        given = {name: self.job.measures[name] for name in ("questions", "passages")}
        told = given | {"corpus": corpus.hash}
        looking = None
        if self._tries_replay and self._enough_to_probe:
            looking = ReadingProber(probe_part(self.measures, self.settings.distill.probe_items), self._suites)
        return self._stages.midtrain(corpus, self._checkpoint(self.job.start), earlier, told, looking)

    def run(self, ask: Ask | None = None) -> Outcome:
        taught = self.teach()
        return replace(self.recover(taught.checkpoint, ask), replay=taught.replay)

    def repair(self, ask: Ask | None = None) -> Outcome:
        """The second stage alone, on a checkpoint that waits for it or on a model from anywhere."""
        student = self._checkpoint(self.job.student)
        self.id, self.number = cycle_of(self.project, student, self.job)
        return self.recover(student, ask)

    def recover(self, damaged: Checkpoint, ask: Ask | None = None) -> Outcome:
        looking = None
        if self.settings.distill.probe_every and self._enough_to_probe:
            items = self.settings.distill.probe_items
            looking = probing(self.settings.gate, self.measures, items, self._look_at_clean, self._suites)
        looked = looking is not None or self._has_tried_replay(damaged)
        final = replace(self.measures, part="final" if looked else "all")
        clean = self._measure(self.project.clean, "the clean model", replace(final, earlier=()), "clean")
        must_pass_or_fail(main_result(clean, "behaviour"))
        before = self._measure(damaged, "the model to recover", final, "damaged")
        measured = [item.prompt for result in clean for item in result.items]
        prompts = self._prompts(measured)
        distilled = self._stages.distill(damaged, self._teachers(len(prompts), measured), prompts, looking)
        after = self._measure(distilled.checkpoint, "the recovered model", final, "recovered")
        verdict = self._judge(clean, before, after)
        promoted, decided = self._decide(distilled.checkpoint, verdict, ask)
        return Outcome(self.number, clean, before, after, verdict, promoted, distilled, decided)

    def _prompts(self, measured: list[str]) -> list[str]:
        """What the student is asked while it is distilled: nothing that it will be measured by."""
        given = self.job.prompts
        said = read_prompts(relocate(self.project.home, Path(given))) if given else self._stages.prompts_to_distil()
        sifted = sift(said, measured, RUN)
        if sifted.leaks:
            some = "one prompt shares its" if len(sifted.leaks) == 1 else f"{len(sifted.leaks)} prompts share their"
            log.info(f"left out: {some} words with what is measured")
        if not sifted.kept:
            raise RecoverError("every prompt shares its words with what is measured; give others with --prompts")
        return sifted.kept

    def _teachers(self, prompts: int, measured: list[str]) -> Teachers:
        """Who judges the rollouts; a router's earlier share comes from documents, never from what is asked of them."""
        chosen, share = self._checkpoint(self.job.teacher), self.settings.distill.earlier_prompts
        before = self._taught() if self.job.router and share else []
        if not before:
            if self.job.router:
                log.info("nothing earlier to remember: the router is the clean model alone")
            return Teachers(chosen)
        asked = document_prefixes(self._earlier_corpora(), round(share / (1 - share) * prompts), self.job.seed)
        questions = [q.text for _, file in self.measures.earlier for q in read_questions(file)]
        kept = sift(asked, [*measured, *questions]).kept
        if not kept:
            log.info("no earlier documents are kept to ask about: the router is the clean model alone")
            return Teachers(chosen)
        log.info(f"{len(kept)} openings of earlier documents beside {prompts} prompts")
        return Teachers(chosen, self._checkpoint(before[-1].checkpoint), tuple(kept))

    @property
    def _suites(self) -> dict[str, str]:
        return suites_of(self.project.base)

    @property
    def _stages(self) -> Stages:
        return Stages(self.project, self.settings, self.job, self.id or None, self.number)

    def _open(self, corpus: CorpusSnapshot) -> None:
        """The job's cycle; a new one, unless it has begun (or an earlier command ended before its first run)."""
        cycles = self.project.reader.cycles(self.project.id)
        begun = next((run.cycle for run in runs_of(self.project, self.job) if run.cycle), None)
        found = next((c for c in cycles if c.number == begun), None)
        if found is None:
            tracker, tokens = self.project.tracker, sum(len(text) for text in corpus.texts) // 4
            documents = tracker.corpus(corpus.path, corpus.hash, corpus.files, tokens)
            tracker.documents(documents, corpus.documents())
            ran = {run.cycle for run in self.project.reader.runs(self.project.id)}
            orphans = [c for c in cycles[-1:] if c.status == "open" and c.number not in ran]
            found = next((c for c in orphans if c.corpus_id == documents), None)
            if found is None:
                self.id, self.number = tracker.open_cycle(self.project.id, documents)
                return
        self.id, self.number = found.id, found.number

    def _corpus(self) -> CorpusSnapshot:
        job = self.job
        assert job.corpus is not None
        assert job.documents is not None
        return require_snapshot(self.project.home, job.corpus, Path(job.documents), job.files)

    def _earlier_corpora(self) -> list[CorpusSnapshot]:
        found = [load_snapshot(self.project.home, t.corpus, Path(t.documents), 0) for t in self._taught()]
        return [corpus for corpus in found if corpus is not None]

    def _checkpoint(self, id: int | None) -> Checkpoint:
        found = self.project.reader.checkpoint(id) if id is not None else None
        if found is None:
            raise RecoverError("the checkpoint this was begun with is no longer on record; run the command again")
        return self.project.verify(found)

    def _look_at_clean(self, probe_part: EvalPlan) -> list[Result]:
        return self._measure(self.project.clean, "the clean model's probe set", probe_part, "probe")

    def _measure(self, checkpoint: Checkpoint, name: str, measures: EvalPlan, stage: str) -> list[Result]:
        return measure_checkpoint(
            self.project, checkpoint, measures, self.id or None, name,
            engine=self.settings.engine, job=self.job, stage=f"measure/{stage}",
        )  # fmt: skip

    def _judge(self, clean: list[Result], before: list[Result], after: list[Result]) -> Verdict:
        reference, behaviour = main_result(clean, "behaviour"), main_result(after, "behaviour")
        assert reference is not None
        assert behaviour is not None
        knowledge = [knowledge_of(results) for results in (before, after)]
        best = max((k.headline.value for k in knowledge if k is not None), default=None)
        now, then = earlier_results(after), {t.cycle: t for t in self._taught()}
        earlier = {n: (now[n], then[n].known) for n in now if n in then}
        return judge(self.settings.gate, reference, behaviour, knowledge[1], best, earlier)

    @property
    def _tries_replay(self) -> bool:
        return self.job.command != "distill" and self.settings.midtrain.mix.answers == AUTO

    def _has_tried_replay(self, damaged: Checkpoint) -> bool:
        """Then its mid-training has looked at the probe set, in this job or in one before."""
        run = self.project.reader.run(damaged.run_id) if damaged.run_id is not None else None
        return bool(run and (run.settings.get("replay") or {}).get("tried"))

    @cached_property
    def _enough_to_probe(self) -> bool:
        """Whether the verdict can do without the fifth of the items that distilling looks at."""
        few = self.measures.too_few_to_part(self._suites)
        if few:
            log.info(f"{few}: all are kept for the verdict, none for probes on the way")
        return not few

    def _taught(self) -> list[PastCycle]:
        return past_cycles(self.project, self._checkpoint(self.job.start)) if self.job.start else []

    def _decide(self, recovered: Checkpoint, verdict: Verdict, ask: Ask | None) -> tuple[bool, bool]:
        """(promoted, decided): the gate's decision, or a person's; one that was taken before this was resumed stays."""
        taken = next(
            (p for p in self.project.reader.promotions(self.project.id) if p.checkpoint_id == recovered.id), None
        )
        if taken is not None:
            return taken.decision == "promoted", True
        if ask and self.id:  # whoever decides may look at the pages first
            self.project.tracker.judged(self.id, recovered.id, verdict.as_dict())
        wished = ask(verdict) if ask else verdict.passed
        if wished is None:
            log.info(f"waiting for a decision ({verdict.reason}): recover promote {recovered.reference}")
            return False, False
        decision: Any = "promoted" if wished else "rejected"
        why = verdict.reason if wished == verdict.passed else f"decided against the gate: {verdict.reason}"
        log.info(f"{verdict.put(wished)}: {why}")
        self.project.tracker.promote(
            self.project.id, self.id or None, recovered.id, decision, who(), why, verdict.as_dict()
        )
        return wished, True


def run_job(project: Project, job: Job, ask: Ask | None = None) -> RunResult | Outcome:
    """From the beginning, or from wherever it was interrupted."""
    cycle = Cycle(project, job)
    work: dict[str, Callable[[], RunResult | Outcome]] = {
        "midtrain": cycle.teach,
        "distill": lambda: cycle.repair(ask),
        "cycle": lambda: cycle.run(ask),
    }
    try:
        done = work[job.command]()
    except KeyboardInterrupt:
        at = "" if project.is_where_one_is else f" --project {shlex.quote(str(project.root))}"
        raise KeyboardInterrupt(f"`recover resume{at}` goes on from where it was saved") from None
    if job.corpus and not cycle.settings.keep_documents:
        delete_snapshot(project.home, job.corpus)
    job.done(project.home)
    return done


def cycle_of(project: Project, checkpoint: Checkpoint, job: Job | None = None) -> tuple[int, int]:
    """The (id, number) of the open cycle a checkpoint belongs to; zeros for a model from outside.

    A cycle that was decided stays as it was decided: recovering its model once more is a run by itself. Unless this
    very job decided it, and was interrupted before it could say so."""
    found = next((c for c in project.reader.cycles(project.id) if c.number == checkpoint.cycle), None)
    if found is None or found.status == "open":
        return (found.id, found.number) if found else (0, 0)
    ours = job and any(run.cycle == found.number for run in runs_of(project, job))
    return (found.id, found.number) if ours else (0, 0)


def who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id, as in a container
        return "unknown"
