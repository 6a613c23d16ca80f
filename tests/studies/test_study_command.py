from pathlib import Path

import pytest
from click.testing import Result

from pipelines.cycle import Answer
from pipelines.job import Job
from pipelines.project.project import Project
from tests.pipelines.options import data_of, recover

TINY = """
title = "Distillation restores instruction following"
source = "A paper, 2025"
figure = "71.4 before, 82.8 after"

[common]
midtrain.max_steps = 2
midtrain.rows = 2
distill.steps = 1
distill.rows = 4
distill.prompts = 24
distill.max_new_tokens = 48

[start]
mix = "documents"

[arms.opd]
recipe = "opd"
warm_start = "off"

[arms.back]
warm_start = 0.5
distill.learning_rate = 0.0

[arms.low-rate]
command = "midtrain"
mix = "documents"
midtrain.learning_rate = 1e-5

[[claims]]
text = "It restores"
metric = "behaviour"
of = "opd"
against = "damaged"
margin = 0.03

[[claims]]
text = "It keeps what the model knew before"
metric = "retention"
of = "opd"
against = "back"
direction = "not below"
margin = 0.03

[sizes.quick]
seeds = [SEEDS]
world = "small"
items = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    return tmp_path


def recover_study(*arguments: str) -> Result:
    return recover("study", *arguments, "--json")


def declare(folder: Path, seeds: str) -> str:
    (folder / "tiny.toml").write_text(TINY.replace("SEEDS", seeds))
    return str(folder / "tiny.toml")


@pytest.mark.slow
def test_a_study_runs_its_arms_gives_verdicts_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = declare(folder, "1, 2")
    from studies import study_run

    measure, measured = study_run.measure_checkpoint, []

    def interrupted(*arguments: object, **options: object) -> object:
        measured.append(arguments)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return measure(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(study_run, "measure_checkpoint", interrupted)
    stopped = recover_study(file)
    assert stopped.exit_code == 130
    assert "Run the same command again to go on." in stopped.stderr
    project = Project.open_existing(None)
    (begun,) = project.reader.studies(project.id)
    assert [entry["arm"] for entry in (begun.results or {})["arms"]] == ["clean", "damaged"]

    data = data_of(recover_study(file))
    assert {name: len(entries) for name, entries in data["arms"].items()} == {
        "clean": 2, "damaged": 2, "opd": 2, "back": 2, "low-rate": 2,
    }  # fmt: skip
    for entry in data["arms"]["opd"]:
        assert entry["steps"] == 1
        assert entry["pflops"] > 0
        assert None not in (entry["scores"][measure] for measure in ("behaviour", "knowledge", "retention"))
    assert data["arms"]["clean"][0]["pflops"] == 0
    assert [stage["stopped"] for entries in data["arms"].values() for stage in entries[0]["stages"]] == [None] * 5
    assert [claim["verdict"] for claim in data["claims"]] == ["no verdict"] * 2, "which takes three seeds"
    assert all(Path(written).is_file() for written in data["files"])
    row = project.reader.study(begun.id)
    assert row.hash == data["hash"] == begun.hash
    runs = {seed: len(Project.open(begun_folder(project, seed)).reader.runs(1)) for seed in (1, 2)}
    assert len(set(runs.values())) == 1, "the arm that was interrupted was not trained twice"
    assert data_of(recover_study(file))["claims"] == data["claims"]


@pytest.mark.slow
def test_files_of_another_project_are_not_computed_again_and_a_missing_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare(folder, "1")
    from studies import study_run

    run_job, trained = study_run.run_job, []

    def counted(project: Project, job: Job, answer: Answer) -> object:
        trained.append(job.id)
        return run_job(project, job, answer)

    monkeypatch.setattr(study_run, "run_job", counted)
    first = data_of(recover_study(file, "--project", "first", "--results", "shared"))["arms"]
    assert trained == ["damaged-1", "opd-1", "back-1", "low-rate-1"]
    trained.clear()
    assert data_of(recover_study(file, "--project", "second", "--results", "shared"))["arms"] == first
    assert trained == []
    (missing,) = Path("shared").glob("*/seed-1/opd.json.gz")
    missing.unlink()
    third = data_of(recover_study(file, "--project", "third", "--results", "shared"))["arms"]
    assert trained == ["damaged-1", "opd-1"], "the damaged model is not there, so it comes first"
    assert missing.is_file()
    assert first["opd"][0]["scores"] == third["opd"][0]["scores"]
    assert [path.name for path in Path("third").glob(".recover/studies/*/seed-1/*.json.gz")] == ["opd.json.gz"]


def begun_folder(project: Project, seed: int) -> Path:
    (study,) = (project.home / "studies").iterdir()
    return study / f"seed-{seed}"


OF_INSTRUCTIONS = """
[arms.sft]
recipe = "sft"
prompts = "instructions"

[arms.grpo]
student = "sft"
recipe = "grpo"
prompts = "instructions"
distill.rows = 8

[arms.sdft]
teacher = "ema"
recipe = "sdft"
teacher_context = "instructions"
distill.require_lift = false

[[claims]]
text = "It restores"
"""


@pytest.mark.release
def test_arms_learn_from_right_answers_a_reward_and_a_context(folder: Path) -> None:
    text = TINY.replace("SEEDS", "1").replace('[[claims]]\ntext = "It restores"', OF_INSTRUCTIONS.strip(), 1)
    (folder / "tiny.toml").write_text(text)
    arms = data_of(recover_study("tiny.toml"))["arms"]
    assert [entry["steps"] for name in ("sft", "grpo", "sdft") for entry in arms[name]] == [1, 1, 1]
    project = Project.open(begun_folder(Project.open_existing(None), 1))
    by_recipe = {
        run.settings["distill"]["recipe"]: run for run in project.reader.runs(project.id) if run.kind == "distill"
    }
    assert {"sft", "grpo", "sdft"} <= by_recipe.keys()


def test_a_dry_run_says_what_would_run_and_creates_nothing(folder: Path) -> None:
    data = data_of(recover_study(declare(folder, "1"), "--dry-run"))
    assert list(data["declaration"]["arms"]) == ["opd", "back", "low-rate"]
    shown = recover("study", declare(folder, "1"), "--dry-run").stdout
    assert "\n0 of 5 arms and seeds are done; the others would run\n" in shown
    assert [path.name for path in folder.iterdir()] == ["tiny.toml"]


def test_the_studies_that_come_with_recover_are_listed(folder: Path) -> None:
    studies = {row["study"]: row for row in data_of(recover_study("--list"))["studies"]}
    assert studies["personalisation"]["sizes"] == ["quick", "full", "real"]
    assert "Thinking Machines" in studies["personalisation"]["source"]
    assert list(folder.iterdir()) == []


def test_without_a_name_the_usage_is_shown(folder: Path) -> None:
    completed = recover_study()
    assert completed.exit_code == 2
    assert "Name a study of `recover study --list`" in completed.stderr
    assert "Traceback" not in completed.stderr + completed.stdout
