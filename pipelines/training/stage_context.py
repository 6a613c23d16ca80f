"""A training stage: the project and job it runs for, what it reads, and its teachers.

There is one teacher for all rows, or several, of which each row has one by its domain. With `--teacher router` the
clean base says how to behave, and the last promoted checkpoint what the documents of earlier cycles say, which the
clean base has never read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, Self

from db.tables import Checkpoint, RunInputs
from evals.contamination import remove_contaminated
from evals.suites.knowledge import read_questions
from pipelines.documents.corpus import CorpusSnapshot, load_snapshots
from pipelines.evaluation.evaluation_plan import midtrainings
from pipelines.job import Job
from pipelines.log import log
from pipelines.model_loading import device, frozen_dtype, load_trained
from pipelines.project.project import Project
from pipelines.project.runs import PastCycle, past_cycles, recorded_run
from pipelines.settings.schema import Settings
from pipelines.storage import content_hash
from pipelines.synthetic.base_outputs import DISTILL_SEED, BaseOutputs
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN, as_prefix_prompts, document_prefixes
from pipelines.synthetic.prompts import ChatPrompt
from pipelines.teacher_choice import ByDomain, Itself, Router, Served, named_checkpoints
from pipelines.training.context_lift import check_lift
from pipelines.training.recipe_inputs import RecipeFiles, check_contamination, chosen_recipe, without_contaminated
from recovery.engines.served_model import Probe
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter, base_of, can_load_beside, preserve_adapter_state, same_model
from recovery.models.chat_template import Chat, added_tokens
from recovery.models.students import Student, load_chat, load_student
from recovery.recipes import Recipe, signal_of
from recovery.samples import Sample
from recovery.server_teacher import ServerTeacher
from recovery.signals import Signal
from recovery.states import Prompt
from recovery.teachers import (
    AdapterOffTeacher,
    AdapterTeacher,
    FrozenTeacher,
    LiveTeacher,
    RouterTeacher,
    Teacher,
    can_switch_to,
)
from recovery.train import Plan

SampleAnswers = Callable[[str, list[Prompt]], list[Sample]]  # by the model at a path
PROMPT_RUN_LENGTH = 40  # shared words in a row that drop a prompt: instructions share many shorter runs
SEEDS_PER_CYCLE = 100  # between the generation seeds of two cycles

Role = Literal["midtrained", "recovered"]  # of the checkpoint that a stage makes


@dataclass(frozen=True)
class Teachers:
    main: Checkpoint
    by_domain: Mapping[str, Checkpoint] = field(default_factory=dict)  # all other rows are the main teacher's
    prefixes: tuple[str, ...] = ()  # of documents of earlier cycles, used as prompts
    instead: Itself | Served | None = None  # the student, which begins as `main`, or servers of it

    def __str__(self) -> str:
        match self.instead:
            case Itself(weights):
                return f"{'the average' if weights == 'ema' else 'the current weights'} of {self.main.reference}"
            case Served(addresses):
                return f"{self.main.reference} at {addresses}"
        others = [
            f"{source.reference} for {'openings of earlier documents' if domain == EARLIER_DOMAIN else domain}"
            for domain, source in self.by_domain.items()
        ]
        return f"{self.main.reference} (and {', '.join(others)})" if others else self.main.reference

    def prompts(self, given: Sequence[ChatPrompt], chat: Chat, seed: int, template: str = "") -> list[Prompt]:
        domains = [prompt.domain if prompt.domain in self.by_domain else None for prompt in given]
        tokenized = [prompt.tokenized(chat, template) for prompt in given]
        prompts = [replace(prompt, domain=domain) for prompt, domain in zip(tokenized, domains, strict=True)]
        prompts += as_prefix_prompts(self.prefixes, chat)
        if self.prefixes:  # so that any first part of them is a fair sample
            Random(seed).shuffle(prompts)
        return prompts

    def readable(self, prompts: Sequence[Prompt], chat: Chat) -> list[Prompt]:
        """The prompts without those that hold a token which only the student has; raise if none is left."""
        left_out = set[int]()
        for path, of_teacher in self.by_prompt(prompts).items() if self.instead is None else ():
            teacher = load_chat(path)
            if added_tokens(chat, teacher):
                rows = teacher.token_rows
                left_out |= {i for i in of_teacher if max(prompts[i].teacher_prompt or prompts[i].tokens) >= rows}
        left = [prompt for i, prompt in enumerate(prompts) if i not in left_out]
        if left_out and not left:
            raise RecoverError("All prompts hold tokens that the teacher lacks. Name other --prompts.")
        if left_out:
            log.warning(f"{len(left_out):,} prompts hold tokens that the teacher lacks, and are left out")
        return left

    def load(self, student: Student, *, bf16: bool = False) -> Teacher:
        match self.instead:
            case Itself():
                return LiveTeacher(student)
            case Served(addresses):
                return _served(student, self.main.path, addresses)
        loaded = {
            path: _load(student, path, bf16)
            for path in dict.fromkeys([self.main.path, *(source.path for source in self.by_domain.values())])
        }
        main = loaded[self.main.path]
        if not self.by_domain:
            return main
        return RouterTeacher(main, {domain: loaded[source.path] for domain, source in self.by_domain.items()})

    def answers(self, prompts: list[Prompt], sample: SampleAnswers) -> list[Sample]:
        """Each prompt answered by its own teacher, with one model in memory at a time."""
        rows: dict[int, Sample] = {}
        for path, of_teacher in self.by_prompt(prompts).items():
            rows |= zip(of_teacher, sample(path, [prompts[i] for i in of_teacher]), strict=True)
        return [rows[i] for i in range(len(prompts))]

    def by_prompt(self, prompts: Sequence[Prompt]) -> dict[str, list[int]]:
        indices: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            indices.setdefault(self.by_domain.get(prompt.domain or "", self.main).path, []).append(i)
        return indices


@dataclass(frozen=True)
class TrainingSource:
    """How the followers of a training on several processes load its student, and what that learns from."""

    start: str
    adapter: Adapter | None
    bf16: bool
    recipe: Recipe
    teachers: Teachers | None = None
    separator: int | None = None  # between the documents that it reads; None: as its chat has it

    def load(self) -> tuple[Student, Signal]:
        student = load_trained(self.start, self.adapter, bf16=self.bf16)
        if self.separator is not None:
            student.chat = student.chat.with_separator(self.separator)
        teacher = self.teachers.load(student, bf16=self.bf16) if self.teachers else None
        return student, signal_of(self.recipe, teacher, reward=_of_leader)


def _of_leader(sample: Sample) -> float:
    raise AssertionError("The leader computes rewards.")


def _served(student: Student, path: str, servers: str) -> ServerTeacher:
    """What the servers must serve is read here once: below the student's adapter, else from its own weights."""
    probe = Probe(student.chat)
    if can_switch_to(student, path):
        with preserve_adapter_state(student.model), student.model.disable_adapter():
            expected = probe.logprobs(student)
    else:
        expected = probe.logprobs(load_student(path, frozen=True))
    return ServerTeacher(student, servers, path, expected)


