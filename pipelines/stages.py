"""The two stages that change weights: teach the documents, bring the behaviour back. Both are the one loop."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from db.views import Checkpoint
from pipelines.documents import Corpus
from pipelines.project import Project
from pipelines.prompts import as_prompts, write_prompts
from pipelines.settings import Settings
from recovery.adapters import Adapter, same_model
from recovery.batch import Sequence
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.recipes import Recipe, objective_of, recipe, signal_of
from recovery.record import StepRecord
from recovery.states import Documents, Mixture, Prompt, Rollouts, States, Written
from recovery.students import Student, describe, load_student, save_student
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, Teacher
from recovery.train import Plan, train

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    checkpoint: Checkpoint
    run: int
    steps: int
    tokens: int
    seconds: float


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def frozen(path: str) -> Student:
    return load_student(path, frozen=True, device=device())


@contextmanager
def recorded_run(project: Project, kind: Any, cycle: int | None, settings: dict[str, Any], seed: int) -> Iterator[int]:
    """A run on record from start to end, however it ends."""
    run = project.tracker.start_run(project.id, kind, cycle, settings, seed)
    try:
        yield run
    except BaseException as error:
        project.tracker.finish_run(
            run, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", str(error) or type(error).__name__
        )
        raise
    project.tracker.finish_run(run, "done")


def midtrain(
    project: Project,
    settings: Settings,
    corpus: Corpus,
    start: Checkpoint,
    cycle: int,
    seed: int,
    say: Say,
    questions: Path | None = None,
) -> Trained:
    """Read the documents, all tokens of them, from `start`."""
    wanted = settings.midtrain
    if recipe(wanted.recipe).data != "documents":
        raise RecoverError(
            f"the recipe {wanted.recipe!r} does not read documents; mid-training takes the recipe midtrain"
        )
    student = _to_train(start, settings, seed)
    tokenizer = student.chat.tokenizer
    # A special token written inside a document stays the text it is.
    as_text = {"add_special_tokens": False, "split_special_tokens": True}
    texts = [tokenizer(text, **as_text)["input_ids"] for text in corpus.texts]
    # Documents end as pre-training ended them: with the pad where that is an end of text too (Qwen), else with the EOS.
    pad = tokenizer.pad_token or ""
    end = tokenizer.pad_token_id if "endoftext" in pad else tokenizer.eos_token_id
    documents = Documents(texts, end, window=wanted.window, rows=wanted.rows, seed=seed)
    steps = max(1, math.ceil(wanted.epochs * len(documents.windows) / wanted.rows))
    steps = min(steps, wanted.max_steps or steps)
    plan = Plan(steps, wanted.learning_rate, warmup=min(10, steps // 10), decay="linear", bf16=settings.bf16)
    say(f"mid-training on {corpus.files} documents, {documents.tokens:,} tokens: {steps} steps from {start.reference}")
    told = {**settings.as_dict(), "questions": str(questions.resolve()) if questions else None}
    with recorded_run(project, "midtrain", cycle, told, seed) as run:
        return _learn(
            project, run, student, documents, recipe(wanted.recipe), None, plan, start, "midtrained", cycle, say
        )


def distill(
    project: Project,
    settings: Settings,
    start: Checkpoint,
    teacher: Checkpoint,
    prompts: list[str] | None,
    cycle: int | None,
    seed: int,
    say: Say,
) -> Trained:
    """Bring the behaviour of `teacher` back into `start`, on what `start` itself writes."""
    wanted, chosen = settings.distill, recipe(settings.distill.recipe)
    student = _to_train(start, settings, seed)
    # Where its own answers are the labels, nobody judges: its weights are needed for writing them alone.
    clean = _teacher(student, teacher, project) if chosen.estimator != "labels" else None
    steps = min(wanted.steps, wanted.max_steps or wanted.steps)
    plan = Plan(steps, wanted.learning_rate, warmup=min(5, steps // 5), decay="linear", bf16=settings.bf16)
    with recorded_run(project, "distill", cycle, settings.as_dict(), seed) as run:
        texts = prompts or own_prompts(project, wanted.prompts, seed, say)
        asked = as_prompts(texts, student.chat)
        states = _states(chosen, student, teacher.path, asked, settings, seed)
        say(
            f"distilling {start.reference} with {teacher.reference} as its teacher: {steps} steps, {len(asked)} prompts"
        )
        return _learn(project, run, student, states, chosen, clean, plan, start, "recovered", cycle, say)


def own_prompts(project: Project, count: int, seed: int, say: Say) -> list[str]:
    """Prompts in the clean base's own words, kept for the next time."""
    weights = weights_hash(Path(project.base)) if Path(project.base).is_dir() else project.base
    key = hashlib.sha256(f"{weights}/{count}/{seed}".encode()).hexdigest()[:16]
    kept = project.home / "cache" / f"prompts-{key}.json"
    if kept.is_file():
        return list(json.loads(kept.read_text(encoding="utf-8")))
    say(f"the clean base writes {count} prompts of its own")
    base = frozen(project.base)
    written = write_prompts(TransformersEngine(base), base.chat, count, seed)
    kept.parent.mkdir(parents=True, exist_ok=True)
    aside = kept.with_suffix(".partial")
    aside.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
    aside.replace(kept)
    return written


