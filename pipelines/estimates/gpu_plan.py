"""What a cycle needs on GPUs that are not there yet: memory of each, hours and cost, from the base's config alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipelines.documents import Corpus
from pipelines.estimates.cycle_work import cycle_work
from pipelines.estimates.estimate import documents_size
from pipelines.estimates.gpu_rates import assumptions, gpu_rates
from pipelines.machine.calibration import Rates, with_vllm
from pipelines.machine.memory_check import cheaper_settings, teacher
from pipelines.machine.model_shape import FULL, ModelShape
from pipelines.machine.training_memory import Device, TrainingMemory, kv_cache, training_memory
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS
from pipelines.settings.resolve import as_text
from pipelines.settings.schedule import scheduled
from pipelines.settings.schema import Settings
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from pipelines.training.process_checks import check_processes
from recovery.errors import RecoverError
from recovery.models.students import load_chat

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
    tokens_per_second: float | None = None
    price: float | None = None  # of a GPU for an hour

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of(self.base)

    @property
    def trained_parameters(self) -> int:
        return self.shape.adapter(self.settings.lora_rank) or self.shape.parameters

    @property
    def assumptions(self) -> list[str]:
        return assumptions(self.tokens_per_second)

    @property
    def engine(self) -> str:
        """What `auto` chooses where vLLM is installed."""
        if self.settings.engine != "auto":
            return self.settings.engine
        return "vllm" if self.processes == 1 and self.shape.parameters > SMALL_MODEL_PARAMETERS else "transformers"

    @property
    def engine_name(self) -> str:
        return "vLLM" if self.engine == "vllm" else self.engine

    @property
    def scheduled(self) -> Settings:
        """With the rows of a step that suit the documents, where the settings leave them open."""
        return self.settings.model_copy(update={"midtrain": scheduled(self.settings.midtrain, self.tokens)})

    @property
    def memory(self) -> TrainingMemory:
        settings, device = self.scheduled, Device(self.gpu_memory, self.processes)
        replies = kv_cache(self.shape, settings, device) if self.engine == "transformers" else 0.0
        teachers = [teacher(self.base, self.base, settings)]
        return training_memory(self.shape, settings, teachers, device, replies, uses_vllm=self.engine == "vllm")

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.gpu_memory

    @property
    def host_memory(self) -> int:
        """Bytes of the machine for each process: every model is read there first."""
        return FULL * self.shape.parameters

    @property
    def stages(self) -> list[tuple[str, float]]:
        """(name, seconds)."""
        settings = self.scheduled
        return [(stage.name, stage.seconds(self._rates(stage.key))) for stage in cycle_work(settings, self.tokens)]

    def _rates(self, stage: str) -> Rates:
        """Only mid-training and distillation use all processes."""
        settings = self.scheduled
        rows, length = settings.midtrain.step_rows, settings.midtrain.window
        if stage == "distill":
            rows, length = settings.distill.rows, MAX_PROMPT_TOKENS + settings.distill.max_new_tokens
        processes = self.processes if stage in ("midtrain", "distill") else 1
        rates = gpu_rates(self.shape, settings, processes, rows, length, self.tokens_per_second)
        return rates if self.engine == "transformers" else with_vllm(rates)

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.stages)

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.processes * self.seconds / 3600

    def check(self) -> None:
        """Raise if it cannot be trained so, and say what would fit."""
        check_processes(self.processes, self.settings, "base")
        if self.fits:
            return
        fitting = [f"{flags} ({gigabytes(plan.memory.peak)})" for flags, plan in self._changes() if plan.fits]
        advice = (
            f"It would with {', or with '.join(fitting)}." if fitting else "Choose a smaller model, or larger GPUs."
        )
        raise RecoverError(
            f"A cycle of {self.name} does not fit {gpus(self.processes)} of {gigabytes(self.gpu_memory)}: it takes "
            f"{gigabytes(self.memory.peak)} of each {self.memory.peak_phase}. {advice}"
        )

    def by_gpu_count(self) -> list["GpuPlan"]:
        """The same on each number of GPUs that can share the rows of a step."""
        return [plan for count in COUNTS if (plan := replace(self, processes=count)).can_share]

    @property
    def can_share(self) -> bool:
        try:
            check_processes(self.processes, self.settings, "base")
        except RecoverError:
            return False
        return True

    def _changes(self) -> Iterator[tuple[str, "GpuPlan"]]:
        """(flags, the plan with them): more GPUs, one other setting; if none of these fits, all of them at once."""
        changes = cheaper_settings(self.settings) | ({"engine": "transformers"} if self.engine == "vllm" else {})
        candidates = [
            self._on_fewest({}),
            *(self._on_fewest({name: changes[name]}, self.processes) for name in changes),
        ]
        if not any(plan.fits for _, plan in candidates):
            candidates = [self._on_fewest(changes)]
        yield from candidates

    def _on_fewest(self, changes: dict[str, Any], max_processes: int = COUNTS[-1]) -> tuple[str, "GpuPlan"]:
        """With these settings, on as few GPUs as it fits, but no fewer than are planned; it may fit none."""
        changed = replace(self, settings=self.settings.model_copy(update=changes))
        more = [plan for plan in changed.by_gpu_count() if self.processes < plan.processes <= max_processes]
        plan = next((plan for plan in (changed, *more) if plan.fits), changed)
        flags = [f"--set {name}={as_text(value)}" for name, value in changes.items()]
        flags += [f"--processes {plan.processes}"] * (plan.processes > self.processes)
        return " ".join(flags), plan

    def as_json(self) -> dict[str, Any]:
        return {
            "base": self.name,
            "parameters": self.shape.parameters,
            "trained_parameters": self.trained_parameters,
            "processes": self.processes,
            "gpu_memory": round(self.gpu_memory),
            "engine": self.engine,
            "tokens": self.tokens,
            "counted": self.is_counted,
            "memory": self.memory.as_json(),
            "host_memory": self.host_memory,
            "stages": [{"stage": name, "seconds": round(seconds)} for name, seconds in self.stages],
            **self._price(),
            "others": [
                {"processes": plan.processes, "peak": round(plan.memory.peak), "fits": plan.fits, **plan._price()}
                for plan in self.by_gpu_count()
            ],
            "assumptions": self.assumptions,
        }

    def _price(self) -> dict[str, float | None]:
        return {"hours": round(self.seconds / 3600, 2), "cost": None if self.cost is None else round(self.cost, 2)}


def corpus_tokens(corpus: Corpus, base: str) -> tuple[int, bool]:
    """(tokens, whether the base's tokenizer counted them); without a tokenizer four characters are a token."""
    try:
        return documents_size(corpus.texts, load_chat(base)).tokens, True
    except RecoverError:
        return corpus.texts.characters // CHARACTERS_PER_TOKEN + len(corpus.texts), False


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"
