"""What a job will compute, stage by stage, from its settings, its documents and what the record has already."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from db.views import Checkpoint
from evals.counting_engine import Workload
from evals.suites.config import load_suites
from pipelines.documents import count_tokens
from pipelines.estimates.in_context_work import (
    PASSAGE_TOKENS,
    in_context_stages,
    sampling_clean_replies,
    writing_prompts,
)
from pipelines.estimates.work import TEXT, Generating, Loading, Measuring, Scoring, StageWork, Training, Work
from pipelines.estimates.workloads import Workloads
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.measure import missing_suites
from pipelines.jobs.job import Job
from pipelines.project.past_cycles import past_cycles
from pipelines.project.project import Project
from pipelines.project.runs import run_of_stage, runs_of_job
from pipelines.settings.schedule import scheduled
from pipelines.settings.schema import AUTO, Midtrain, fixed_answers_share, split_rows
from pipelines.synthetic.chat_prompts import ChatPrompt
from pipelines.synthetic.unprompted_texts import FIRST_TOKENS
from pipelines.training import mix_search, warm_start
from pipelines.training.base_model_outputs import BaseOutputs
from pipelines.training.probes import probe_set, retention_probe
from pipelines.training.recipe_inputs import RecipeFiles, read_context_text
from pipelines.training.stage_context import generation_seed
from pipelines.training.training_file_rows import expected_tokens
from recovery.models.students import load_chat
from recovery.recipes import Recipe, recipe

CONTEXT_SAMPLE = 200  # rows whose contexts are counted
RETRIES = 3  # of texts that were dropped: chats and repetitions


@dataclass(frozen=True)
class DocumentsSize:
    tokens: int  # with an end token for each document
    passages: int = 0


@dataclass(frozen=True)
class JobWork:
    """The stages of one job that are still to be done."""

    project: Project
    job: Job
    documents: DocumentsSize | None
    workloads: Workloads
    reply_tokens: float  # the expected length of a reply, which decides how many rows of answers a step takes
    prompt_tokens: float  # of a prompt for rollouts

    def stages(self) -> list[StageWork]:
        stages: list[StageWork] = []
        if self._is_in_context and not self._is_done("midtrained"):
            assert self.documents is not None
            lengths, base = (self.prompt_tokens, self.reply_tokens), self._base
            share_left, has_prompts = partial(self._share_left, "midtrained"), base.has_prompts(base.seed)
            stages += in_context_stages(
                self.job, self._midtrain, self.documents.passages, lengths, share_left, has_prompts=has_prompts
            )
        elif self.documents is not None and not self._is_done("midtrained"):
            stages += [*self._written_for_the_mix(), *self._search(), self._midtraining()]
        if self.job.command != "midtrain":
            stages += self._recovery()
        return stages

    @cached_property
    def _midtrain(self) -> Midtrain:
        assert self.documents is not None
        return scheduled(self.job.settings.midtrain, self.documents.tokens)

    @property
    def _base(self) -> BaseOutputs:
        return BaseOutputs(self.project, self.job.settings, generation_seed(self.job.seed, self._cycle))

    @cached_property
    def _cycle(self) -> int:
        """The number of the job's cycle, which is the next one unless it has one."""
        reader = self.project.reader
        mine = next((run.cycle for run in runs_of_job(self.project, self.job.id) if run.cycle), None)
        cycles = reader.cycles(self.project.id)
        if mine is not None or self.documents is None:
            return mine or (cycles[-1].number if cycles else 1)
        return cycles[-1].number + 1 if cycles else 1

    def _is_done(self, stage: str) -> bool:
        run = run_of_stage(self.project, self.job.id, stage)
        return run is not None and self.project.reader.run_checkpoint(run.id) is not None

    def _share_left(self, stage: str, steps: int) -> float:
        run = run_of_stage(self.project, self.job.id, stage)
        last = self.project.reader.last_step(run.id) if run else None
        return 1.0 if last is None else max(0.0, 1 - (last + 1) / steps)

    @property
    def measured(self) -> Workload:
        """What one measurement computes; nothing where the job measures nothing."""
        return self.workloads.of(self._final_plan) if self.job.command != "midtrain" else Workload()

    @property
    def teachers(self) -> tuple[list[str], list[str]]:
        """The models loaded beside the student: in mid-training, and in distillation."""
        project, job = self.project, self.job
        midtraining: list[str] = []
        if self._is_in_context:
            midtraining += list(dict.fromkeys([project.base, self._path(job.start)]))
        elif self.documents is not None and job.settings.midtrain.soft_labels:
            midtraining += [project.base] * bool(self._answers_share or self._rows[2])
            midtraining += [self._path(job.start)] * bool(self._rows[1])
        if job.command == "midtrain":
            return midtraining, []
        if job.teacher_servers:
            return midtraining, []
        paths = [self._path(id) for id in (job.teacher, *job.domain_teachers.values())]
        return midtraining, list(dict.fromkeys(paths))

    def _path(self, checkpoint: int | None) -> str:
        found = self.project.reader.checkpoint(checkpoint) if checkpoint is not None else None
        return self.project.locate(found).path if found else self.project.base

    # Mid-training

    @cached_property
    def _rows(self) -> tuple[int, int, int]:
        """Rows of a step: of the new documents, of earlier ones, and of texts by the base."""
        midtrain, start = self._midtrain, self.job.start
        checkpoint = self.project.reader.checkpoint(start) if start is not None else None
        has_past = checkpoint is not None and bool(past_cycles(self.project, checkpoint))
        shares = midtrain.mix.earlier if has_past else 0.0, midtrain.mix.texts
        earlier, texts = split_rows(midtrain.step_rows, shares)
        return midtrain.step_rows - earlier - texts, earlier, texts

    @property
    def _answers_share(self) -> float:
        """Where the share is searched, the largest that may be taken."""
        if self.job.settings.midtrain.mix.answers == AUTO:
            return max(mix_search.SHARES)
        return fixed_answers_share(self.job.settings)

    @property
    def _steps(self) -> int:
        midtrain = self._midtrain
        assert self.documents is not None
        copies = 1 + midtrain.mix.paraphrases
        return midtrain.steps(math.ceil(copies * self.documents.tokens / midtrain.window), self._rows[0])

    def _written_for_the_mix(self) -> Iterator[StageWork]:
        settings, midtrain = self.job.settings, self._midtrain
        assert self.documents is not None
        count, prompts = midtrain.generated_texts, settings.distill.prompts
        if self._rows[2] and not self._base.has_texts:
            openings = Generating(count * FIRST_TOKENS, 1, 1, TEXT)
            texts = Generating(count, count * 2, midtrain.window, TEXT)
            replaced = Generating(count // 8 + 1, 2, midtrain.window, TEXT, calls=RETRIES)
            yield StageWork("write/texts", f"writing {count:,} texts", [Loading(), openings, texts, replaced])
        if times := midtrain.mix.paraphrases:
            rows = times * self.documents.passages
            paraphrases = Generating(rows, rows * PASSAGE_TOKENS, PASSAGE_TOKENS)
            yield StageWork("write/paraphrases", f"writing {rows:,} paraphrases", [Loading(), paraphrases])
        if self._answers_share and not self._base.has_prompts(self._base.seed):
            parts: list[Work] = [Loading(2), writing_prompts(prompts), self._writing_replies(prompts)]
            yield StageWork("write/answers", f"writing {prompts:,} prompts and answers", parts)

    def _writing_replies(self, count: int) -> Work:
        return Generating(count, count * self.prompt_tokens, self.job.settings.distill.max_new_tokens)

    def _search(self) -> Iterator[StageWork]:
        if self.job.settings.midtrain.mix.answers != AUTO or not self._can_probe:
            return
        trials, steps = len(mix_search.SHARES), mix_search.trial_steps(self._steps)
        parts: list[Work] = [Loading(2 * trials), self._training(trials * steps), self._probes(trials)]
        yield StageWork("search", f"trying {trials} shares of answers", parts)

    def _training(self, steps: float) -> Training:
        midtrain, (documents, earlier, texts) = self._midtrain, self._rows
        window, share = midtrain.window, self._answers_share
        answers = share / (1 - share) * midtrain.step_rows * window  # targets, to which come their prompts
        answers *= 1 + self.prompt_tokens / self.reply_tokens
        soft_earlier = -(-earlier // 2)
        soft = (texts + soft_earlier) * window + answers if midtrain.soft_labels else 0.0
        return Training(steps, (documents + earlier + texts) * window + answers - soft, soft)

    def _midtraining(self) -> StageWork:
        steps = self._steps
        left = self._share_left("midtrained", steps)
        return StageWork("midtrain", "mid-training", [Loading(2), self._training(left * steps)])

    @property
    def _is_in_context(self) -> bool:
        return self.documents is not None and bool(recipe(self.job.settings.midtrain.recipe).context)

    # Recovery

    @cached_property
    def _can_probe(self) -> bool:
        return not self.job.eval_plan.split_problem(load_suites(self.project.base))

    @property
    def _has_probes(self) -> bool:
        return bool(self.job.settings.distill.probe_every) and self._can_probe

    @property
    def _final_plan(self) -> EvalPlan:
        is_split = self._has_probes or (self.job.settings.midtrain.mix.answers == AUTO and self._can_probe)
        return replace(self.job.eval_plan, split="final" if is_split else "all")

    @property
    def _probe_plan(self) -> EvalPlan:
        return probe_set(self.job.eval_plan, self.job.settings.distill.probe_items)

    def _probes(self, times: float) -> Measuring:
        plan = self._probe_plan
        suites = ["behaviour", *["knowledge"] * bool(plan.questions or plan.passages)]
        return Measuring(self.workloads.of(plan, suites), times)

    def _probes_of_retention(self, times: float) -> Iterator[Measuring]:
        """Where checkpoints of probes are kept."""
        chosen = retention_probe(self._probe_plan, load_suites(self.project.base))
        if chosen and self.job.settings.distill.keep:
            plan, named = chosen
            yield Measuring(self.workloads.of(plan, ["retention"], named=named), times)

    def _recovery(self) -> Iterator[StageWork]:
        if self.job.teacher_context and not self._is_done("recovered"):
            yield self._lift()
        final, clean = self._final_plan, self.project.clean
        of_clean = replace(final, earlier_questions=())
        if self._has_probes:
            yield from self._measuring("probe", "the probe set", clean, replace(self._probe_plan, suite="behaviour"))
        yield from self._measuring("clean", "the clean model", clean, of_clean)
        repaired = self.job.command == "distill"
        name = "the model to recover" if repaired else "the mid-trained model"
        student = self.project.reader.checkpoint(self.job.student) if repaired and self.job.student else None
        damaged, block = student or self._checkpoint_of("midtrained"), self.job.settings.gate.block
        yield from self._measuring("damaged", name, damaged, final, block)
        if not self._is_done("recovered"):
            yield from self._written_for_rollouts()
            yield self._distilling()
        recovered = self._checkpoint_of("recovered")
        yield from self._measuring("recovered", "the recovered model", recovered, final)

    def _checkpoint_of(self, stage: str) -> Checkpoint | None:
        run = run_of_stage(self.project, self.job.id, stage)
        return self.project.reader.run_checkpoint(run.id) if run else None

    def _measuring(
        self, key: str, name: str, checkpoint: Checkpoint | None, plan: EvalPlan, first_block: int = 0
    ) -> Iterator[StageWork]:
        missing = None if checkpoint is None else missing_suites(self.project, checkpoint, plan)
        if missing is None or missing:
            parts: list[Work] = [Loading(), Measuring(self.workloads.of(plan, missing, first_block))]
            yield StageWork(f"measure/{key}", f"measuring {name}", parts)

    def _lift(self) -> StageWork:
        """Replies with the context and without."""
        distill, rows = self.job.settings.distill, min(self.job.settings.distill.probe_items, self._prompts)
        tokens = rows * (2 * self.prompt_tokens + self._context_tokens)
        parts: list[Work] = [Loading(), Generating(2 * rows, tokens, distill.max_new_tokens)]
        return StageWork("lift", "measuring what the context gives the teacher", parts)

    @cached_property
    def _given_prompts(self) -> list[ChatPrompt]:
        """Empty where the base writes them."""
        files = RecipeFiles(self.job.prompts, self.job.teacher_context)
        return files.read(self.job.settings.distill, self.job.seed)

    @cached_property
    def _context_tokens(self) -> float:
        """What a teacher in context reads more than the student, of an average row."""
        file = self.job.teacher_context
        texts = [prompt.context or "" for prompt in self._given_prompts[:CONTEXT_SAMPLE]]
        texts = texts or ([read_context_text(file)] if file else [""])
        return count_tokens(texts, self.workloads.chat.tokenizer) / len(texts)

    @property
    def _distill_recipe(self) -> Recipe:
        return recipe(self.job.settings.distill.recipe)

    @property
    def _distill_steps(self) -> int:
        distill = self.job.settings.distill
        return min(distill.steps, distill.max_steps or distill.steps)

    @property
    def _prompts(self) -> int:
        return len(self._given_prompts) or self.job.settings.distill.prompts

    def _written_for_rollouts(self) -> Iterator[StageWork]:
        settings = self.job.settings
        is_written = bool(self._given_prompts) or self._base.has_distill_prompts or not self._distill_steps
        if not is_written:
            name = f"writing {self._prompts:,} prompts"
            yield StageWork("write/prompts", name, [Loading(), writing_prompts(self._prompts)])
        on_policy = round(self._distill_recipe.on_policy_fraction * settings.distill.rows)
        has_replies = on_policy < settings.distill.rows and self._distill_recipe.data != "conversations"
        if has_replies and self._distill_steps:
            count = min(self._prompts, self._distill_steps * settings.distill.rows)
            name = f"writing {count:,} answers"
            yield StageWork("write/replies", name, [Loading(), self._writing_replies(count)])

    @property
    def _reread_tokens(self) -> float:
        """Of a step's rows of documents, or of a training file."""
        settings = self.job.settings.distill
        share = settings.documents_share
        if share and self.job.training_file:
            return expected_tokens(self.job.training_file, load_chat(self.project.base), settings)
        return share / (1 - share) * settings.rows * self.job.settings.midtrain.window

    def _distilling(self) -> StageWork:
        settings, steps = self.job.settings.distill, self._distill_steps
        steps_left = self._share_left("recovered", steps) * steps
        rows = settings.rows * (self.prompt_tokens + self.reply_tokens)
        documents = self._reread_tokens
        by_label = not self._distill_recipe.scores_with_teacher
        label, taught = (rows + documents, 0.0) if by_label else (documents, rows)
        parts: list[Work] = [Loading(2), Training(steps_left, label, taught)]
        parts.append(Scoring(steps_left * settings.rows * self._context_tokens))
        if on_policy := round(self._distill_recipe.on_policy_fraction * settings.rows):
            prompts = on_policy * self.prompt_tokens
            parts.append(Generating(on_policy, prompts, settings.max_new_tokens, calls=steps_left))
            if self._distill_recipe.scores_with_teacher:
                parts += sampling_clean_replies(self.prompt_tokens, settings.max_new_tokens)
        if continued := self._distill_recipe.continued:
            read = settings.rows * (self.prompt_tokens + self.reply_tokens / 2)
            parts.append(Generating(settings.rows, read, continued[1], calls=steps_left))
        if self._has_probes:
            tried = {"off": 1, AUTO: 1 + len(warm_start.SHARES)}.get(str(settings.warm_start), 2)
            in_training = (steps - 1) // settings.probe_every * steps_left / max(1, steps)
            parts += [self._probes(tried + in_training), *self._probes_of_retention(in_training)]
        limit = f"at most {steps} steps" if self._has_probes else f"{steps} steps"
        return StageWork("distill", f"distilling ({limit})", parts)