def _to_train(start: Checkpoint, settings: Settings, seed: int) -> Student:
    adapter = Adapter(rank=settings.lora_rank, seed=seed) if settings.lora_rank else None
    return load_student(start.path, adapter=adapter, device=device())


def _teacher(student: Student, teacher: Checkpoint, project: Project) -> Teacher:
    """The clean base under the student's adapters when that is what was asked for, else a checkpoint of its own."""
    if student.adapter_base and teacher.path == project.base and same_model(student.adapter_base, project.base):
        return AdapterOffTeacher(student, project.base)
    loaded = FrozenTeacher(teacher.path, device=device())
    loaded.speak_to(student)
    return loaded


def _states(
    chosen: Recipe, student: Student, teacher_path: str, prompts: list[Prompt], settings: Settings, seed: int
) -> States:
    """The student's own rollouts, the teacher's, or so many of each as the recipe's alpha says."""
    wanted = settings.distill
    own = round(chosen.alpha * wanted.rows)
    parts: list[States] = []
    if own:
        engine = TransformersEngine(student)
        group = chosen.group
        parts.append(Rollouts(prompts, engine, rows=own, group=group, max_new_tokens=wanted.max_new_tokens, seed=seed))
    if own < wanted.rows:
        if chosen.data != "teacher":
            raise RecoverError(f"distillation has no data for a recipe that learns from {chosen.data}")
        enough = prompts[: min(wanted.steps, wanted.max_steps or wanted.steps) * wanted.rows]
        answered = _answers(teacher_path, enough, wanted.max_new_tokens, seed)
        parts.append(Written(answered, rows=wanted.rows - own, seed=seed))
    return Mixture(*parts)


def _answers(teacher_path: str, prompts: list[Prompt], max_new_tokens: int, seed: int) -> list[Sequence]:
    """The teacher's sampled answers to the prompts: states the student did not write."""
    written = TransformersEngine(frozen(teacher_path)).generate(
        [p.tokens for p in prompts], Sampling(max_new_tokens, seed=seed)
    )
    return [
        Sequence(p.tokens + g.tokens, [False] * len(p.tokens) + [True] * len(g.tokens), prompt=p.text)
        for p, g in zip(prompts, written, strict=True)
    ]


def _learn(
    project: Project,
    run: int,
    student: Student,
    states: States,
    chosen: Recipe,
    teacher: Teacher | None,
    plan: Plan,
    start: Checkpoint,
    role: Any,
    cycle: int | None,
    say: Say,
) -> Trained:
    tokens, seconds = 0, 0.0
    for record in train(student, states, signal_of(chosen, teacher), objective_of(chosen), plan):
        project.tracker.step(run, record.step, record.metrics())
        tokens += record.target_tokens
        seconds += record.rollout_seconds + record.teacher_seconds + record.update_seconds
        if record.step % max(1, plan.steps // 10) == 0 or record.step == plan.steps - 1:
            say(_progress(record, plan))
    folder = project.checkpoint_folder(run)
    about = {"parent": start.path, "run": run, "step": plan.steps, "suites": describe(project.base).get("suites", {})}
    save_student(student, folder, about)
    made = project.tracker.checkpoint(
        project.id,
        role,
        folder,
        "adapter" if student.has_adapter else "full",
        parent=start.id,
        run=run,
        cycle=cycle,
        hash=weights_hash(folder),
        bytes=sum(p.stat().st_size for p in folder.iterdir()),
        step=plan.steps,
    )
    checkpoint = project.reader.checkpoint(made)
    assert checkpoint is not None
    return Trained(checkpoint, run, plan.steps, tokens, seconds)


def weights_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _progress(record: StepRecord, plan: Plan) -> str:
    parts = [f"step {record.step + 1}/{plan.steps}", f"loss {record.loss:.3f}"]
    if record.kl is not None:
        parts.append(f"KL {record.kl:.3f}")
    if record.rollout_length is not None:
        parts.append(f"length {record.rollout_length:.0f}")
    return "  " + " · ".join([*parts, f"{record.tokens_per_second:,.0f} tokens/s"])
