"""What a cycle needs on GPUs that are not there yet: memory of each, hours and cost, from the base's config alone.

The speeds are assumed, those of an A100; docs/scale.md says what was measured."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from evals.suites.instruction_following import PUBLIC_NEW_TOKENS
from pipelines.documents import Corpus, count_tokens
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, midtraining_steps, scheduled
from pipelines.settings.schema import Settings
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from pipelines.training.recipe_inputs import check_processes
from pipelines.training_memory import (
    FULL,
    ROWS_AT_ONCE,
    Device,
    ModelShape,
    Teacher,
    TrainingMemory,
    cheaper_settings,
    fitting_changes,
    gigabytes,
    kv_cache,
    peak,
    sums,
    training_memory,
)
from recovery.errors import RecoverError
from recovery.models.students import load_chat

FLOPS = 1e14  # a second, in training: a third of an A100's peak in bfloat16, a tenth of an H100's
MEMORY_SPEED = 1e12  # bytes a second, read while generating: half of an A100's
LINK_SPEED = 1e11  # bytes a second from the other GPUs
LAYER_PASS = 2.5e-4  # seconds, at least, of one more token for a batch; with an adapter twice that
VLLM_SPEEDUP = 4  # over transformers
PUBLIC_PROMPTS = 541  # of the public IFEval
CHARACTERS_PER_TOKEN = 4
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # GPUs that are compared


@dataclass(frozen=True)
class GpuPlan:
    base: str
    name: str  # of the base, as the user knows it
    settings: Settings
    tokens: int  # of the documents
    is_counted: bool  # with the base's tokenizer
    processes: int  # one on each GPU
    gpu_memory: float  # bytes
    tokens_per_second: float | None = None  # that a GPU mid-trains
    price: float | None = None  # of a GPU for an hour

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of(self.base)

    @property
    def trained_parameters(self) -> int:
        return self.shape.adapter(self.settings.lora_rank) or self.shape.parameters

    @property
    def engine(self) -> str:
        """What `auto` chooses where vLLM is installed."""
        if self.settings.engine != "auto":
            return self.settings.engine
        return "vllm" if self.processes == 1 and self.shape.parameters > SMALL_MODEL_PARAMETERS else "transformers"

    @cached_property
    def _scheduled(self) -> Settings:
        """With the rows of a step that suit the documents, where the settings leave them open."""
        return self.settings.model_copy(update={"midtrain": scheduled(self.settings.midtrain, self.tokens)})

    @cached_property
    def memory(self) -> TrainingMemory:
        settings, device = self._scheduled, Device(self.gpu_memory, self.processes)
        teachers, replies = [Teacher.of(self.base, self.base, settings)], kv_cache(self.shape, settings, device)
        return training_memory(self.shape, settings, teachers, device, replies, uses_vllm=self.engine == "vllm")

    @property
    def peak(self) -> float:
        return peak(self.memory)

    @property
    def fits(self) -> bool:
        return self.peak <= self.gpu_memory

    @property
    def host_memory(self) -> int:
        """Bytes of the machine for each process: every model is read there first."""
        return FULL * self.shape.parameters

    @cached_property
    def stages(self) -> list[tuple[str, float]]:
        """(name, seconds)."""
        midtrain, distill, share = self._scheduled.midtrain, self._scheduled.distill, self.settings.midtrain.mix.answers
        read, learned = midtraining_steps(midtrain, self.tokens), min(distill.steps, distill.max_steps or distill.steps)
        reading = self._step(midtrain.step_rows, midtrain.window) / (1 - share)
        learning = self._step(distill.rows, MAX_PROMPT_TOKENS + distill.max_new_tokens, has_teacher=True)
        replying = self._written(distill.rows, distill.max_new_tokens)
        writing = self._written(distill.prompts, MAX_PROMPT_TOKENS)
        writing += self._written(distill.prompts * (share > 0), distill.max_new_tokens)
        writing += self._written(midtrain.generated_texts * (midtrain.mix.texts > 0), midtrain.window)
        return [
            (f"mid-training ({read:,} steps)", read * reading),
            (f"distilling ({learned:,} steps)", learned * (learning + replying)),
            ("writing prompts, and what the mix needs", writing),
            ("measuring three models", 3 * self._written(PUBLIC_PROMPTS, PUBLIC_NEW_TOKENS)),
        ]

    def _step(self, rows: int, length: int, *, has_teacher: bool = False) -> float:
        """Seconds of a training step. A process without a row is of no use."""
        settings, parameters, several = self.settings, self.shape.parameters, self.processes > 1
        work = (4 if settings.lora_rank else 6) + 2 * settings.checkpointing  # FLOPs of a parameter and a token
        flops = work * parameters * self.tokens_per_second if self.tokens_per_second else FLOPS
        tokens = math.ceil(rows / self.processes) * length
        passes = math.ceil(tokens / max(settings.tokens_at_once, length))
        gathered = passes * (2 if settings.lora_rank else 3) * FULL * parameters / LINK_SPEED * several
        return tokens * (work + 2 * has_teacher) * parameters / flops + gathered

    def _written(self, rows: int, tokens: int) -> float:
        """Seconds of replies, all as long as they may be: a pass for each token of a batch, however many GPUs there
        are."""
        launches = LAYER_PASS * self.shape.layers * (2 if self.settings.lora_rank else 1)
        seconds = max(FULL * self.shape.parameters / MEMORY_SPEED, launches)
        passes = math.ceil(rows / ROWS_AT_ONCE) * tokens
        return passes * seconds / (1 if self.engine == "transformers" else VLLM_SPEEDUP)

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.stages)

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.processes * self.seconds / 3600

    def check(self) -> None:
        """Raise if it cannot be trained so, and say what would fit."""
        check_processes(self.processes, self.settings)
        if self.fits:
            return
        changes = cheaper_settings(self.settings) | ({"engine": "transformers"} if self.engine == "vllm" else {})
        more = [plan for plan in self.by_gpu_count() if plan.processes > self.processes and plan.fits]
        advice = [f"--processes {plan.processes} ({gigabytes(plan.peak)})" for plan in more[:1]]
        advice += fitting_changes(self.settings, changes, lambda s: replace(self, settings=s).peak, self.gpu_memory)
        phases = sums(self.memory)
        raise RecoverError(
            f"A cycle of {self.name} takes {gigabytes(self.peak)} of each GPU {max(phases, key=phases.__getitem__)}, "
            f"and {gigabytes(self.gpu_memory)} are there: choose "
            f"{' or '.join([*advice, 'a smaller model'])}, or larger GPUs."
        )

    def by_gpu_count(self) -> list["GpuPlan"]:
        """The same on each number of GPUs that can share the rows of a step."""
        plans = []
        for count in COUNTS:
            with suppress(RecoverError):
                check_processes(count, self.settings)
                plans.append(replace(self, processes=count))
        return plans

    def as_json(self) -> dict[str, Any]:
        return {
            "base": self.name,
            "parameters": self.shape.parameters,
            "trained_parameters": self.trained_parameters,
            "gpu_memory": round(self.gpu_memory),
            "engine": self.engine,
            "tokens": self.tokens,
            "counted": self.is_counted,
            "memory": {phase: {part: round(n) for part, n in parts.items()} for phase, parts in self.memory.items()},
            "host_memory": self.host_memory,
            "stages": [{"stage": name, "seconds": round(seconds)} for name, seconds in self.stages],
            **self._summary(),
            "others": [plan._summary() for plan in self.by_gpu_count()],
            "assumptions": self.assumptions,
        }

    def _summary(self) -> dict[str, Any]:
        hours, cost = round(self.seconds / 3600, 2), None if self.cost is None else round(self.cost, 2)
        return {"processes": self.processes, "peak": round(self.peak), "fits": self.fits, "hours": hours, "cost": cost}

    @property
    def assumptions(self) -> list[str]:
        """What the hours rest on, as sentences."""
        speed = f"Assumed: a GPU trains at {FLOPS / 1e12:.0f} TFLOPS (--tokens-per-second says what was seen)."
        if self.tokens_per_second:
            speed = f"Given: a GPU mid-trains {self.tokens_per_second:,.0f} tokens a second (--tokens-per-second)."
        return [
            speed,
            f"Assumed: a GPU reads {MEMORY_SPEED / 1e12:.0f} TB/s of its memory and {LINK_SPEED / 1e9:.0f} GB/s from "
            "the others; replies are as long as they may be.",
        ]


def corpus_tokens(corpus: Corpus, base: str) -> tuple[int, bool]:
    """(tokens, whether the base's tokenizer counted them); without a tokenizer four characters are a token."""
    try:
        return count_tokens(corpus.texts, load_chat(base).tokenizer) + len(corpus.texts), True
    except RecoverError:
        return corpus.texts.characters // CHARACTERS_PER_TOKEN + len(corpus.texts), False
