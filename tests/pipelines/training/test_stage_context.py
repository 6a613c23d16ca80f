from pathlib import Path

import pytest

from pipelines.documents.corpus import CorpusSnapshot
from pipelines.job import Job
from pipelines.model_loading import load_trained
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from pipelines.teacher_choice import BASE, ByDomain, Itself, Model, Router, Served, TeacherChoice
from pipelines.training.stage_context import SEEDS_PER_CYCLE, Stage
from recovery.errors import RecoverError
from tests.models import save_tiny


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.open(tmp_path, str(save_tiny(tmp_path / "base")))


def test_the_base_writes_with_another_seed_in_each_cycle(project: Project) -> None:
    job = Job("cycle", Settings(), seed=7)
    seeds = [Stage(project, job, None, cycle).generation_seed for cycle in (0, 1, 2, 3)]
    assert seeds == [7, 7, 7 + SEEDS_PER_CYCLE, 7 + 2 * SEEDS_PER_CYCLE]


def test_a_rank_trains_a_new_adapter_and_zero_trains_all_weights(project: Project) -> None:
    stages = [Stage(project, Job("midtrain", Settings(lora_rank=rank)), None) for rank in (0, 2)]
    students = [load_trained(project.clean.path, stage.adapter, bf16=False) for stage in stages]
    assert [student.has_adapter for student in students] == [False, True]


@pytest.mark.parametrize(
    ("teacher", "shown"),
    [
        (BASE, "base"),
        (Model(1), "base"),
        (ByDomain(1, {"maths": 1}), "base (and base for maths)"),
        (Router(), "base"),
        (Served("http://one:8000"), "base at http://one:8000"),
        (Itself("ema"), "the average of base"),
        (Itself("live"), "the current weights of base"),
    ],
)
def test_a_job_says_who_teaches(project: Project, teacher: TeacherChoice[int], shown: str) -> None:
    assert project.clean.id == 1
    stage = Stage(project, Job("distill", Settings(), teacher=teacher))
    main = stage.main_teacher()
    assert main == (None if isinstance(teacher, Itself) else project.clean)
    assert str(stage.teachers(main or project.clean, 4, [])) == shown


def test_documents_that_are_no_longer_stored_are_asked_for_again(project: Project, tmp_path: Path) -> None:
    corpus = CorpusSnapshot(tmp_path / "docs", "abc", 1, tmp_path / "gone.jsonl")
    with pytest.raises(RecoverError, match="Run the command again with --docs"):
        Stage(project, Job("midtrain", Settings(), corpus=corpus)).corpus()
