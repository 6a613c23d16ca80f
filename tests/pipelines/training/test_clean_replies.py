"""The replies of the clean model, by which a collapse is told from a recovery: sampled once, by those who need them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli import main
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from pipelines.teacher_choice import Itself, Served
from pipelines.training.early_stopping import clean_replies
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.collapse import CleanReplies, CollapseWatch
from recovery.lab import BASE
from recovery.models.students import load_chat
from recovery.recipes import recipe
from recovery.states import Prompt
from recovery.telemetry import StepRecord
from tests.pipelines.options import set_options

FEW = ("rows=4", "max_new_tokens=24", "prompts=16", "probe_every=0", "max_steps=2", "warm_start=off")
NOTE = "Sampling 16 replies of base, to tell a collapse from a recovery"


def test_a_distillation_is_watched_by_the_bases_replies_which_are_sampled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[CleanReplies | None] = []

    def after_step(watch: CollapseWatch, record: StepRecord) -> str:
        watched.append(watch.clean)
        return ""

    monkeypatch.setattr(CollapseWatch, "after_step", after_step)
    settings = set_options(*(f"distill.{assignment}" for assignment in FEW))
    command = ["distill", "--student", str(BASE), "--recipe", "opd", "--limit", "2", "--json", *settings]
    first, second = (CliRunner().invoke(main, [*command, "--project", str(tmp_path)]) for _ in range(2))
    assert first.exit_code in (0, 3), first.stderr
    assert NOTE in first.stderr
    assert NOTE not in second.stderr
    assert len(list((tmp_path / ".recover" / "cache").glob("clean-replies-*.json"))) == 1
    assert "Replies of base:" in second.stderr
    clean = watched[0]
    assert clean is not None
    assert watched == [clean] * 4
    assert clean.count == 16
    assert 0 < clean.truncated < 1
    assert 0 < clean.entropy < 3


def test_other_prompts_or_another_limit_are_measured_anew(tmp_path: Path) -> None:
    project, chat = Project.open(tmp_path, str(BASE)), load_chat(str(BASE))
    prompts = [Prompt(text, chat.prompt(text)) for text in ("Name a metal.", "Write about a lake.", "Name a city.")]
    measured = {
        clean_replies(_stage(project, limit), recipe("opd"), Teachers(project.clean), some)
        for limit, some in ((8, prompts), (8, prompts[:2]), (1, prompts), (8, prompts))
    }
    assert len(measured) == 3
    assert len(list((tmp_path / ".recover" / "cache").glob("clean-replies-*.json"))) == 3


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("offpolicy-kl", None),  # nothing is rolled out
        ("grpo", None),  # a reward
        ("sdft", Itself("ema")),
        ("opd", Served("http://localhost:1")),
    ],
)
def test_without_a_clean_model_at_hand_nothing_is_sampled(
    tmp_path: Path, name: str, instead: Itself | Served | None
) -> None:
    project = Project.open(tmp_path, str(BASE))
    teachers = Teachers(project.clean, instead=instead)
    assert clean_replies(_stage(project, 8), recipe(name), teachers, [Prompt("Hi", [5, 6])]) is None


def _stage(project: Project, limit: int) -> Stage:
    settings = Settings()
    distill = settings.distill.model_copy(update={"max_new_tokens": limit})
    return Stage(project, Job("distill", settings.model_copy(update={"distill": distill})), None)
