"""Which teachers' outputs a distillation keeps, and by what it finds them again."""

from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from pipelines.project.paths import TEACHER_OUTPUTS
from pipelines.project.weights_hash import weights_id
from pipelines.training.stage_context import Stage
from recovery.distributed import processes
from recovery.kept_outputs import KeptOutputs, KeptTeacher, Source
from recovery.models.adapters import base_of
from recovery.models.students import split_revision
from recovery.recipes import Recipe
from recovery.teachers import Teacher


def open_outputs(stage: Stage, chosen: Recipe) -> KeptOutputs | None:
    """None where all rows are rollouts, which never come again, and where several processes share them out."""
    gigabytes, rows = stage.settings.teacher_cache_gb, stage.settings.distill.rows
    if round(chosen.on_policy_fraction * rows) == rows or not gigabytes or processes() > 1:
        return None
    return KeptOutputs(stage.project.home / TEACHER_OUTPUTS, gigabytes * 1e9)


def keeping(teacher: Source, path: str, kept: KeptOutputs | None) -> Teacher:
    """The teacher whose weights are those of `path`, with its outputs kept, if there is somewhere to keep them."""
    return teacher if kept is None else KeptTeacher(teacher, kept, teacher_weights(path))


def teacher_weights(model: str) -> list[str]:
    """What identifies the weights: those of an adapter and of the model below it; of a hub id also its commit."""
    name, revision = split_revision(model)
    config = None if Path(model).is_dir() else try_to_load_from_cache(name, "config.json", revision=revision)
    commit = [Path(config).parent.name] if isinstance(config, str) else []
    below = base_of(model)
    return [weights_id(model), *commit, *(teacher_weights(below) if below else [])]
