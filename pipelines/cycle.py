"""One cycle: mid-train, measure the damage, distil, measure again, promote or reject.

Every stage asks the record first whether it is done already, so a resumed job runs through the same code as a new one.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from db.column_types import plain_json
from db.next_attempt import Attempt, NextAttempt, advise
from db.tables import Checkpoint, Decision, Promotion, RunInputs
from evals.results import Item, Result, headlines, main_result
from evals.suites.config import load_suites
from evals.suites.training_texts import has_conversations
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.evaluation.checkpoint_measurement import (
    StopRule,
    as_result,
    copy_results,
    earlier_results,
    knowledge_result,
    measure_checkpoint,
)
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.promotion import current_user
from pipelines.gate.verdict import (
    OtherResults,
    Verdict,
    follows_too_little,
    judge,
    require_pass_fail,
    settles_behaviour,
)
from pipelines.job import Job
from pipelines.log import log
from pipelines.project.locations import project_option
from pipelines.project.lock import published_progress, update_holder
from pipelines.project.project import Project
from pipelines.project.runs import PastCycle, dropped_cycles, made_promoted, runs_of_job
from pipelines.training.distill import distill
from pipelines.training.midtrain import midtrain, midtrain_in_context
from pipelines.training.probes import DistillProbe, best_knowledge, probe_set
from pipelines.training.recipe_inputs import check_contamination
from pipelines.training.stage_context import Stage, Teachers
from pipelines.training.training_run import RunResult
from recovery.recipes import recipe


@dataclass(frozen=True)
class Answer:
    promote: bool
    reason: str


@dataclass(frozen=True)
class Outcome:
    cycle: int  # its number, 0 for a repair outside any cycle
    clean: list[Result]
    damaged: list[Result]
    recovered: list[Result]
    verdict: Verdict
    promoted: bool
    distilled: RunResult
    decision: str  # for people to read
    next_attempt: NextAttempt | None = None  # what to try after a rejection

    def as_json(self) -> dict[str, Any]:
        run, checkpoint = self.distilled, self.distilled.checkpoint
        return {
            "cycle": self.cycle or None,
            "clean": headlines(self.clean),
            "damaged": headlines(self.damaged),
            "recovered": headlines(self.recovered),
            "verdict": self.verdict.as_dict(),
            "promoted": self.promoted,
            "checkpoint": checkpoint.reference,
            "path": checkpoint.path,
            "steps": run.steps,
            "stopped": run.stopped or None,
            "next_attempt": self.next_attempt.command if self.next_attempt else None,
            "warm_start": run.warm_start,
            "cost": {"seconds": round(run.seconds, 1)},
        }


def run_job(project: Project, job: Job, answer: Answer | None = None) -> RunResult | Outcome:
    """From the beginning, or from wherever the job was interrupted."""
    cycle = Cycle(project, job, answer=answer)
    run: dict[str, Callable[[], RunResult | Outcome]] = {
        "midtrain": cycle.midtrain,
        "distill": cycle.distill,
        "cycle": cycle.run,
    }
    with saved_job(project, job):
        return run[job.command]()


@contextmanager
def saved_job(project: Project, job: Job) -> Iterator[None]:
    """The job is deleted once it is done; an interruption says how to go on. Others see how far it is."""
    update_holder(project.home, job=job.id)
    try:
        with published_progress(project):
            yield
    except KeyboardInterrupt:
        resume = shlex.join(["recover", "resume", *project_option(project.root)])
        raise KeyboardInterrupt(f"Go on from the last saved state with `{resume}`.") from None
    job.delete(project.home, project.reader.runs(project.id))


@dataclass(frozen=True)
class Cycle(Stage):
    """The stages of one job, recorded under one cycle."""

    answer: Answer | None = None  # in place of the gate's
    known: float | None = None  # what a fine-tune knew before the moves of a repair, which is all they have to keep
    objection: Callable[[Checkpoint], str] | None = None  # why one that passes is not promoted all the same

    def run(self) -> Outcome:
        if self.files.read(self.settings.distill, self.job.seed):  # else the base has written no prompts yet
            prompts = self.all_prompts()
            check_contamination(prompts, self.questions)
            if teacher := self.main_teacher():  # else it does not exist yet
                self.check_lift(teacher, prompts)
        midtrained = self.midtrain().checkpoint
        return self._in_cycle_of(midtrained).recover(midtrained)

    def midtrain(self) -> RunResult:
        corpus = self.corpus() if self.job.corpus else None
        earlier = self.earlier_corpora() if self.settings.midtrain.mix.earlier else []
        start, stage = self.checkpoint(self.job.start), self._opened(corpus)
        if corpus and recipe(self.settings.midtrain.recipe).context:
            return midtrain_in_context(stage, corpus, start, earlier)
        return midtrain(stage, corpus, start, earlier)

    def distill(self) -> Outcome:
        """The second stage alone: an attempt of the student's cycle, or the repair of a model from outside."""
        student = self.checkpoint(self.job.student)
        return self._in_cycle_of(student).recover(student)

    def judge_student(self, name: str = "the fine-tune") -> tuple[list[Result], list[Result], Verdict]:
        """The results of the clean model and of the student as it is, and the gate's verdict on the student."""
        student = self.checkpoint(self.job.student)
        final = self._final_plan()
        clean = self._measure_clean(final)
        until_clear = self._stop_rule(clean, partial(settles_behaviour, self.settings.gate, clean))
        results = self._measure(student, name, final, "damaged", until_clear)
        return clean, results, self._judge(clean, results, results)

    def recover(self, damaged: Checkpoint) -> Outcome:
        main_teacher = self.main_teacher() or damaged
        lift = self.check_lift(main_teacher)
        probe = self._probe() if self._has_probes else None
        final = self._final_plan()
        clean = self._measure_clean(final)
        if self._may_leave_out_distillation:
            before = self._measure(damaged, "the mid-trained model", final, "damaged", self._until_clear(clean))
            if self._judge(clean, before, before).passed:
                return self._keep_as_it_is(damaged, main_teacher, clean, before)
        else:
            first_block = self._stop_rule(clean, lambda items: True)  # its score decides nothing
            before = self._measure(damaged, "the model to recover", final, "damaged", first_block)
        measured = [*clean, *(probe.clean if probe else [])]
        items_text = [item.prompt for result in measured for item in result.items]
        prompts = self.prompts(items_text) if self.settings.distill.steps else []
        teachers = self.teachers(main_teacher, len(prompts), items_text)
        distilled = distill(self, damaged, teachers, prompts, probe, lift)
        if self.cycle and self._earlier_decision(distilled.checkpoint) is None:
            self.project.tracker.reopen_cycle(self.cycle)
        is_copy = not (self.settings.distill.steps or (distilled.warm_start or {}).get("share"))
        # A repair's copy of the model as it was, which the gate has rejected, is not measured again. In a cycle a copy
        # may be promoted, and then its own scores are what later cycles must keep.
        judged = damaged if is_copy and self.job.eval_plan.probe_all else distilled.checkpoint
        if is_copy and self._may_leave_out_distillation:
            copy_results(self.project, damaged, judged)
            after = before
        else:
            after = self._measure(judged, "the recovered model", final, "recovered", self._until_clear(clean, before))
        verdict = self._judge(clean, before, after)
        promoted, decision = self._decide(distilled.checkpoint, verdict)
        advice = self._next_attempt(damaged, distilled, verdict) if not promoted else None
        number = self.cycle_number
        return Outcome(number, clean, before, after, verdict, promoted, distilled, decision, next_attempt=advice)

    @property
    def _may_leave_out_distillation(self) -> bool:
        return self.job.command == "cycle" and self.settings.distill.if_needed and self.restores

    def _keep_as_it_is(
        self, midtrained: Checkpoint, teacher: Checkpoint, clean: list[Result], results: list[Result]
    ) -> Outcome:
        """The mid-trained model passes the gate: a copy of it is the cycle's result."""
        log.info("The mid-trained model passes the gate as it is: nothing is distilled")
        none = self.settings.distill.model_copy(update={"steps": 0, "warm_start": "off"})
        job = replace(self.job, settings=self.settings.model_copy(update={"distill": none}))
        copied = distill(replace(self, job=job), midtrained, Teachers(teacher), [], None)
        copy_results(self.project, midtrained, copied.checkpoint)
        verdict = self._judge(clean, results, results)
        promoted, decision = self._decide(copied.checkpoint, verdict)
        return Outcome(self.cycle_number, clean, results, results, verdict, promoted, copied, decision)

    def _final_plan(self) -> EvalPlan:
        return replace(self.job.eval_plan, split="final" if self._has_probes else "all")

    @property
    def _has_probes(self) -> bool:
        return self.settings.distill.probe_every > 0 and self._can_probe

    def _probe(self) -> DistillProbe:
        plan = probe_set(self.job.eval_plan, self.settings.distill.probe_items)
        of_clean = plan if plan.probe_all else replace(plan, suite="behaviour")
        clean = self._measure(self.project.clean, "the clean model on the probe set", of_clean, "probe")
        if plan.passages and has_conversations(plan.passages) and not plan.probe_all:
            # The likelihood of answers has a floor: what the clean model finds them.
            clean += self._measure(
                self.project.clean, "the clean model on the probe set", replace(plan, suite="knowledge"), "probe/floor"
            )
        return DistillProbe(self.settings.gate, plan, clean, self._suites, self.known)

    def _measure_clean(self, final: EvalPlan) -> list[Result]:
        clean = self._measure(self.project.clean, "the clean model", replace(final, earlier_questions=()), "clean")
        behaviour = main_result(clean, "behaviour")
        require_pass_fail(behaviour)
        if behaviour is not None and (line := follows_too_little(self.settings.gate, behaviour)):
            log.warning(f"{line[0].upper()}{line[1:]}")
        return clean

    @property
    def _suites(self) -> dict[str, str]:
        return load_suites(self.project.base)

    def _opened(self, corpus: CorpusSnapshot | None) -> Self:
        """In the job's cycle: a new one, unless it has one, or an earlier command opened one and never began a run."""
        cycles = self.project.reader.cycles(self.project.id)
        number = next((run.cycle for run in runs_of_job(self.project, self.job.id) if run.cycle), None)
        cycle = next((c for c in cycles if c.number == number), None)
        if cycle is None:
            tracker = self.project.tracker
            corpus_id = tracker.corpus(corpus.path if corpus else self.job.conversations or Path(), self.job.content)
            tracker.documents(corpus_id, corpus.documents() if corpus else ())
            with_runs = {run.cycle for run in self.project.reader.runs(self.project.id)}
            unused = [c for c in cycles[-1:] if c.status == "open" and c.number not in with_runs]
            cycle = next((c for c in unused if c.corpus_id == corpus_id), None)
            if cycle is None:
                id, number = tracker.open_cycle(self.project.id, corpus_id)
                return replace(self, cycle=id, cycle_number=number)
        return replace(self, cycle=cycle.id, cycle_number=cycle.number)

    def _in_cycle_of(self, checkpoint: Checkpoint) -> Self:
        """In the checkpoint's cycle; in none for a model from outside.

        A promoted cycle stays as it is, and another repair of its model is a run by itself; unless this very job
        made what was promoted, and was interrupted before its end."""
        cycle = next((c for c in self.project.reader.cycles(self.project.id) if c.number == checkpoint.cycle), None)
        if cycle is None or (cycle.status == "promoted" and not made_promoted(cycle, self.project, self.job.id)):
            return self
        return replace(self, cycle=cycle.id, cycle_number=cycle.number)

    def _measure(
        self, checkpoint: Checkpoint, name: str, plan: EvalPlan, stage: str, rule: StopRule | None = None
    ) -> list[Result]:
        inputs = RunInputs(job=self.job.id, stage=f"measure/{stage}")
        engine, cycle = self.settings.engine, self.cycle
        return measure_checkpoint(self.project, checkpoint, plan, cycle, name, engine=engine, inputs=inputs, rule=rule)

    def _stop_rule(
        self,
        clean: list[Result],
        enough: Callable[[list[Item]], bool],
        fails_anyway: Callable[[list[Result]], bool] = lambda others: False,
    ) -> StopRule | None:
        """Ask in blocks where there is more than one; the clean model has been asked all prompts."""
        main, block = main_result(clean, "behaviour"), self.settings.gate.block
        return StopRule(block, len(main.items), enough, fails_anyway) if main and 0 < block < len(main.items) else None

    def _until_clear(self, clean: list[Result], before: list[Result] | None = None) -> StopRule | None:
        """Until the loss is within or beyond the margin; one block where another limit is not met."""
        return self._stop_rule(
            clean,
            partial(settles_behaviour, self.settings.gate, clean),
            lambda others: self._others(clean, before or others, others).fails(self.settings.gate),
        )

    def _judge(self, clean: list[Result], before: list[Result], after: list[Result]) -> Verdict:
        reference, behaviour = main_result(clean, "behaviour"), main_result(after, "behaviour")
        assert reference is not None
        assert behaviour is not None
        damaged = None if before is after else main_result(before, "behaviour")
        others = self._others(clean, before, after)
        limit_for = partial(self._final_plan().limit_for, named=self._suites)
        return judge(self.settings.gate, reference, behaviour, others, damaged, limit_for)

    def _others(self, clean: list[Result], before: list[Result], after: list[Result]) -> OtherResults:
        of_clean, *in_cycle = (knowledge_result(results) for results in (clean, before, after))
        best = self.known
        if best is None:
            of_cycle = [k.headline.value for k in in_cycle if k is not None]
            best = best_knowledge(*of_cycle, *self.known_before(in_cycle[1]))
        measured = [past for past in self.past_cycles() if past.knowledge is not None]
        current, past = earlier_results(after), {past.cycle: past for past in measured}
        earlier = {n: self._now_and_then(current[n], past[n]) for n in current if n in past}
        clean_knowledge = of_clean.headline.value if of_clean else None
        damaged = [] if before is after else before
        return OtherResults(in_cycle[1], best, earlier, clean_knowledge, (clean, after), damaged)

    def known_before(self, now: Result | None) -> list[float]:
        """What the models of the student's cycle before it knew, by the same questions: an attempt that goes on from a
        rejected one must bring back what that lost."""
        if now is None or self.job.student is None:
            return []
        student, *before = self.project.reader.lineage(self.job.student)
        of_cycle = [checkpoint for checkpoint in before if student.cycle and checkpoint.cycle == student.cycle]
        evaluations = [e for checkpoint in of_cycle for e in self.project.reader.evaluations(checkpoint.id)]
        then = [as_result(self.project, e) for e in evaluations if e.suite == now.suite]
        keys = now.passed_by_key().keys()
        if now.is_pass_rate:
            then = [r.on(keys) for r in then if not keys.isdisjoint(r.passed_by_key())]
        return [r.headline.value for r in then if r.id == now.id and r.passed_by_key().keys() <= keys]

    def _now_and_then(self, now: Result, past: PastCycle) -> tuple[Result, float]:
        """Knowledge of an earlier cycle's documents, and what it was at that cycle's end, on questions asked both
        times: then those of probes were left out, or another limit was given."""
        then = self.project.reader.passes(past.evaluation) if past.evaluation is not None else {}
        both = then.keys() & now.passed_by_key().keys()
        if not both or not now.is_pass_rate:
            return now, past.knowledge or 0.0
        return now.on(both), sum(bool(then[key]) for key in both) / len(both)

    @cached_property
    def _can_probe(self) -> bool:
        """Whether the verdict can do without the fifth of the items that probes use."""
        problem = self.job.eval_plan.split_problem(self._suites)
        if problem:
            log.info(f"There are {problem}: all are kept for the verdict, none for probes")
        return not problem

    def _decide(self, recovered: Checkpoint, verdict: Verdict) -> tuple[bool, str]:
        """Whether it is promoted, and the decision as text. An earlier decision stays, but for a rejection by the gate
        if a repair has measured on other items since."""
        earlier = self._earlier_decision(recovered)
        if earlier and _is_rejection_by_gate(earlier) and earlier.verdict != plain_json(verdict.as_dict()):
            earlier = None
        if earlier is not None:
            promoted, reason = earlier.decision == "promoted", earlier.why
        else:
            objection = (self.objection or self._drops)(recovered) if verdict.passed and not self.answer else ""
            answer = self.answer or Answer(verdict.passed and not objection, objection or verdict.reason)
            promoted, reason = answer.promote, answer.reason
        text = verdict.decision_text(promoted)
        if earlier is None:
            log.info(f"{text.capitalize()}: {reason}")
            decision: Decision = "promoted" if promoted else "rejected"
            self.project.tracker.promote(
                self.project.id, self.cycle, recovered.id, decision, current_user(), reason, verdict.as_dict()
            )
        return promoted, f"{text}: {reason}" if verdict.passed and not promoted else text

    def _drops(self, recovered: Checkpoint) -> str:
        if not (dropped := dropped_cycles(self.project, recovered)):
            return ""
        return (
            f"it has not learned {dropped}, as the current model has; "
            f"`recover promote {recovered.reference}` promotes it all the same"
        )

    def _earlier_decision(self, checkpoint: Checkpoint) -> Promotion | None:
        promotions = self.project.reader.promotions(self.project.id)
        return next((p for p in promotions if p.checkpoint_id == checkpoint.id), None)

    def _next_attempt(self, student: Checkpoint, distilled: RunResult, verdict: Verdict) -> NextAttempt | None:
        settings, last = self.settings, self.project.last_cycle
        planned = settings.distill.most_steps
        read = last and last.damaged.checkpoint  # its path is another once a project was moved
        is_default = read is not None and read.id == student.id
        attempt = Attempt(settings.model_dump(), distilled.steps, planned, self.job.given, distilled.stopped)
        # Since the new attempt is in the record, an earlier one of its cycle has another name.
        named = self.project.reader.checkpoint(student.id) or student
        return advise(verdict.as_dict(), attempt, "" if is_default else shlex.quote(named.reference))


def _is_rejection_by_gate(decision: Promotion) -> bool:
    """Not by a person, who gives another reason, and for no objection to what passed."""
    return decision.decision == "rejected" and decision.why == (decision.verdict or {}).get("reason")