def _load(student: Student, path: str, bf16: bool) -> FrozenTeacher | AdapterOffTeacher | AdapterTeacher:
    """Shares the student's weights where only the adapter differs; else a model of its own."""
    below, base = student.adapter_base, base_of(path)
    if can_switch_to(student, path):
        return AdapterOffTeacher(student, path)
    shares_base = below and base and same_model(below, base)
    if shares_base and can_load_beside(student.model, path):
        return AdapterTeacher(student, path)
    teacher = FrozenTeacher(path, dtype=frozen_dtype(path, bf16), device=device())
    teacher.bind_student(student)
    return teacher


@dataclass(frozen=True)
class Stage:
    project: Project
    job: Job
    cycle: int | None = None  # its id; None for a repair outside any cycle
    cycle_number: int = 0

    @property
    def settings(self) -> Settings:
        return self.job.settings

    def with_settings(self, settings: Settings) -> Self:
        return replace(self, job=replace(self.job, settings=settings))

    @property
    def generation_seed(self) -> int:
        """Of what the base writes: another one each cycle, for the same texts again would be learned by heart."""
        return self.job.seed + SEEDS_PER_CYCLE * max(0, self.cycle_number - 1)

    @property
    def adapter(self) -> Adapter | None:
        rank = self.settings.lora_rank
        return Adapter(rank=rank, seed=self.job.seed) if rank else None

    @property
    def restores(self) -> bool:
        """Whether the clean model is the aim, so that nothing need be trained where nothing is lost. What another
        teacher, a context or a reward teaches is new, and needed in any case; so is what a router restores of earlier
        cycles, which no probe asks."""
        teacher = self.job.teacher
        by_base = not isinstance(teacher, Itself) and {*named_checkpoints(teacher)} <= {self.project.clean.id}
        if isinstance(teacher, Router) and self._cycles_before_the_student():
            return False
        return by_base and chosen_recipe(self.settings.distill).restores

    @property
    def questions(self) -> list[str]:
        """Those that new knowledge and the knowledge of earlier cycles are measured by."""
        plan = self.job.eval_plan
        files = [*([plan.questions] if plan.questions else []), *(file for _, file in plan.earlier_questions)]
        return [question.text for file in files for question in read_questions(file)]

    def source(
        self, start: Checkpoint, recipe: Recipe, teachers: Teachers | None, separator: int | None = None
    ) -> TrainingSource:
        return TrainingSource(start.path, self.adapter, self.settings.bf16, recipe, teachers, separator)

    def plan(self, steps: int, learning_rate: float, warmup: int) -> Plan:
        tokens, bf16, checkpointing = self.settings.tokens_at_once, self.settings.bf16, self.settings.checkpointing
        return Plan(steps, learning_rate, warmup, "linear", tokens, bf16=bf16, checkpointing=checkpointing)

    def midtraining_inputs(self, **of_recipe: Any) -> RunInputs:
        plan = self.job.eval_plan
        named = {"conversations": self.job.training_file, "questions": plan.questions, "passages": plan.passages}
        files: dict[str, Any] = {name: str(file.resolve()) for name, file in named.items() if file}
        return RunInputs(job=self.job.id, stage="midtrained", corpus=self.job.content, **files, **of_recipe)

    def distillation_inputs(
        self, teachers: Teachers, prompts: Sequence[ChatPrompt] = (), lift: dict[str, Any] | None = None
    ) -> RunInputs:
        questions = self.job.eval_plan.questions  # which later cycles are asked
        file = str(questions.resolve()) if questions else None
        content = content_hash([prompt.row[1] for prompt in prompts]) if prompts else None
        return RunInputs(
            job=self.job.id, stage="recovered", questions=file, prompts=content, teacher=str(teachers), lift=lift
        )

    def recorded_run(
        self, kind: Literal["midtrain", "distill"], steps: int, inputs: RunInputs
    ) -> AbstractContextManager[int]:
        settings, seed, inputs = self.settings.model_dump(), self.job.seed, replace(inputs, given=self.job.given)
        return recorded_run(self.project, kind, self.cycle, settings, seed, inputs, steps)

    def prompts(self, evaluation_items: list[str]) -> list[ChatPrompt]:
        """The prompts of the rollouts, with what the teacher is shown: none that the student is measured by."""
        prompts, evaluation_items = self.all_prompts(), [*evaluation_items, *self.questions]
        check_contamination(prompts, evaluation_items)
        clean = without_contaminated(prompts, evaluation_items, PROMPT_RUN_LENGTH)
        if count := len(prompts) - len(clean):
            prompts_that = "1 prompt that overlaps" if count == 1 else f"{count} prompts that overlap"
            log.info(f"Left out {prompts_that} with evaluation items")
        if not clean:
            raise RecoverError("All prompts overlap with evaluation items. Pass others with --prompts.")
        return clean

    @property
    def files(self) -> RecipeFiles:
        return RecipeFiles(self.job.prompts, self.job.teacher_context)

    def all_prompts(self) -> list[ChatPrompt]:
        base = BaseOutputs(self.project, self.settings, self.generation_seed)
        prompts = self.files.read(self.settings.distill, self.job.seed, lambda: base.prompts(DISTILL_SEED))
        if self.files != RecipeFiles():  # a file may be sorted, and not every recipe uses all of its prompts
            Random(self.job.seed).shuffle(prompts)
        return prompts

    def check_lift(self, teacher: Checkpoint, prompts: list[ChatPrompt] | None = None) -> dict[str, Any] | None:
        """What the context gives the teacher; raises if it gives nothing. None without a context."""
        if self.job.teacher_context is None:
            return None
        return check_lift(self.project, teacher, prompts or self.all_prompts(), self.settings, self.job.seed)

    def main_teacher(self) -> Checkpoint | None:
        """None: the student itself."""
        if isinstance(self.job.teacher, Itself):
            return None
        named = named_checkpoints(self.job.teacher)
        return self.checkpoint(named[0] if named else self.project.clean.id)

    def teachers(self, main: Checkpoint, prompts: int, evaluation_items: list[str]) -> Teachers:
        match self.job.teacher:
            case ByDomain(_, by_domain):
                return Teachers(main, {domain: self.checkpoint(id) for domain, id in by_domain.items()})
            case Router():
                return self._router(main, prompts, evaluation_items)
            case Itself() | Served() as instead:
                return Teachers(main, instead=instead)
            case _:
                return Teachers(main)

    def _router(self, main: Checkpoint, prompts: int, evaluation_items: list[str]) -> Teachers:
        """Openings of earlier documents are prompts too; never the questions about them."""
        share = self.settings.distill.earlier_prompts
        past = self._cycles_before_the_student() if share else []
        if not past:
            log.info("There are no earlier cycles: the router is the clean model alone")
            return Teachers(main)
        count = round(share / (1 - share) * prompts)
        prefixes = document_prefixes(self.earlier_corpora(), count, self.job.seed)
        clean = remove_contaminated(prefixes, [*evaluation_items, *self.questions]).clean
        if not clean:
            log.info("No documents of earlier cycles are stored: the router is the clean model alone")
            return Teachers(main)
        log.info(f"{len(clean)} openings of earlier documents beside {prompts} prompts")
        return Teachers(main, {EARLIER_DOMAIN: self.checkpoint(past[-1].checkpoint)}, tuple(clean))

    def corpus(self) -> CorpusSnapshot:
        corpus = self.job.corpus
        assert corpus is not None
        if not corpus.file.is_file():
            raise RecoverError(
                f"There is no stored copy of the documents from {corpus.path} (keep_documents is false), so this "
                "cannot continue. Run the command again with --docs."
            )
        return corpus

    def read_by(self, midtrained: Checkpoint) -> list[CorpusSnapshot]:
        """The documents that a checkpoint was last mid-trained on, and those of earlier cycles; what is stored of them.
        Of a repair, those that it was given."""
        if self.job.corpus is not None and midtrained.id == self.job.student:
            return [self.corpus()]
        run = next(midtrainings(self.project, [midtrained]), None)
        hashes = [run.inputs.corpus if run else None, *(c.corpus for c in past_cycles(self.project, midtrained))]
        return load_snapshots(self.project.home, dict.fromkeys(filter(None, hashes)))

    def earlier_corpora(self) -> list[CorpusSnapshot]:
        past = self.past_cycles()
        corpora = load_snapshots(self.project.home, [cycle.corpus for cycle in past])
        documents = self.project.home / "documents"
        of_chats = [c for c in past if c.corpus and (documents / f"{c.corpus}.conversations.jsonl").is_file()]
        if of_chats:
            log.info(f"The conversations of {len(of_chats)} of {len(past)} earlier cycles are not read again")
        if gone := len(past) - len(corpora) - len(of_chats):
            log.warning(
                f"Of {gone} of {len(past)} earlier cycles no documents are stored, so theirs are not read again. Set "
                "keep_documents = true to keep those of later cycles"
            )
        return corpora

    def past_cycles(self) -> list[PastCycle]:
        start = self.project.reader.checkpoint(self.job.start) if self.job.start else None  # its weights are not read
        return past_cycles(self.project, start) if start else []

    def _cycles_before_the_student(self) -> list[PastCycle]:
        """A mid-trained student that a person has promoted is the end of its own cycle, and no teacher of itself."""
        return [cycle for cycle in self.past_cycles() if cycle.checkpoint != self.job.student]

    def checkpoint(self, id: int | None) -> Checkpoint:
        checkpoint = self.project.reader.checkpoint(id) if id is not None else None
        if checkpoint is None:
            raise RecoverError("The checkpoint of this job is no longer in the record. Run the command again.")
        return self.project.verify(checkpoint)
