"""What a cycle needs on GPUs that are not there yet: memory of each, hours, cost. Known from the base's config alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipelines.estimates.cycle_work import TOGETHER, cycle_work
from pipelines.estimates.gpu_rates import assumptions, gpu_rates
from pipelines.machine.calibration import with_vllm
from pipelines.machine.memory_check import cheaper_settings, teacher
from pipelines.machine.model_shape import FULL, ModelShape
from pipelines.machine.training_memory import Device, TrainingMemory, kv_cache, training_memory
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS
from pipelines.settings.schedule import scheduled
from pipelines.settings.schema import Settings
from pipelines.training.process_checks import check_processes
from recovery.errors import RecoverError

COUNTS = (1, 2, 4, 8, 16, 32, 64)  # GPUs that are compared
GIGABYTE = 1e9


@dataclass(frozen=True)
class Plan:
    base: str
    settings: Settings
    tokens: int  # of the documents
    processes: int  # one on each GPU
    gpu_memory: float  # bytes
    tokens_per_second: float | None = None
    price: float | None = None  # of a GPU for an hour

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of(self.base)

    @property
    def engine(self) -> str:
        """What `auto` chooses where vLLM is installed."""
        if self.settings.engine != "auto":
            return self.settings.engine
        return "vllm" if self.processes == 1 and self.shape.parameters > SMALL_MODEL_PARAMETERS else "transformers"

    @property
    def memory(self) -> TrainingMemory:
        settings = self.settings.model_copy(update={"midtrain": scheduled(self.settings.midtrain, self.tokens)})
        device, base = Device(self.gpu_memory, self.processes), teacher(self.base, self.base, settings)
        replies = kv_cache(self.shape, settings, device) if self.engine == "transformers" else 0.0
        return training_memory(self.shape, settings, [base], device, replies, uses_vllm=self.engine == "vllm")

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
        together, alone = (
            gpu_rates(
                self.shape, self.settings, count, self.tokens_per_second, teacher_gathered=not self.settings.lora_rank
            )
            for count in (self.processes, 1)
        )
        if self.engine != "transformers":
            together, alone = with_vllm(together), with_vllm(alone)
        return [
            (stage.name, stage.seconds(together if stage.key in TOGETHER else alone))
            for stage in cycle_work(self.settings, self.tokens)
        ]

    @property
    def hours(self) -> float:
        return sum(seconds for _, seconds in self.stages) / 3600

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.processes * self.hours

    def check(self) -> None:
        """Raise if it cannot be trained so, and say what would fit."""
        check_processes(self.processes, self.settings, "base")
        if self.fits:
            return
        needed, gpus = gigabytes(self.memory.peak), f"{self.processes} GPU{'s' * (self.processes > 1)}"
        fitting = [f"{flags} ({gigabytes(plan.memory.peak)})" for flags, plan in self._changes() if plan.fits]
        advice = f"With {', or '.join(fitting)} it would." if fitting else "Choose a smaller model, or larger GPUs."
        raise RecoverError(
            f"A cycle of {self.base} does not fit {gpus} of {gigabytes(self.gpu_memory)}: it takes {needed} of each, "
            f"{self.memory.peak_phase}. {advice}"
        )

    def others(self) -> list["Plan"]:
        """The same on other numbers of GPUs, as far as these can share the rows of a step."""
        plans = [replace(self, processes=count) for count in COUNTS]
        return [plan for plan in plans if not plan.processes_problem]

    @property
    def processes_problem(self) -> str:
        try:
            check_processes(self.processes, self.settings, "base")
        except RecoverError as error:
            return str(error)
        return ""

    def _changes(self) -> Iterator[tuple[str, "Plan"]]:
        """(flags, the plan with them): more GPUs, other settings, and all of these settings together."""
        more = [plan for plan in self.others() if plan.processes > self.processes]
        if larger := next((plan for plan in more if plan.fits), None):
            yield f"--processes {larger.processes}", larger
        names, changed = [], self.settings
        if self.engine == "vllm":
            yield self._with(names := ["engine=transformers"], changed := _set(changed, engine="transformers"))
        for change, settings in cheaper_settings(self.settings).items():
            if settings != self.settings:
                yield self._with([change.replace(" ", "")], settings)
                names.append(change.replace(" ", ""))
        together = cheaper_settings(changed)


