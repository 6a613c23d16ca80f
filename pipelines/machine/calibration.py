"""How fast this machine trains and generates with one model and its settings, measured in a few seconds.

The measurements use the training loop and the engine that the job will use, on a few rows. A long job differs from
them: batches are larger, replies longer. What stages really took corrects that (`pipelines.estimates`).
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from pipelines.model_loading import device
from pipelines.settings.schema import Settings
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.losses.objectives import CrossEntropy, Divergence, Objective
from recovery.models.adapters import Adapter
from recovery.models.students import Student, hidden_states, load_student
from recovery.samples import Batch, Sample
from recovery.signals import Labels, Signal, TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import Distribution
from recovery.train import Plan, train

SECONDS = 1.0  # about so long the first measurement of training may take
LONG_SECONDS = 4.0  # and the second, of more tokens: large steps cost less a token
REPLY_SECONDS = 2.5  # about so long one measurement of generation may take
SHORT_REPLY, LONG_REPLY = 8, 64  # tokens: the longer they are, the better is known when replies end
SMALL_BATCH, LARGE_BATCH = 8, 32  # rows
PRIOR_ENDS, PRIOR_SHARE = 2, 0.25  # before any reply is seen: so many ended, at this share of their limit
# Over transformers, until a stage with vLLM was timed: starting it would take longer than all else.
VLLM_SPEEDUP, VLLM_SPEEDUP_ON_CPU = 4.0, 2.0
VLLM_START = 20.0  # seconds, each time it is opened

ReplyStarts = dict[str, tuple[list[list[int]], int]]  # by kind of reply: token ids to continue, and the usual limit


@dataclass(frozen=True)
class Rates:
    """Seconds; all are for the whole machine, as it was during the calibration."""

    load: float  # to load the model
    step: float  # of an optimiser step, besides its tokens
    label_token: float  # read and learned by its label, forward and backward
    taught_token: float  # the same with a teacher of the same size, by its whole distribution
    scored_token: float  # read without learning
    decode_pass: float  # of generation: one more token for a batch, besides its rows
    written_token: float  # of generation: one more token of one row
    open_engine: float  # until an engine is ready
    ends: dict[str, float]  # by kind of reply: the chance that a token is its last

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _OwnTeacher:
    """Costs what a teacher of the student's size costs."""

    def __init__(self, student: Student):
        self._student = student

    def flops(self, samples: list[Sample]) -> float:
        return 0.0

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        return Distribution.from_hidden(hidden_states(self._student.causal, batch), self._student.head)


