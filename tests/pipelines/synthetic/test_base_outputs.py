"""What the clean base writes for a job: other prompts, answers and texts in each cycle, the same after a resume."""

from pathlib import Path

import pytest

from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.synthetic.base_outputs import BaseOutputs
from pipelines.training.stage_context import Stage


@pytest.mark.release
def test_each_cycle_reads_other_texts_and_distils_on_yet_other_prompts(tmp_path: Path) -> None:
    project = Project.open(tmp_path)
    few = {"distill": {"prompts": 16, "max_new_tokens": 48}, "midtrain": {"generated_texts": 16}}
    job = Job("cycle", apply_overrides(defaults_for(SMALL_MODEL_PARAMETERS), few))

    def outputs(cycle: int) -> tuple[set[str], set[str], set[str]]:
        base = BaseOutputs(project, job.settings, Stage(project, job, None, cycle).generation_seed)
        texts = {text for generated in base.texts() for text in generated.texts}
        return {str(row.prompt) for row in base.answers}, set(base.distill_prompts()), texts

    first, second = outputs(1), outputs(2)
    assert all(first)
    assert outputs(1) == first  # as for a resumed job
    assert not first[0] & first[1]
    assert not (first[0] | first[1]) & (second[0] | second[1])
    assert not first[2] & second[2]
