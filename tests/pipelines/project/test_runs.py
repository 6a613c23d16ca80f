from pathlib import Path

import pytest

from pipelines.project.project import Project
from pipelines.project.runs import recorded_run


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (KeyboardInterrupt(), "interrupted", None),
        (ValueError("no such rate"), "failed", "no such rate"),
        (ValueError(), "failed", "ValueError"),
    ],
)
def test_a_run_ends_as_its_block_does(tmp_path: Path, error: BaseException, status: str, text: str | None) -> None:
    project = Project.open(tmp_path)
    with pytest.raises(type(error)), recorded_run(project, "midtrain", None, {}, 0):
        raise error
    (run,) = project.reader.runs(project.id)
    assert (run.status, run.error) == (status, text)