def machine_id() -> list[Any]:
    """What decides the speed of this machine; a calibration of another machine says nothing about this one."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [_processor(), os.cpu_count(), torch.get_num_threads(), gpus, platform.node()]


def relevant_settings(settings: Settings, engine: str) -> list[Any]:
    """The settings that change the speed of a token."""
    window = settings.midtrain.window
    return [settings.lora_rank, settings.bf16, settings.checkpointing, settings.tokens_at_once, window, engine]


def calibrate(model: str, settings: Settings, engine: str, starts: ReplyStarts) -> Rates:
    """Measure the model at a path. `engine` is the library or the servers that will generate."""
    start_time = time.perf_counter()
    adapter = Adapter(rank=settings.lora_rank) if settings.lora_rank else None
    student = load_student(model, adapter=adapter, device=device())
    load = time.perf_counter() - start_time
    generator = TransformersEngine(student)
    scored = _scoring(generator, student)
    decode, written, ends = _generation(generator, starts)
    by_label, by_teacher = _training(student, settings)
    rates = Rates(
        load=load,
        step=by_label.fixed,
        label_token=by_label.per_token,
        taught_token=max(by_teacher.per_token, by_label.per_token),
        scored_token=scored,
        decode_pass=decode,
        written_token=written,
        open_engine=0.0,
        ends=ends,
    )
    if engine == "transformers":
        return rates
    speedup = VLLM_SPEEDUP if device() == "cuda" else VLLM_SPEEDUP_ON_CPU
    return with_vllm(rates, VLLM_START if engine == "vllm" else 0.0, speedup)


def with_vllm(rates: Rates, start: float = VLLM_START, speedup: float = VLLM_SPEEDUP) -> Rates:
    """As fast as vLLM is taken to be; `start` is how long it takes to start."""
    faster = {name: getattr(rates, name) / speedup for name in ("scored_token", "decode_pass", "written_token")}
    return replace(rates, open_engine=start, **faster)


@dataclass(frozen=True)
class _Line:
    fixed: float
    per_token: float


def _training(student: Student, settings: Settings) -> tuple[_Line, _Line]:
    """The cost of a step by its tokens: with labels, and with a teacher."""
    cases: list[tuple[Signal, Objective]] = [
        (Labels(), CrossEntropy()),
        (TeacherSignal(_OwnTeacher(student)), Divergence()),
    ]
    by_label, by_teacher = (_step_line(student, settings, signal, objective) for signal, objective in cases)
    return by_label, by_teacher


def _step_line(student: Student, settings: Settings, signal: Signal, objective: Objective) -> _Line:
    window = settings.midtrain.window
    few = min(window, 64)
    _, *repeated = _step_seconds(student, settings, signal, objective, [few], steps=3)  # the first one warms up
    short = min(repeated)
    # However slow the model: few tokens alone would count the optimiser's own time as theirs.
    many = int(min(max(few * SECONDS / max(short, 1e-4), 4 * few), settings.tokens_at_once))
    if many <= few:
        return _Line(0.0, short / few)

    def line_to(tokens: int) -> _Line:
        lengths = [window] * (tokens // window) or [tokens]
        seconds = min(_step_seconds(student, settings, signal, objective, lengths, steps=2))
        return line_through((few, short), (sum(lengths), seconds))

    line = line_to(many)
    more = int(min(LONG_SECONDS / line.per_token, settings.tokens_at_once)) if line.per_token else many
    return line_to(more) if more >= 2 * many else line


def line_through(small: tuple[int, float], large: tuple[int, float]) -> _Line:
    """The costs that explain two measurements (tokens, seconds); none is negative."""
    per_token = max(0.0, large[1] - small[1]) / (large[0] - small[0])
    fixed = small[1] - per_token * small[0]
    return _Line(fixed, per_token) if fixed >= 0 and per_token > 0 else _Line(0.0, large[1] / large[0])


def _step_seconds(
    student: Student, settings: Settings, signal: Signal, objective: Objective, lengths: list[int], steps: int
) -> list[float]:
    """Seconds of each step over rows of these lengths; a learning rate of 0 leaves the weights as they are."""
    rng, vocabulary = Random(0), len(student.chat.tokenizer)
    rows = [
        Sample([rng.randrange(vocabulary) for _ in range(length)], [False] + [True] * (length - 1))
        for length in lengths
    ]
    plan = Plan(
        steps, 0.0, tokens_at_once=settings.tokens_at_once, bf16=settings.bf16, checkpointing=settings.checkpointing
    )
    records = train(student, FixedRows(rows, rows=len(rows)), signal, objective, plan)
    return [record.teacher_seconds + record.update_seconds for record in records]


def _scoring(engine: Engine, student: Student) -> float:
    """Seconds of a token that is read and scored."""
    rng, vocabulary = Random(1), len(student.chat.tokenizer)
    count = 1
    while True:
        rows = [[rng.randrange(vocabulary) for _ in range(64)] for _ in range(count)]
        seconds = _timed(lambda rows=rows: engine.logprobs(rows))  # type: ignore[misc]
        if seconds > SECONDS / 8 or count >= 64:
            return seconds / (64 * count)
        count *= 4


def _generation(engine: Engine, starts: ReplyStarts) -> tuple[float, float, dict[str, float]]:
    """Seconds of a pass and of a token of a row, and the chance of each kind of reply to end."""
    costs: tuple[float, float] | None = None
    ends: dict[str, float] = {}
    for kind, (prompts, limit) in starts.items():
        reading = _timed(lambda prompts=prompts: engine.generate(prompts, Sampling(1)))  # type: ignore[misc]
        tokens = min(SHORT_REPLY, limit)
        large = _pass(engine, prompts, LARGE_BATCH, tokens, reading)
        if (longer := min(LONG_REPLY, limit, int(tokens * REPLY_SECONDS / large.seconds))) >= 2 * tokens:
            tokens = longer
            large = _pass(engine, prompts, LARGE_BATCH, tokens, reading)
        ends[kind] = chance_of_end(large.ended, large.tokens, limit)
        costs = costs or decoding_costs(_pass(engine, prompts, SMALL_BATCH, tokens, reading), large)
    return *(costs or (0.0, 0.0)), ends


@dataclass(frozen=True)
class Pass:
    """A generation, without the reading of its prompts."""

    passes: int  # of the model
    tokens: int
    ended: int  # replies
    seconds: float


def _pass(engine: Engine, prompts: list[list[int]], rows: int, tokens: int, reading: float) -> Pass:
    """Continue the prompts, each as often as it takes to have so many rows; equal ones are read once."""
    batch = [prompts[row % len(prompts)] for row in range(rows)]
    start_time = time.perf_counter()
    replies = engine.generate(batch, Sampling(tokens, seed=rows))
    seconds = time.perf_counter() - start_time
    lengths = [len(reply.tokens) for reply in replies]
    ended = sum(reply.finished for reply in replies)
    return Pass(max(lengths), sum(lengths), ended, max(seconds - reading, 0.1 * seconds))


def decoding_costs(small: Pass, large: Pass) -> tuple[float, float]:
    """(seconds of a pass, seconds of a token of a row) that explain a small and a large batch; none is negative."""
    divisor = small.passes * large.tokens - large.passes * small.tokens
    if divisor > 0:
        per_pass = (small.seconds * large.tokens - large.seconds * small.tokens) / divisor
        per_token = (small.passes * large.seconds - large.passes * small.seconds) / divisor
        if per_pass >= 0 and per_token >= 0:
            return per_pass, per_token
    return (0.0, large.seconds / large.tokens) if large.tokens else (0.0, 0.0)


def chance_of_end(ended: int, tokens: int, limit: int) -> float:
    """The chance that a token is the last of its reply, from a look at the beginning of some replies.

    Without any that ended, replies are expected to end at a quarter of the limit or later."""
    return (ended + PRIOR_ENDS) / (tokens + PRIOR_ENDS * max(1.0, PRIOR_SHARE * limit))


def _timed(compute: Callable[[], object]) -> float:
    start_time = time.perf_counter()
    compute()
    return time.perf_counter() - start_time


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
