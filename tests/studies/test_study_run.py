"""A whole study with simulated outcomes: arms that are done, items that pass as planted, verdicts in the record."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboard.pages.studies import claim_table
from db.tables import RunInputs
from db.tables import Study as StudyRow
from evals.contamination import remove_contaminated
from evals.suites.lab import instruction_prompts
from pipelines.cli.study import _claim_lines
from pipelines.project.locations import HOME
from pipelines.project.lock import AlreadyRunning, project_lock
from pipelines.project.project import Project
from pipelines.synthetic.prompts import parse_prompt
from recovery.errors import RecoverError
from studies import study_run
from studies.declaration import Study, load_study, read_declaration, shipped
from studies.study_run import StudyRun, arm_file, documents
from tests.studies.declarations import about, study
from tests.studies.planted import Outcome, planted_entries

PLANTED: Outcome = {"clean": 0.90, "damaged": 0.50, "opd": 0.85, "off-policy": 0.85, "answers": 0.7}


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., StudyRow]:
    """Run a study whose arms have these shares of passes on every seed; no model is used."""

    def run(planted: Outcome, declared: Study | None = None, without: str = "") -> StudyRow:
        one = StudyRun(declared or study(), Project.open(tmp_path))
        for entry in planted_entries(one.study, planted):
            if entry["arm"] != without:
                one.files.add(entry)
        return one.run()

    return run


def test_the_declaration_is_in_the_record_before_any_arm(simulate: Callable[..., StudyRow], tmp_path: Path) -> None:
    one = StudyRun(study(), Project.open(tmp_path))
    assert one.id
    (stored,) = one.project.reader.studies(one.project.id)
    assert (stored.hash, stored.results) == (study().hash, None)
    assert stored.declaration["claims"][0]["text"] == "It restores"
    assert simulate(PLANTED).id == stored.id


def test_an_entry_says_why_the_training_of_an_arm_ended_early_and_keeps_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_project = StudyRun(study(), Project.open(tmp_path)).seed(1)
    project, arm = seed_project.project, seed_project.study.arms["opd"]
    monkeypatch.setattr(study_run.SeedProject, "_train", lambda self, *_: project.clean)
    monkeypatch.setattr(study_run, "measure_checkpoint", lambda *_, **options: [])
    run = project.tracker.start_run(project.id, "distill", inputs=RunInputs(job="opd-1", stage="recovered"))
    project.tracker.stopped_early(run, "it collapsed: the KL rose")
    project.tracker.step(run, 0, {"kl": 0.5, "grad_norm": 1.0})
    project.tracker.step(run, 1, {"kl": math.nan})
    project.tracker.step(run, 10, {"entropy": 2.0})
    project.tracker.flush()
    [stage] = seed_project.run("opd", arm)["stages"]
    assert stage["stopped"] == "it collapsed: the KL rose"
    [training], curves = stage["runs"], {"kl": [0.5, None], "entropy": [2.0]}
    assert (training["kind"], training["stage"], training["curves"]) == ("distill", "recovered", curves)
    assert training["steps"] == {"entropy": [11]}


def test_arms_are_measured_with_the_engine_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As their trainings are: results of another one are measured again."""
    monkeypatch.setenv("RECOVER_ENGINE", "transformers")
    monkeypatch.setattr(Study, "measures_drift", True)
    seed_project, engines = StudyRun(study(), Project.open(tmp_path)).seed(1), list[str]()
    for measure in ("measure_checkpoint", "checkpoint_drift"):
        monkeypatch.setattr(study_run, measure, lambda *_, **options: engines.append(options["engine"]) or [])
    seed_project.run("clean", seed_project.study.arms["clean"])
    assert engines == ["transformers"] * 2


def test_a_seed_that_another_process_works_on_is_left_to_it(
    simulate: Callable[..., StudyRow], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="recover")
    monkeypatch.setattr("studies.study_run.SeedProject.run", lambda self, name, arm: {})

    @contextmanager
    def lock(home: Path, command: str) -> Iterator[None]:
        if home.parent.name == "seed-2":
            raise AlreadyRunning("by another process")
        yield

    monkeypatch.setattr("studies.study_run.project_lock", lock)
    row = simulate(PLANTED, without="opd")
    assert row.finished_at is None
    assert row.claims[0].get("verdict") is None
    assert "Another process works on seeds 2" in caplog.text


