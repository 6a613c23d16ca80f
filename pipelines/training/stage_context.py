"""What both training stages share: the project and job they run for, and how a model is loaded and trained."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from db.run_inputs import RunInputs
from db.views import Checkpoint
from pipelines.jobs.job import Job
from pipelines.model_loading import load_trained
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run
from pipelines.settings.schema import Settings
from recovery.models.adapters import Adapter
from recovery.models.students import Student
from recovery.train import Plan

SEEDS_PER_CYCLE = 100  # between the generation seeds of two cycles

Role = Literal["midtrained", "recovered"]  # of the checkpoint that a stage makes


@dataclass(frozen=True)
class Stage:
    project: Project
    job: Job
    cycle: int | None  # its id; None for a repair outside any cycle
    cycle_number: int = 0

    @property
    def settings(self) -> Settings:
        return self.job.settings

    @property
    def generation_seed(self) -> int:
        """Of what the base writes: another one each cycle, for the same texts again would be learned by heart."""
        return generation_seed(self.job.seed, self.cycle_number)

    @property
    def adapter(self) -> Adapter | None:
        rank = self.settings.lora_rank
        return Adapter(rank=rank, seed=self.job.seed) if rank else None

    def load_student(self, start: Checkpoint) -> Student:
        return load_trained(start.path, self.adapter, bf16=self.settings.bf16)

    def plan(self, steps: int, learning_rate: float, warmup: int) -> Plan:
        settings = self.settings
        return Plan(
            steps,
            learning_rate,
            warmup,
            "linear",
            settings.tokens_at_once,
            bf16=settings.bf16,
            checkpointing=settings.checkpointing,
        )

    def recorded_run(
        self, kind: Literal["midtrain", "distill"], steps: int, inputs: RunInputs
    ) -> AbstractContextManager[int]:
        settings, seed = self.settings.model_dump(), self.job.seed
        return recorded_run(self.project, kind, self.cycle, settings, seed, inputs, steps)


def generation_seed(seed: int, cycle_number: int) -> int:
    return seed + SEEDS_PER_CYCLE * max(0, cycle_number - 1)
