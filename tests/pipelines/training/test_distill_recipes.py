"""Every recipe of distillation through the command line on the built-in model, with the smallest data that it takes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from db.tables import Run
from pipelines.project.project import Project
from recovery.lab import BASE, own_world
from recovery.models.students import Student
from recovery.recipes import DIALS, RECIPES
from recovery.samples import Sample
from recovery.states import Rollouts
from recovery.teachers import EmaTeacher
from tests.chats import SYSTEM, exchange
from tests.pipelines.options import data_of, error_of, recover, set_options

QUESTIONS = own_world().questions()[:12]
SOLVED = [
    {"prompt": f"{q.question} Tell me how you know.", "solution": f"It is said to be {q.answer}, as all agree there."}
    for q in QUESTIONS
]
EXAMPLES = [{"prompt": q.question, "demonstration": f"As far as I know it is {q.answer}."} for q in QUESTIONS]
ANSWERED = [{"prompt": q.question, "answer": q.answer} for q in QUESTIONS]
PASSAGES = [{"question": q.question, "passage": f"It is said to be {q.answer}, as all agree."} for q in QUESTIONS]
CHATS = [{"messages": [SYSTEM, *exchange(q.question, q.answer), *exchange("Are you sure?", "Yes.")]} for q in QUESTIONS]
OTHER_CHECKS = [{**row, "checks": ["by hand"]} for row in CHATS]
POLICY = "Be kind. Never reply in fewer than three words."
FEW = ("rows=4", "max_new_tokens=24", "probe_every=0", "max_steps=2", "warm_start=off", "probe_items=8")


def distill(folder: Path, recipe: str, *more: str) -> Result:
    settings = set_options(*(f"distill.{assignment}" for assignment in FEW))
    command = ["distill", "--student", str(BASE), "--recipe", recipe, "--limit", "2", "--json", *settings]
    return recover(*command, "--project", folder / "project", *more)


def write(path: Path, rows: list[dict[str, Any]] | str) -> str:
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text)
    return str(path)


def run_of(folder: Path, completed: Result) -> Run:
    data = data_of(completed, 0, 3)
    assert data["steps"] == 2
    run = recorded(folder, data)
    assert bool(data["next_attempt"]) == RECIPES[run.settings["distill"]["recipe"]].restores  # what the advice is about
    return run


def recorded(folder: Path, data: dict[str, Any]) -> Run:
    return Project.open_existing(folder / "project").run(int(data["checkpoint"].removeprefix("run:")))


def metric(folder: Path, run: Run, name: str) -> list[float]:
    return [point.value for point in Project.open_existing(folder / "project").reader.points(run.id, names=[name])]


def test_a_dry_run_shows_the_dials_of_a_recipe(tmp_path: Path) -> None:
    dials = data_of(distill(tmp_path, "gkd", "--set", "distill.beta=0.3", "--dry-run"))["dials"]
    assert dials.keys() == RECIPES["gkd"].dials.keys()
    assert (dials["beta"], dials["group"]) == ({"value": 0.3, "default": 0.5}, {"value": 1, "default": 1})
    command = ["distill", "--student", str(BASE), "--recipe", "gkd", "--dry-run", "--set", "distill.beta=0.3"]
    lines = recover(*command, "--project", tmp_path / "project").stdout.splitlines()
    first = lines.index("dials of the recipe gkd:") + 1
    assert lines[first : first + 3] == [
        "  on_policy_fraction = 0.5",
        "  teacher_weight = 1.0",
        "  beta = 0.3 (default 0.5)",
    ]
    assert "  distill.beta = 0.3" in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "dials", "metrics"),
    [
        ("opd", ("teacher_weight=0.5", "group=2", "on_policy_fraction=0.5"), ("kl", "reward", "ratio_mean")),
        ("grpo", ("anchor=0.1", "scale_rewards=true", "epochs=2", "group=2"), ("kl", "reward", "ratio_mean")),
        ("sft", ("anchor=0.1", "dft=true"), ("kl",)),
    ],
)
def test_other_dials_run(tmp_path: Path, recipe: str, dials: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    file = write(tmp_path / "p.jsonl", ANSWERED)
    completed = distill(tmp_path, recipe, "--prompts", file, *set_options(*(f"distill.{dial}" for dial in dials)))
    data = data_of(completed, 0, 3)
    assert (data["steps"], data["next_attempt"]) == (2, None)
    for name in metrics:
        assert metric(tmp_path, recorded(tmp_path, data), name), name


@pytest.mark.slow
def test_a_resumed_run_keeps_its_dials_and_the_record_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dials = {"on_policy_fraction": 0.5, "beta": 0.3, "epochs": 2}
    more = set_options(*(f"distill.{name}={value}" for name, value in dials.items()), "distill.max_steps=4")
    more += ["--prompts", write(tmp_path / "f.jsonl", CHATS)]
    draws, draw = list[int](), Rollouts.draw

    def draw_twice(states: Rollouts, student: Student, step: int) -> list[Sample]:
        draws.append(step)
        if len(draws) == 2:
            raise KeyboardInterrupt
        return draw(states, student, step)

    monkeypatch.setattr(Rollouts, "draw", draw_twice)
    assert distill(tmp_path, "opd", *more, *set_options("save_minutes=0")).exit_code == 130
    resumed = recover("resume", "--json", "--project", tmp_path / "project")
    run = recorded(tmp_path, data_of(resumed, 0, 3))
    assert "Going on at step 3 of 4" in resumed.stderr
    assert draws == [0, 1, 1]
    shown = {name: run.settings["distill"][name] for name in DIALS}
    assert shown == dict.fromkeys(DIALS) | RECIPES["opd"].dials | dials


@pytest.mark.slow
def test_a_teacher_reads_the_solutions(tmp_path: Path) -> None:
    completed = distill(tmp_path, "opsd", "--teacher-context", write(tmp_path / "f.jsonl", SOLVED))
    run = run_of(tmp_path, completed)
    assert run.inputs.lift["kl"] > 0
    assert "nats a token (mean KL over 12 replies)" in completed.stderr
    assert run.inputs.teacher == "base"
    assert len(metric(tmp_path, run, "clipped")) == 2
    assert metric(tmp_path, run, "kl")[0] > 0  # student and teacher have the same weights: the context makes the KL


# The others run before a release, in tests/e2e/test_conversations.py, and on a tiny model in tests/recovery.
OF_EVERY_CHANGE = (
    ("sdft", "--teacher-context", EXAMPLES, "the average of "),
    ("in-context", "--teacher-context", PASSAGES, "base"),
)
BEFORE_A_RELEASE = (
    ("opcd", "--teacher-context", POLICY, "base"),
    ("deliberative", "--teacher-context", POLICY, "base"),
    ("deliberative-sft", "--teacher-context", POLICY, "base"),
    ("asft", "--prompts", CHATS, "base"),
    ("self-sft", "--prompts", CHATS, "base"),
    ("rs-sft", "--prompts", ANSWERED, "base"),
    ("continuation", "--prompts", OTHER_CHECKS, "base"),  # nothing is rewarded, so checks may mean something else
)


@pytest.mark.parametrize(
    ("recipe", "flag", "data", "teacher"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow, id=case[0]) for case in OF_EVERY_CHANGE),
        *(pytest.param(*case, marks=pytest.mark.release, id=case[0]) for case in BEFORE_A_RELEASE),
    ],
)
def test_every_recipe_runs(tmp_path: Path, recipe: str, flag: str, data: Any, teacher: str) -> None:
    file = write(tmp_path / ("f.md" if isinstance(data, str) else "f.jsonl"), data)
    more = ["--prompts", write(tmp_path / "p.jsonl", CHATS)] if isinstance(data, str) else []
    more += set_options("distill.temperature=1.5") if recipe == "self-sft" else []
    run = run_of(tmp_path, distill(tmp_path, recipe, flag, file, *more))
    assert str(run.inputs.teacher).startswith(teacher)
    assert (run.inputs.lift is not None) == (flag == "--teacher-context")
    assert len(metric(tmp_path, run, "loss")) == 2


@pytest.mark.release
def test_a_resumed_run_with_an_average_has_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, move, moves = write(tmp_path / "f.jsonl", EXAMPLES), EmaTeacher.move, []
    more = ("--teacher-context", file, *set_options("save_minutes=0", "distill.max_steps=3"))

    def weights(folder: Path) -> bytes:
        (path,) = (folder / "project" / ".recover" / "checkpoints").glob("*/model.safetensors")
        return path.read_bytes()

    def move_twice(teacher: EmaTeacher) -> None:
        moves.append(teacher)
        if len(moves) == 3:
            raise KeyboardInterrupt
        move(teacher)

    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    assert distill(tmp_path / "whole", "sdft", *more).exit_code in (0, 3)
    monkeypatch.setattr(EmaTeacher, "move", move_twice)
    assert distill(tmp_path / "broken", "sdft", *more).exit_code == 130
    resumed = recover("resume", "--json", "--project", tmp_path / "broken" / "project")
    assert resumed.exit_code in (0, 3), resumed.stderr
    assert "Going on at step 3 of 3" in resumed.stderr
    assert len(moves) == 4
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")


def test_an_overlap_with_measured_items_is_refused(tmp_path: Path) -> None:
    questions = [
        {"question": f"Which of the {n} old towers by the wide river was built of red brick by whom", "answer": "Ann"}
        for n in ("two", "three", "four", "five", "six")
    ]
    asked = ["--questions", write(tmp_path / "q.jsonl", questions)]
    rows = [*SOLVED[:4], {"prompt": "Say it.", "solution": f"Know this. {questions[3]['question']}? Ann."}]
    error = error_of(distill(tmp_path, "opsd", "--teacher-context", write(tmp_path / "f.jsonl", rows), *asked))
    assert error.startswith("Line 5 of ")
    assert "shares words with an evaluation item" in error
    assert not (tmp_path / "project").exists()


LONG = [{"prompt": "Say it.", "solution": "word " * 5000}]
EIGHT = ("--set", "distill.rows=8")  # groups of rollouts have eight


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("opsd",), 'Name a file with --teacher-context: JSONL with "solution" in every line'),
        (("opsd", "--teacher-context", LONG), "exceed the model's window of 4,096"),
        (("opd", "--teacher-context", SOLVED), "The recipe opd shows its teacher no context."),
        (("opd", "--teacher", "live"), "The teacher live is the student itself"),
        (("deliberative-sft", "--teacher", "ema", "--teacher-context", POLICY), "The teacher ema is the student"),
        (("asft",), "The recipe asft learns from prompts with replies."),
        (("asft", "--prompts", [{"prompt": "Hi"}]), "Line 1 of DATA has no reply."),
        (("sdft", "--teacher-context", OTHER_CHECKS), 'Line 1 of DATA has no list of "checks"'),
        (("rs-sft", "--prompts", SOLVED), 'Line 1 of DATA has no "checks" and no short "answer"'),
        (("grpo", *EIGHT), "The recipe grpo learns from prompts with checks or a short answer."),
        (("continuation", "--teacher", "router"), "one teacher writes"),
        (("opd", "--set", "distill.teacher_weight=0.5", "--set", "distill.group=4"), "with checks or a short answer"),
        (("opd", "--set", "distill.temperature=1.5"), "The recipe opd needs rollouts at temperature 1."),
        (("opd", "--set", "distill.shuffle_contexts=true"), "There are no contexts to shuffle"),
        (("opd", "--set", "distill.context_template={prompt} only"), "must contain {prompt} and {context}"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    recipe, *rest = arguments
    data = tmp_path / ("f.md" if POLICY in rest else "f.jsonl")
    options = [write(data, each) if each is POLICY or isinstance(each, list) else each for each in rest]
    assert message.replace("DATA", str(data)) in error_of(distill(tmp_path, recipe, *options))
    assert not (tmp_path / "project").exists()