def test_a_metric_without_items_has_an_interval_over_the_seeds(simulate: Callable[..., StudyRow]) -> None:
    claim = simulate(PLANTED, about("pflops")).claims[0]
    assert claim["estimate"] == pytest.approx(0.0)
    assert claim["verdict"] == "refuted", "no difference at all"
    assert not claim["seeds_alone"], "no prompts were chosen for it"


def test_a_claim_whose_interval_leaves_the_choice_of_prompts_out_says_so(simulate: Callable[..., StudyRow]) -> None:
    row = simulate(PLANTED, about("token_entropy"))
    first, second = row.claims
    assert (first["seeds_alone"], second["seeds_alone"]) == (True, False)
    assert "[+0.000, +0.000] over seeds alone" in _claim_lines(first)[1]
    assert "over seeds alone" not in _claim_lines(second)[1]
    assert claim_table(row).count("over seeds alone") == 1


def test_a_metric_that_an_arm_lacks_is_an_error(simulate: Callable[..., StudyRow]) -> None:
    with pytest.raises(RecoverError, match="has no distinct"):
        simulate(PLANTED, about("distinct"))


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_study_can_run_in_every_size(name: str, tmp_path: Path) -> None:
    declared, _ = read_declaration(name)
    for size in declared.sizes:
        loaded = load_study(name, size)
        assert len(loaded.size.seeds) >= 3, "three seeds are the least that give a verdict"
        assert all(loaded.settings_of(arm)["gate.block"] == 0 for arm in declared.arms.values())
        StudyRun(loaded, Project.open(tmp_path)).check()
    assert any(claim.control for claim in declared.claims) or name == "divergence", "a claim names its control"


def test_a_variable_that_would_change_an_arm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = StudyRun(study(), Project.open(tmp_path))
    monkeypatch.setenv("RECOVER_TOKENS_AT_ONCE", "4096")
    small.check()
    monkeypatch.setenv("RECOVER_DISTILL__LEARNING_RATE", "1e-5")
    monkeypatch.setenv("RECOVER_KEEP_DOCUMENTS", "false")
    with pytest.raises(RecoverError, match="Unset RECOVER_DISTILL__LEARNING_RATE, RECOVER_KEEP_DOCUMENTS"):
        small.check()


@pytest.mark.parametrize(
    ("line", "changed", "sentence"),
    [
        ('recipe = "opd"', 'recipe = "opp"', "The arm opd cannot run: Distillation has no recipe 'opp'."),
        ('recipe = "opd"', 'recipe = "opd"\ndistill.temperature = 0.5', "The arm opd cannot run: The recipe opd needs"),
        ('mix = "answers=0.3"', 'recipe = "opd"', "The arm answers cannot run: Mid-training has no recipe 'opd'."),
        ('recipe = "opd"', 'recipe = "opd"\nprompts = "mine.jsonl"', "mine.jsonl, which the study small names."),
    ],
)
def test_what_cannot_run_is_refused_before_any_arm(tmp_path: Path, line: str, changed: str, sentence: str) -> None:
    with pytest.raises(RecoverError) as refusal:
        StudyRun(study(line, changed), Project.open(tmp_path)).check()
    assert sentence in str(refusal.value)


def test_rates_that_another_process_looks_for_are_waited_for(tmp_path: Path) -> None:
    tuned = study("[sizes.quick]", '[tune]\narms = ["opd"]\nrate_times = [1, 2]\nseed = 9\n\n[sizes.quick]')
    one = StudyRun(tuned, Project.open(tmp_path))
    with (
        project_lock(one.seed(9).root / HOME, "recover study small"),
        pytest.raises(RecoverError, match=r"Another process looks for the learning rates .* when it has found them"),
    ):
        one.run()


