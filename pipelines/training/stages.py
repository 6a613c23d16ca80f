"""The two stages that change weights: teach the documents, bring the behaviour back. Both are the one loop."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch

from db.views import Checkpoint
from evals.subject import Subject
from pipelines.documents import document_end, tokenize_documents
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.job import Job
from pipelines.log import log
from pipelines.models import open_engine
from pipelines.project.past_cycles import past_cycles
from pipelines.project.project import Project, weights_of
from pipelines.project.runs import recorded_run, run_of
from pipelines.settings import AUTO, USUAL_AGAIN, Midtrain, Settings, defaults_for, replay_share, rows_beside
from pipelines.synthetic.answers import answer_rows, cached_answers, sample_answers
from pipelines.synthetic.paraphrased_corpus import ParaphrasedCorpus
from pipelines.synthetic.prefixes import EARLIER_DOMAIN
from pipelines.synthetic.prompts import cached_prompts, in_words, write_prompts
from pipelines.synthetic.texts import GeneratedTexts
from pipelines.training.early_stopping import Look, Watch
from pipelines.training.mix_search import SHARES, ProbeScores, ReadingProbe, probe_steps, search_share
from pipelines.training.run import RunResult, TrainingRun
from pipelines.training.teachers import Teachers
from pipelines.training.warm_start import WarmStartPlan, warm_start
from recovery.batch import Sample
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter, base_of
from recovery.models.chat import Chat
from recovery.models.students import Student, load_chat, load_student, parameters_of
from recovery.recipes import Recipe, objective_of, recipe, signal_of
from recovery.states import Documents, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import Teacher
from recovery.train import Plan, train

A_CYCLE, TO_DISTIL = 100, 50  # between the seeds of what the base writes


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_frozen(path: str) -> Student:
    return load_student(path, frozen=True, device=device())


@contextmanager
def open_subject(path: str, engine: str) -> Iterator[Subject]:
    """A frozen model that answers, for as long as it is needed."""
    model = load_frozen(path)
    with open_engine(model, engine) as writes:
        yield Subject(writes, model.chat)


def paraphrases_of(project: Project, corpus: CorpusSnapshot, times: int, seed: int) -> ParaphrasedCorpus:
    return ParaphrasedCorpus(corpus, times, project.base_weights, seed, project.home / "cache")


@dataclass(frozen=True)
class Stages:
    """Both stages on one project, for one job, in one cycle (or none)."""

    project: Project
    settings: Settings
    job: Job
    cycle: int | None
    number: int  # of that cycle in its project, 0 for none

    def midtrain(
        self,
        corpus: CorpusSnapshot,
        start: Checkpoint,
        earlier: list[CorpusSnapshot],
        told: dict[str, Any],
        looking: ReadingProbe | None = None,
    ) -> RunResult:
        """Read the documents, all tokens of them, from `start`; and earlier ones again, where that is asked for."""
        wanted, chat = self.settings.midtrain, load_chat(start.path)
        recollected = self._recollections()
        shares = wanted.rehearse if earlier else 0.0, wanted.recollect if recollected else 0.0
        again, own = rows_beside(wanted.rows, shares)
        read: list[CorpusSnapshot | ParaphrasedCorpus] = [corpus, *self._reworded(corpus, told)]
        new = self._documents(chat, read, wanted.rows - again - own)
        parts: list[States] = [new]
        held = -(-again // 2)  # half as the last promoted model knows them, the others by what they say
        if again:
            parts.append(self._documents(chat, earlier, again, soft=held, domain=EARLIER_DOMAIN))
        if own:
            parts.append(self._documents(chat, recollected, own, soft=own))

        def judging(student: Student, replay: bool) -> Teacher | None:
            return self._judging(student, bool(own) or replay, start if again else None)

        steps = wanted.steps(len(new.windows), new.rows)
        share = replay_share(self.settings)
        if wanted.replay == AUTO:
            begun = run_of(self.project, self.job, "midtrained")  # what a run was begun with stays
            hashes = [c.hash for c in [*read, *earlier]]
            told["replay"] = (
                dict(begun.settings["replay"]) if begun else self._tried(start, parts, judging, hashes, steps, looking)
            )
            share = told["replay"]["share"]
        replay = self._replay(share)
        student, plan, chosen = self._to_train(start), self._reading_plan(steps), recipe(wanted.recipe)
        as_known = f", {held} of them as {start.reference} knows them" if wanted.soft else ""
        log.info(
            f"mid-training on {corpus.files} file{'s' * (corpus.files != 1)}, {new.tokens:,} tokens: "
            f"{steps} steps from {start.reference}"
            + (f", {again} of {wanted.rows} rows from {len(earlier)} earlier corpora{as_known}" if again else "")
            + (f", {own} of {wanted.rows} rows from what the clean base wrote" if own else "")
            + (f", {share:.0%} replay" if replay else "")
        )
        told["beside"] = {"replay": share if replay else 0.0, "recollect": own / wanted.rows}
        states = Mixture(*parts, *replay)
        with self._run("midtrain", "midtrained", steps, told) as run:
            judge = judging(student, bool(replay))
            lesson = self._lesson(run, student, states, chosen, judge, plan, start, "midtrained", Watch())
            if "replay" in told and told["replay"]["tried"]:
                tried = ", ".join(told["replay"]["tried"])
                self._tell_once(run, f"replay {share:g} was chosen by trying {tried}")
            return replace(lesson.learn(), replay=told.get("replay"))

    def _tell_once(self, run: int, message: str) -> None:
        """An event that whoever was killed may have told before, or may not."""
        told = [event.message for event in self.project.reader.events(self.project.id) if event.run_id == run]
        if message not in told:
            self.project.tracker.event(run, message)

    def distill(
        self,
        start: Checkpoint,
        teachers: Teachers,
        prompts: list[str],
        looking: Callable[[Student, Engine], Look] | None,
    ) -> RunResult:
        """Bring the behaviour of its teachers back into `start`, on what `start` itself writes."""
        wanted, chosen = self.settings.distill, recipe(self.settings.distill.recipe)
        asked = teachers.prompts(prompts, load_chat(start.path), self.job.seed)
        steps = min(wanted.steps, wanted.max_steps or wanted.steps)
        # While no other model is in memory.
        answers = self._answers_of(teachers, chosen, asked[: steps * wanted.rows])
        student = self._to_train(start)
        # Where its own answers are the labels, nobody judges: its weights are needed for writing them alone.
        judge = teachers.judging(student, device()) if chosen.estimator != "labels" else None
        plan = self._plan(steps, wanted.learning_rate, warmup=min(5, steps // 5))
        told = {"teacher": teachers.in_words}
        with (
            self._run("distill", "recovered", steps, told) as run,
            open_engine(student, self.settings.engine) as engine,
        ):
            look = looking(student, engine) if looking and wanted.probe_every else None
            watch = Watch(wanted, look)
            states = self._states(chosen, engine, asked, answers)
            lesson = self._lesson(run, student, states, chosen, judge, plan, start, "recovered", watch)
            if not lesson.begun:
                lesson.enough = warm_start(lesson, self.settings, self._way_back(student, start), self.project.base)
            log.info(
                f"distilling {start.reference} with {teachers.in_words} as its teacher: "
                f"{steps} steps at most, {len(asked)} prompts"
            )
            return lesson.learn()

    def prompts_to_distil(self) -> list[str]:
        """Others than were replayed: there, what the base would say is known already."""
        return self._own_prompts(self._generation_seed + TO_DISTIL)

    def _own_prompts(self, seed: int) -> list[str]:
        """Prompts in the clean base's own words, kept for the next time."""
        project, count = self.project, self.settings.distill.prompts

        def written() -> list[str]:
            log.info(f"the clean base writes {count} prompts of its own")
            with open_subject(project.base, self.settings.engine) as clean:
                prompts = write_prompts(clean.engine, clean.chat, count, seed)
            log.info(f"  {in_words(prompts)}")
            return prompts

        return cached_prompts(project.home / "cache", project.base_weights, count, seed, written)

    @property
    def _generation_seed(self) -> int:
        """Of what the base writes. Each cycle reads other words of it: the same again would be learned by heart."""
        return self.job.seed + A_CYCLE * max(0, self.number - 1)

    def _run(self, kind: str, stage: str, steps: int, told: dict[str, Any]) -> Any:
        settings, job = self.settings.as_dict() | told, self.job
        return recorded_run(self.project, kind, self.cycle, settings, job.seed, job, stage, steps)

    def _lesson(
        self,
        run: int,
        student: Student,
        states: States,
        chosen: Recipe,
        teacher: Teacher | None,
        plan: Plan,
        start: Checkpoint,
        role: str,
        watch: Watch,
    ) -> TrainingRun:
        signal, objective = signal_of(chosen, teacher), objective_of(chosen)
        return TrainingRun(
            self.project, run, student, states, signal, objective, plan, start, role, self.cycle,
            self.settings, watch,
        )  # fmt: skip

    def _reading_plan(self, steps: int) -> Plan:
        return self._plan(steps, self.settings.midtrain.learning_rate, warmup=min(10, steps // 10))

    def _plan(self, steps: int, rate: float, warmup: int) -> Plan:
        how = self.settings
        return Plan(
            steps, rate, warmup, "linear", how.tokens_at_once, bf16=how.bf16, checkpointing=how.checkpointing
        )  # fmt: skip

    def _tried(
        self,
        start: Checkpoint,
        parts: list[States],
        judging: Callable[[Student, bool], Teacher | None],
        read: list[str],
        steps: int,
        looking: ReadingProbe | None,
    ) -> dict[str, Any]:
        """The share of replay that short mid-trainings speak for."""
        if looking is None:
            share = float(self._usual.replay)
            log.info(
                f"no probe set to choose a share of replay by (give more questions); taking {share:g}, as is usual"
            )
            return {"share": share, "tried": {}}
        few, seed, of_base = probe_steps(steps), self.job.seed, self.project.base_weights
        settings, weights = self.settings, self.project.weights(start)

        def try_out(share: float) -> ProbeScores:
            student, plan, how = self._to_train(start), self._reading_plan(few), recipe(settings.midtrain.recipe)
            states = Mixture(*parts, *self._replay(share))
            signal = signal_of(how, judging(student, share > 0))
            for _ in train(student, states, signal, objective_of(how), plan):
                pass
            with open_engine(student, settings.engine) as engine:
                return looking(student, engine)

        trials = f"{len(SHARES)} short mid-trainings of {few} steps"
        log.info(f"trying replay of {', '.join(f'{share:g}' for share in SHARES)}: {trials}, the whole takes {steps}")
        of_settings = [asdict(settings.midtrain), settings.lora_rank, settings.bf16, settings.engine]
        of_replay = [of_base, self._generation_seed, settings.distill.prompts, settings.distill.max_new_tokens]
        _ = self._answers  # a base that cannot answer is refused before anything is trained
        decided_by = [weights, read, few, seed, of_settings, of_replay, looking.key(weights)]
        return {"steps": few} | search_share(try_out, self.project.home / "cache", decided_by)

    def _replay(self, share: float) -> list[FixedRows]:
        """The clean base's own answers to its own prompts, so many beside the documents as the share says."""
        wanted = self.settings.midtrain
        if not share:
            return []
        try:
            answers = self._answers
        except RecoverError as error:
            self._left_out(error, wanted.replay == self._usual.replay)
            return []
        return [answer_rows(answers, share, wanted.rows * wanted.window, seed=self.job.seed)]

    @cached_property
    def _answers(self) -> list[Sample]:
        base = self.project.base
        try:
            prompts = self._own_prompts(self._generation_seed)
        except RecoverError as error:
            raise RecoverError(f"{error}; or mid-train without the base's own answers (--replay 0)") from error
        with open_subject(base, self.settings.engine) as clean:
            return sample_answers(
                clean.engine, clean.chat, prompts, self.project.home / "cache", self.project.base_weights,
                max_new_tokens=self.settings.distill.max_new_tokens, seed=self._generation_seed,
            )  # fmt: skip

    def _reworded(self, corpus: CorpusSnapshot, told: dict[str, Any]) -> list[ParaphrasedCorpus]:
        """The documents in the clean base's other words, where that is asked for; what was kept is told to the run."""
        times = self.settings.midtrain.reword
        if not times:
            return []
        wordings = paraphrases_of(self.project, corpus, times, self.job.seed)
        log.info(f"the clean base writes each passage up to {times} times in other words")
        wordings.write(partial(open_subject, self.project.base, self.settings.engine))
        told["reworded"] = wordings.tally.as_dict()
        return [wordings]

    def _recollections(self) -> list[GeneratedTexts]:
        """What the clean base writes on an empty page, if it is to be read."""
        wanted, project = self.settings.midtrain, self.project
        if not wanted.recollect:
            return []
        own = GeneratedTexts(
            wanted.recollections, wanted.window, project.base_weights, self._generation_seed, project.home / "cache"
        )
        try:
            written = own.write(partial(open_subject, project.base, self.settings.engine))
        except RecoverError as error:
            self._left_out(error, wanted.recollect == self._usual.recollect)
            return []
        log.info(f"  {written:,} texts of the clean base's own are read beside the documents")
        return [own]

    def _left_out(self, error: RecoverError, usual: bool) -> None:
        """What the base cannot do is refused where it was asked for, and told where it is only usual."""
        if not usual:
            raise error
        log.info(f"going on without: {error}")

    @cached_property
    def _usual(self) -> Midtrain:
        return defaults_for(parameters_of(self.project.base)).midtrain

    def _to_train(self, start: Checkpoint) -> Student:
        rank = self.settings.lora_rank
        return load_student(
            start.path, adapter=Adapter(rank=rank, seed=self.job.seed) if rank else None, device=device()
        )

    def _judging(self, student: Student, written: bool, promoted: Checkpoint | None) -> Teacher | None:
        """Who is asked about what it wrote or learned itself, where any of that is read: the clean base about its own
        words, and the last promoted model about the documents of earlier cycles."""
        if not self.settings.midtrain.soft or not (written or promoted):
            return None
        teachers = Teachers(self.project.clean, promoted)
        if promoted and not written:  # nobody would ask the base anything
            teachers = Teachers(promoted)
        return teachers.judging(student, device())

    def _documents(
        self,
        chat: Chat,
        corpora: Iterable[CorpusSnapshot | ParaphrasedCorpus | GeneratedTexts],
        rows: int,
        soft: int = 0,
        domain: str | None = None,
    ) -> Documents:
        tokenizer, cache = chat.tokenizer, self.project.home / "cache"
        ids = [document for c in corpora for document in tokenize_documents(c.texts, tokenizer, cache, c.hash)]
        wanted = self.settings.midtrain
        return Documents(
            ids, document_end(tokenizer), window=wanted.window, rows=rows, seed=self.job.seed,
            cross_document_attention=wanted.across, begin_id=chat.document_bos, soft_rows=soft, domain=domain,
        )  # fmt: skip

    def _way_back(self, student: Student, start: Checkpoint) -> WarmStartPlan:
        """To the weights that mid-training began with, if that is on record; under an adapter, to what it sits on.

        What read documents alone lost much, and goes far. What was read beside the base's own words lost little, and
        goes back for the sake of what earlier cycles taught alone: once, before anything is distilled into it."""
        line, below = self.project.reader.lineage(start.id), student.adapter_base
        place = next((place for place, made in enumerate(line) if made.role == "midtrained"), len(line))
        began = line[place + 1] if place + 1 < len(line) else None
        if below and not base_of(start.path):
            return WarmStartPlan(None, nowhere=True)
        to = (lambda: below) if below else (lambda: self.project.verify(began).path) if began else None
        if began is None or self._read_alone(line[place]):
            return WarmStartPlan(to)
        if place == 0 and not below and past_cycles(self.project, began):
            return WarmStartPlan(to, USUAL_AGAIN, anyway=True)
        if self.settings.distill.warm_start == "usual":
            log.info(
                "no way back in weights first, as it was read beside the clean base's own words (see --warm-start)"
            )
        return WarmStartPlan(to, 0.0)

    def _read_alone(self, midtrained: Checkpoint) -> bool:
        """Whether nothing of the clean base's own was read beside the documents."""
        run = self.project.reader.run(midtrained.run_id) if midtrained.run_id is not None else None
        said = run.settings if run else {}
        beside = said.get("beside")
        if beside is None:  # all that earlier releases put on record is what was wished
            wished, found = said.get("midtrain", {}), said.get("replay") or {}
            beside = {"replay": found.get("share", wished.get("replay", 0)), "recollect": wished.get("recollect", 0)}
        return not any(map(float, beside.values()))

    def _states(self, chosen: Recipe, engine: Engine, prompts: list[Prompt], answers: list[Sample]) -> States:
        """The student's own rollouts, the teacher's answers, or so many of each as the recipe's on_policy_fraction says."""
        wanted, seed = self.settings.distill, self.job.seed
        own = round(chosen.on_policy_fraction * wanted.rows)
        parts: list[States] = []
        if own:
            room, group = wanted.max_new_tokens, chosen.group
            parts.append(Rollouts(prompts, engine, rows=own, group=group, max_new_tokens=room, seed=seed))
        if own < wanted.rows:
            parts.append(FixedRows(answers, rows=wanted.rows - own, seed=seed))
        return Mixture(*parts)

    def _answers_of(self, teachers: Teachers, chosen: Recipe, prompts: list[Prompt]) -> list[Sample]:
        """The teachers' sampled answers, where the recipe has states that the student did not write."""
        wanted = self.settings.distill
        if round(chosen.on_policy_fraction * wanted.rows) == wanted.rows:
            return []
        return teachers.answering(prompts, self._kept_answers)

    def _kept_answers(self, teacher: str, prompts: list[Prompt]) -> list[Sample]:
        sampling, asked = (
            Sampling(self.settings.distill.max_new_tokens, seed=self.job.seed),
            [p.tokens for p in prompts],
        )

        def write() -> list[list[int]]:
            with open_subject(teacher, self.settings.engine) as subject:
                return [reply.tokens for reply in subject.engine.generate(asked, sampling)]

        decided_by = [weights_of(teacher), "whole", sampling.max_new_tokens, sampling.seed, asked]
        replies = cached_answers(self.project.home / "cache", decided_by, write)
        return [prompt.with_reply(reply) for prompt, reply in zip(prompts, replies, strict=True)]
