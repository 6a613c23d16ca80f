"""Whether a job can be trained by several processes together."""

from typing import Any

from pipelines.settings.schema import Settings
from pipelines.teacher_choice import BASE, Itself, Served, TeacherChoice
from recovery.distributed import processes as started_processes
from recovery.errors import RecoverError


def check_processes(requested: int, settings: Settings, teacher: TeacherChoice[Any] = BASE) -> None:
    """Raise unless the processes that there are, or that were requested, can train with these settings."""
    started = started_processes()
    if (processes := max(requested, started)) == 1:
        return
    if started > 1 and requested not in (1, started):
        raise RecoverError(f"torchrun has started {started} processes. Leave out --processes.")
    if settings.engine not in ("auto", "transformers"):
        engine = "vllm" if settings.engine == "vllm" else "on servers"
        raise RecoverError(
            f"The engine {engine} generates for a single process. Leave out --processes, or choose --engine "
            "transformers."
        )
    if isinstance(teacher, Served):
        raise RecoverError(
            "A teacher on servers scores for a single process. Leave out --processes, or choose --teacher base."
        )
    if teacher == Itself("ema"):
        raise RecoverError(
            "The teacher ema is an average that a single process keeps. Leave out --processes, or choose --teacher "
            "live."
        )
    for name, rows in (("distill.rows", settings.distill.rows), ("midtrain.rows", settings.midtrain.rows)):
        if rows != "auto" and rows < processes:
            raise RecoverError(
                f"A step has {rows} rows ({name}), too few for {processes} processes. Start at most {rows}, or set "
                "more rows."
            )
