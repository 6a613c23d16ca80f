"""One cycle: mid-train, measure the damage, distil, measure again, promote or reject.

Every stage asks the record first whether it is done already, so a resumed job runs through the same code as a new one.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from db.next_attempt import Attempt, NextAttempt, advise
from db.run_inputs import RunInputs
from db.tracker import Decision
from db.views import Checkpoint, Promotion
from evals.contamination import remove_contaminated
from evals.results import Item, Result, headlines, main_result
from evals.suites.config import load_suites
from evals.suites.knowledge import read_questions
from evals.suites.measure import main_prompt_task
from pipelines.documents.snapshot import CorpusSnapshot, delete_snapshot, load_snapshot, require_snapshot
from pipelines.estimates.timed_job import compare_with_estimate, timed_job
from pipelines.evaluation.block_measurement import StopRule
from pipelines.evaluation.evaluation_plan import SAMPLE_TEMPERATURE, EvalPlan
from pipelines.evaluation.measure import earlier_results, knowledge_result, measure_checkpoint
from pipelines.gate.promotion import current_user, require_reason
from pipelines.gate.verdict import Verdict, is_clear, judge, require_pass_fail
from pipelines.jobs.job import Job
from pipelines.log import log
from pipelines.project.lock import store_job
from pipelines.project.past_cycles import PastCycle, past_cycles
from pipelines.project.project import Project
from pipelines.project.runs import runs_of_job
from pipelines.settings.schema import AUTO, Gate, Settings
from pipelines.synthetic.chat_prompts import ChatPrompt
from pipelines.synthetic.prefixes import document_prefixes
from pipelines.training.base_model_outputs import BaseOutputs
from pipelines.training.context_lift import check_lift
from pipelines.training.distill import distill
from pipelines.training.midtrain import midtrain
from pipelines.training.probes import MidtrainProbe, distill_probe, probe_set
from pipelines.training.recipe_inputs import RecipeFiles, check_contamination
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from pipelines.training.training_run import RunResult
from recovery.errors import RecoverError
from recovery.recipes import recipe

PROMPT_RUN_LENGTH = 40  # shared words in a row that drop a prompt: instructions share many shorter runs


@dataclass(frozen=True)
class Answer:
    """A decision about a verdict."""

    promote: bool
    reason: str = ""  # needed against the gate


Ask = Callable[[Verdict], Answer | None]  # asks a person; None: the decision comes later


@dataclass(frozen=True)
class Outcome:
    """The result of a cycle, or of a distillation alone."""

    cycle: int  # its number, 0 for a repair outside any cycle
    clean: list[Result]
    damaged: list[Result]
    recovered: list[Result]
    verdict: Verdict
    promoted: bool | None  # None: waiting for a decision
    distilled: RunResult
    decision: str  # for people to read
    answers_search: dict[str, Any] | None = None  # of the mid-training, where the share of answers was searched
    next_attempt: NextAttempt | None = None  # what to try after a rejection
    estimate: dict[str, Any] | None = None  # what was estimated, and what the stages took

    @property
    def awaits_decision(self) -> bool:
        return self.promoted is None

    def as_json(self) -> dict[str, Any]:
        checkpoint, run = self.distilled.checkpoint, self.distilled
        clean, damaged, recovered = (headlines(results) for results in (self.clean, self.damaged, self.recovered))
        gained = (recovered["behaviour"] or 0.0) - (damaged["behaviour"] or 0.0)
        seconds = round(run.seconds, 1)
        return {
            "cycle": self.cycle or None,
            "clean": clean,
            "damaged": damaged,
            "recovered": recovered,
            "earlier": {str(n): result.headline.value for n, result in earlier_results(self.recovered).items()},
            "verdict": self.verdict.as_dict(),
            "promoted": bool(self.promoted),
            "awaiting_decision": self.awaits_decision,
            "checkpoint": checkpoint.reference,
            "path": checkpoint.path,
            "steps": run.steps,
            "stopped": run.stopped or None,
            "next_attempt": self.next_attempt.command if self.next_attempt else None,
            "answers_search": self.answers_search,
            "warm_start": run.warm_start,
            "cost": {"seconds": seconds, "seconds_per_point": round(seconds / gained / 100, 2) if gained > 0 else None},
            "estimate": self.estimate,
        }


def run_job(project: Project, job: Job, ask: Ask | None = None) -> RunResult | Outcome:
    """From the beginning, or from wherever the job was interrupted."""
    cycle = Cycle(project, job)
    run: dict[str, Callable[[], RunResult | Outcome]] = {
        "midtrain": cycle.midtrain,
        "distill": lambda: cycle.repair(ask),
        "cycle": lambda: cycle.run(ask),
    }
    with saved_job(project, job), timed_job(project, job) as clock:
        result = run[job.command]()
        return replace(result, estimate=compare_with_estimate(project, job, clock))


@contextmanager
def saved_job(project: Project, job: Job) -> Iterator[None]:
    """The job is deleted once it is done; an interruption says how to go on."""
    store_job(project.home, job.id)
    try:
        yield
    except KeyboardInterrupt:
        option = "" if project.contains_cwd else f" --project {shlex.quote(str(project.root))}"
        raise KeyboardInterrupt(f"Go on from the last saved state with `recover resume{option}`.") from None
    if job.corpus and not job.settings.keep_documents:
        delete_snapshot(project.home, job.corpus.hash)
    job.delete(project.home)


@dataclass
class Cycle:
    """The stages of one job, recorded under one cycle."""

    project: Project
    job: Job
    id: int = 0
    number: int = 0

    def run(self, ask: Ask | None = None) -> Outcome:
        prompts = self._files.read(self.settings.distill, self.job.seed)
        if prompts and self.job.self_teacher is None:  # else prompts or teacher do not exist yet
            self._check_lift(self._checkpoint(self.job.teacher), prompts)
        midtrained = self.midtrain()
        return replace(self.recover(midtrained.checkpoint, ask), answers_search=midtrained.answers_search)

    def midtrain(self) -> RunResult:
        """The first stage, in a cycle of its own."""
        corpus = self._corpus()
        self._open(corpus)
        earlier = self._earlier_corpora() if self.settings.midtrain.mix.earlier else []
        probe = None
        if self._searches_answers and self._can_probe:
            probe = MidtrainProbe(probe_set(self.job.eval_plan, self.settings.distill.probe_items), self._suites)
        with self.project.clock.stage("midtrain"):
            return midtrain(self._stage, corpus, self._checkpoint(self.job.start), earlier, probe)

    def repair(self, ask: Ask | None = None) -> Outcome:
        """The second stage alone: an attempt of the student's cycle, or the repair of a model from outside."""
        student = self._checkpoint(self.job.student)
        self.id, self.number = cycle_of_attempt(self.project, student, self.job)
        return self.recover(student, ask)

    def judge_student(self, with_samples: bool = True) -> tuple[list[Result], list[Result], Verdict]:
        """The results of the clean model and of the student as it is, and the gate's verdict on the student."""
        student = self._checkpoint(self.job.student)
        final = self._final_plan(student)
        clean = self._measure_clean(final)
        until_clear = self._stop_rule(clean, partial(is_clear, self._gate, clean))
        results = self._measure(student, "the fine-tune", final, "damaged", until_clear)
        if with_samples:
            return clean, results, self._judge_with_samples(clean, results, results, student, final, "the fine-tune")
        return clean, results, self._judge(clean, results, results)

    def recover(self, damaged: Checkpoint, ask: Ask | None = None) -> Outcome:
        main_teacher = damaged if self.job.self_teacher else self._checkpoint(self.job.teacher)
        lift = self._check_lift(main_teacher)
        probe = None
        if self.settings.distill.probe_every and self._can_probe:
            items = self.settings.distill.probe_items
            probe = distill_probe(
                self.settings.gate, self.job.eval_plan, items, self._measure_clean_on_probes, self._suites
            )
        final = self._final_plan(damaged)
        clean = self._measure_clean(final)
        first_block = self._stop_rule(clean, lambda items: True)  # its score decides nothing
        before = self._measure(damaged, "the model to recover", final, "damaged", first_block)
        items_text = [item.prompt for result in clean for item in result.items]
        prompts = self._prompts(items_text) if self.settings.distill.steps else []
        teachers = self._teachers(main_teacher, len(prompts), items_text)
        corpora = self._read_by(damaged) if self.settings.distill.documents else []
        with self.project.clock.stage("distill"):
            distilled = distill(self._stage, damaged, teachers, prompts, probe.on if probe else None, corpora, lift)
            if distilled.stopped:
                self.project.clock.end_early("distill")
        if self.id and self._earlier_decision(distilled.checkpoint) is None:
            self.project.tracker.reopen_cycle(self.id)
        until_clear = self._stop_rule(clean, partial(is_clear, self._gate, clean))
        nothing_moved = not self.settings.distill.steps and not (distilled.warm_start or {}).get("share")
        result = damaged if nothing_moved else distilled.checkpoint  # a copy is not measured again
        after = self._measure(result, "the recovered model", final, "recovered", until_clear)
        verdict = self._judge_with_samples(clean, before, after, result, final)
        promoted, decision = self._decide(distilled.checkpoint, verdict, ask)
        advice = self._next_attempt(damaged, distilled, verdict) if promoted is False else None
        return Outcome(self.number, clean, before, after, verdict, promoted, distilled, decision, next_attempt=advice)

    def _final_plan(self, damaged: Checkpoint) -> EvalPlan:
        """Of the items that no probe uses."""
        has_probes = self.settings.distill.probe_every and self._can_probe
        return replace(self.job.eval_plan, split="final" if has_probes or self._was_probed(damaged) else "all")

    def _measure_clean(self, final: EvalPlan) -> list[Result]:
        clean = self._measure(self.project.clean, "the clean model", replace(final, earlier_questions=()), "clean")
        require_pass_fail(main_result(clean, "behaviour"))
        return clean

    @property
    def settings(self) -> Settings:
        return self.job.settings

    @property
    def _gate(self) -> Gate:
        """A task of lm-eval is always answered greedily."""
        gate, plan = self.settings.gate, self.job.eval_plan
        can_sample = plan.ifeval_data or main_prompt_task(self._suites)
        return gate if can_sample else gate.model_copy(update={"samples": 0})

    @property
    def _stage(self) -> Stage:
        return Stage(self.project, self.job, self.id or None, self.number)

    @property
    def _suites(self) -> dict[str, str]:
        return load_suites(self.project.base)

    def _prompts(self, evaluation_items: list[str]) -> list[ChatPrompt]:
        """The prompts of the rollouts, with what the teacher is shown: none that the student is measured by."""
        prompts = self._all_prompts()
        questions = self.job.eval_plan.questions
        check_contamination(
            prompts, [*evaluation_items, *(q.text for q in (read_questions(questions) if questions else ()))]
        )
        checked = remove_contaminated([prompt.text for prompt in prompts], evaluation_items, PROMPT_RUN_LENGTH)
        overlapping = {prompt.prompt for prompt in checked.contaminated}
        if count := len(checked.contaminated):
            prompts_that = "1 prompt that overlaps" if count == 1 else f"{count} prompts that overlap"
            log.info(f"Left out {prompts_that} with evaluation items")
        if not checked.clean:
            raise RecoverError("All prompts overlap with evaluation items. Pass others with --prompts.")
        return [prompt for prompt in prompts if prompt.text not in overlapping]

    @property
    def _files(self) -> RecipeFiles:
        return RecipeFiles(self.job.prompts, self.job.teacher_context)

    def _all_prompts(self) -> list[ChatPrompt]:
        base = BaseOutputs(self.project, self.settings, self._stage.generation_seed)
        return self._files.read(self.settings.distill, self.job.seed, base.distill_prompts)

    def _check_lift(self, teacher: Checkpoint, prompts: list[ChatPrompt] | None = None) -> dict[str, Any] | None:
        """What the context gives the teacher; raises if it gives nothing. None without a context."""
        if self.job.teacher_context is None:
            return None
        return check_lift(self.project, teacher, prompts or self._all_prompts(), self.settings, self.job.seed)

    def _teachers(self, main: Checkpoint, prompts: int, evaluation_items: list[str]) -> Teachers:
        """With a router, openings of earlier documents are prompts too; never the questions about them."""
        if self.job.self_teacher:
            return Teachers(main, own=self.job.self_teacher)
        share = self.settings.distill.earlier_prompts
        past = self._past_cycles() if self.job.router and share else []
        if not past:
            if self.job.router:
                log.info("There are no earlier cycles: the router is the clean model alone")
            return Teachers(main)
        count = round(share / (1 - share) * prompts)
        prefixes = document_prefixes(self._earlier_corpora(), count, self.job.seed)
        questions = [q.text for _, file in self.job.eval_plan.earlier_questions for q in read_questions(file)]
        clean = remove_contaminated(prefixes, [*evaluation_items, *questions]).clean
        if not clean:
            log.info("No documents of earlier cycles are stored: the router is the clean model alone")
            return Teachers(main)
        log.info(f"{len(clean)} openings of earlier documents beside {prompts} prompts")
        return Teachers(main, self._checkpoint(past[-1].checkpoint), tuple(clean))

    def _open(self, corpus: CorpusSnapshot) -> None:
        """The job's cycle: a new one, unless it has one, or an earlier command opened one and never began a run."""
        cycles = self.project.reader.cycles(self.project.id)
        number = next((run.cycle for run in runs_of_job(self.project, self.job.id) if run.cycle), None)
        cycle = next((c for c in cycles if c.number == number), None)
        if cycle is None:
            tracker, tokens = self.project.tracker, sum(len(text) for text in corpus.texts) // 4
            corpus_id = tracker.corpus(corpus.path, corpus.hash, corpus.files, tokens)
            tracker.documents(corpus_id, corpus.documents())
            with_runs = {run.cycle for run in self.project.reader.runs(self.project.id)}
            unused = [c for c in cycles[-1:] if c.status == "open" and c.number not in with_runs]
            cycle = next((c for c in unused if c.corpus_id == corpus_id), None)
            if cycle is None:
                self.id, self.number = tracker.open_cycle(self.project.id, corpus_id)
                return
        self.id, self.number = cycle.id, cycle.number

    def _corpus(self) -> CorpusSnapshot:
        corpus = self.job.corpus
        assert corpus is not None
        return require_snapshot(self.project.home, corpus.hash, corpus.path, corpus.files)

    def _read_by(self, midtrained: Checkpoint) -> list[CorpusSnapshot]:
        """The documents that a checkpoint was mid-trained on, and those of earlier cycles; what is stored of them."""
        run = self.project.reader.run(midtrained.run_id) if midtrained.run_id is not None else None
        hashes = [run.inputs.corpus if run else None, *(c.corpus for c in past_cycles(self.project, midtrained))]
        snapshots = [load_snapshot(self.project.home, hash, Path(), 0) for hash in dict.fromkeys(hashes) if hash]
        return [snapshot for snapshot in snapshots if snapshot is not None]

    def _earlier_corpora(self) -> list[CorpusSnapshot]:
        snapshots = [
            load_snapshot(self.project.home, past.corpus, Path(past.documents), 0) for past in self._past_cycles()
        ]
        return [snapshot for snapshot in snapshots if snapshot is not None]

    def _past_cycles(self) -> list[PastCycle]:
        return past_cycles(self.project, self._checkpoint(self.job.start)) if self.job.start else []

    def _checkpoint(self, id: int | None) -> Checkpoint:
        checkpoint = self.project.reader.checkpoint(id) if id is not None else None
        if checkpoint is None:
            raise RecoverError("The checkpoint of this job is no longer in the record. Run the command again.")
        return self.project.verify(checkpoint)

    def _measure_clean_on_probes(self, plan: EvalPlan) -> list[Result]:
        return self._measure(self.project.clean, "the clean model on the probe set", plan, "probe")

    def _measure(
        self, checkpoint: Checkpoint, name: str, plan: EvalPlan, stage: str, rule: StopRule | None = None
    ) -> list[Result]:
        inputs = RunInputs(job=self.job.id, stage=f"measure/{stage}")
        engine, cycle = self.settings.engine, self.id or None
        with self.project.clock.stage(f"measure/{stage}"):
            results = measure_checkpoint(
                self.project, checkpoint, plan, cycle, name, engine=engine, inputs=inputs, rule=rule
            )
            main = main_result(results, "behaviour")
            if rule and stage == "recovered" and main and len(main.items) < rule.total:
                self.project.clock.end_early("measure/recovered")
            return results

    def _stop_rule(self, clean: list[Result], enough: Callable[[list[Item]], bool]) -> StopRule | None:
        """Ask in blocks where there is more than one; the clean model has been asked all prompts."""
        main, block = main_result(clean, "behaviour"), self.settings.gate.block
        return StopRule(block, len(main.items), enough) if main and 0 < block < len(main.items) else None

    def _judge_with_samples(
        self,
        clean: list[Result],
        before: list[Result],
        after: list[Result],
        judged: Checkpoint,
        plan: EvalPlan,
        name: str = "the recovered model",
    ) -> Verdict:
        """Where greedy replies to all prompts do not decide, both models reply again, until it is clear."""
        verdict, samples = self._judge(clean, before, after), list[tuple[Result, Result]]()
        while verdict.may_change_with_samples and len(samples) < self._gate.samples:
            number = len(samples) + 1
            log.info(
                f"All prompts do not decide: sampling reply {number} of at most {self._gate.samples} to each prompt, "
                f"at temperature {SAMPLE_TEMPERATURE:g}"
            )
            sample = replace(plan, suite=f"sample:{number}", earlier_questions=())
            [of_clean] = self._measure(self.project.clean, "the clean model", sample, f"clean/{number}")
            [of_judged] = self._measure(judged, name, sample, f"recovered/{number}")
            samples.append((of_clean, of_judged))
            verdict = self._judge(clean, before, after, samples)
        return verdict

    def _judge(
        self,
        clean: list[Result],
        before: list[Result],
        after: list[Result],
        samples: Sequence[tuple[Result, Result]] = (),
    ) -> Verdict:
        reference, behaviour = main_result(clean, "behaviour"), main_result(after, "behaviour")
        assert reference is not None
        assert behaviour is not None
        unread, *in_cycle = (knowledge_result(results) for results in (clean, before, after))
        best = max((k.headline.value for k in in_cycle if k is not None), default=None)
        current, past = earlier_results(after), {past.cycle: past for past in self._past_cycles()}
        earlier = {n: (current[n], past[n].knowledge) for n in current if n in past}
        clean_knowledge = unread.headline.value if unread else None
        return judge(
            self._gate,
            reference,
            behaviour,
            in_cycle[1],
            best,
            earlier,
            clean_knowledge,
            retention=(clean, after),
            samples=samples,
            damaged=None if before is after else main_result(before, "behaviour"),
        )

    @property
    def _searches_answers(self) -> bool:
        return self.job.command != "distill" and self.settings.midtrain.mix.answers == AUTO

    def _was_probed(self, damaged: Checkpoint) -> bool:
        """Whether its mid-training used the probe set, in this job or in an earlier one."""
        run = self.project.reader.run(damaged.run_id) if damaged.run_id is not None else None
        return bool(run and (run.inputs.answers_search or {}).get("tried"))

    @cached_property
    def _can_probe(self) -> bool:
        """Whether the verdict can do without the fifth of the items that probes use."""
        problem = self.job.eval_plan.split_problem(self._suites)
        if problem:
            log.info(f"There are {problem}: all are kept for the verdict, none for probes")
        return not problem

    def _decide(self, recovered: Checkpoint, verdict: Verdict, ask: Ask | None) -> tuple[bool | None, str]:
        """Whether it is promoted (None: not decided yet), and the decision as text. The gate decides, or a person; a
        decision of before an interruption stays."""
        earlier = self._earlier_decision(recovered)
        if earlier is not None:
            promoted = earlier.decision == "promoted"
            return promoted, verdict.decision_text(promoted) if earlier.why == verdict.reason else earlier.decision
        if ask:  # the person may want to read the verdict on the dashboard first
            self.project.tracker.store_verdict(recovered.id, verdict.as_dict())
        answer = ask(verdict) if ask else Answer(verdict.passed)
        if answer is None:
            log.info(f"Waiting for a decision: recover promote {recovered.reference}")
            return None, "waiting for a decision"
        promote = answer.promote
        decision: Decision = "promoted" if promote else "rejected"
        text, reason = verdict.decision_text(promote), verdict.reason
        if ask:
            option = "" if promote else " --reject"
            todo = (
                "Answer again with `recover resume`, or decide with "
                f"`recover promote {recovered.reference}{option} --reason TEXT`."
            )
            require_reason(replace(recovered, verdict=verdict.as_dict()), decision, answer.reason, todo)
            text, reason = decision, answer.reason.strip() or f"decided by a person, with the gate: {reason}"
        log.info(f"{text.capitalize()}: {reason}")
        cycle = self.id or None
        self.project.tracker.promote(
            self.project.id, cycle, recovered.id, decision, current_user(), reason, verdict.as_dict()
        )
        return promote, text

    def _earlier_decision(self, checkpoint: Checkpoint) -> Promotion | None:
        promotions = self.project.reader.promotions(self.project.id)
        return next((p for p in promotions if p.checkpoint_id == checkpoint.id), None)

    def _next_attempt(self, student: Checkpoint, distilled: RunResult, verdict: Verdict) -> NextAttempt | None:
        settings, last = self.settings, self.project.last_cycle
        if not recipe(settings.distill.recipe).restores:  # the advice is about how to restore
            return None
        planned = min(settings.distill.steps, settings.distill.max_steps or settings.distill.steps)
        is_default = last is not None and last.damaged.checkpoint == student
        attempt = Attempt(settings.model_dump(), distilled.steps, planned)
        return advise(verdict.as_dict(), attempt, "" if is_default else shlex.quote(student.reference))


def cycle_of_attempt(project: Project, checkpoint: Checkpoint, job: Job | None = None) -> tuple[int, int]:
    """The (id, number) of the checkpoint's cycle unless that was promoted; zeros then, and for a model from outside.

    A promoted cycle stays as it is, and another repair of its model is a run by itself; unless this very job promoted
    it and was interrupted before its end."""
    cycle = next((c for c in project.reader.cycles(project.id) if c.number == checkpoint.cycle), None)
    if cycle is None or cycle.status != "promoted":
        return (cycle.id, cycle.number) if cycle else (0, 0)
    is_ours = job and any(run.cycle == cycle.number for run in runs_of_job(project, job.id))
    return (cycle.id, cycle.number) if is_ours else (0, 0)