def test_a_mid_training_has_its_own_recipe_and_not_that_of_all_arms(tmp_path: Path) -> None:
    declared = study('mix = "answers=0.3"', 'recipe = "in-context"')
    own = StudyRun(declared, Project.open(tmp_path)).seed(1)
    assert own.request("answers", own.study.arms["answers"]).recipe == "in-context"
    common = StudyRun(study("[common]", '[common]\nrecipe = "opd"'), Project.open(tmp_path)).seed(1)
    assert common.request("damaged", common.study.arms["damaged"]).recipe is None


@pytest.mark.parametrize(
    ("line", "changed", "arm", "rate"),
    [
        ('recipe = "opd"', 'recipe = "opd"', "opd", "distill.learning_rate=5e-05"),
        ('recipe = "opd"', 'recipe = "grpo"', "opd", "distill.learning_rate=2e-05"),
        ('mix = "answers=0.3"', 'mix = "answers=0.3"', "answers", "midtrain.learning_rate=0.0002"),
    ],
)
def test_a_rate_is_a_multiple_of_the_default_for_the_base_and_the_recipe(
    tmp_path: Path, line: str, changed: str, arm: str, rate: str
) -> None:
    declared = study(line, f'{changed}\nrate_times = 0.1\nstudent = "clean"')
    request = StudyRun(declared, Project.open(tmp_path)).seed(1).request(arm, declared.arms[arm])
    assert rate in request.assignments


def test_a_study_whose_files_ship_is_decided_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = StudyRun(study(), Project.open(tmp_path / "first"), tmp_path / "results")
    for entry in planted_entries(study(), PLANTED):
        shipped.files.add(entry)
    first = shipped.run()
    monkeypatch.setattr("studies.entries.SHIPPED_RESULTS", tmp_path / "results")
    row = StudyRun(study(), Project.open(tmp_path / "second")).run()
    assert row.claims == first.claims
    assert row.finished_at is not None
    assert not (tmp_path / "second/.recover/studies").exists(), "nothing ran"
    monkeypatch.setattr("studies.study_run.SeedProject._run_cycle", compute)
    again = StudyRun(study(), Project.open(tmp_path / "third"), again=True)
    with pytest.raises(RuntimeError, match="computed"):
        again.run()


def compute(*_: object) -> None:
    raise RuntimeError("computed")


@pytest.fixture(scope="module")
def instruction_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of three seeds; writing one takes a second."""
    folder = tmp_path_factory.mktemp("instructions")
    return [arm_file(study(), "instructions", seed, folder / str(seed)) for seed in (1, 2, 3)]


def test_every_instruction_has_a_right_answer_that_passes_its_checks(instruction_files: list[Path]) -> None:
    text, other = (file.read_text() for file in instruction_files[:2])
    assert text != other, "each seed has its own"
    rows = [json.loads(line) for line in text.splitlines()]
    assert len({row["prompt"] for row in rows}) > 0.9 * len(rows)
    for row in rows[:200]:
        prompt = parse_prompt(("here", row))
        assert prompt.check(row["answer"])
    assert not all(parse_prompt(("here", row)).check("No.") for row in rows[:50])  # type: ignore[misc]


def test_a_teacher_may_read_the_right_answers_of_instructions(instruction_files: list[Path]) -> None:
    measured = [prompt.text for natural in (False, True) for prompt in instruction_prompts(natural=natural)]
    rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in instruction_files]
    shown = [[row["demonstration"] for row in of_seed] for of_seed in rows]
    assert not remove_contaminated([answer for answers in shown for answer in answers], measured).contaminated
    assert all(len(answers) > 2000 for answers in shown)


def test_the_questions_for_training_ask_for_the_same_facts_in_other_words(tmp_path: Path) -> None:
    file = arm_file(study(), "questions", 1, tmp_path)
    _, questions = documents(study(), 1, 0, tmp_path)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    suite_questions = [json.loads(line)["question"] for line in questions.read_text().splitlines()]
    assert len(rows) >= len(suite_questions)
    assert all(list(row) == ["prompt"] for row in rows)
    assert not {row["prompt"] for row in rows} & set(suite_questions)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert arm_file(study(), None, 1, tmp_path) is None
    with pytest.raises(RecoverError, match=r"There is no .*nowhere.jsonl, which the study"):
        arm_file(study(), "nowhere.jsonl", 1, tmp_path)
