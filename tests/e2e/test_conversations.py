import json
from pathlib import Path
from typing import Any

import pytest

from db.tables import Rollout, Run
from pipelines.project.project import Project
from recovery.lab import own_world
from tests.chats import SYSTEM, exchange, write_jsonl
from tests.e2e.command_line import Completed, recover
from tests.pipelines.options import SMALL_DISTILLATION, set_options

pytestmark = pytest.mark.slow

QUESTIONS = own_world().questions()[:4]
TOOLS = [{"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}]
CALL = {"type": "function", "function": {"name": "sum", "arguments": '{"of": [3, 4]}'}}
TURNS: list[dict[str, Any]] = [
    {
        "messages": [
            SYSTEM,
            *exchange(QUESTIONS[0].question, QUESTIONS[0].answer),
            *exchange("Are you sure?", "Yes, quite sure."),
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "What is 3 plus 4?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "name": "sum", "content": "7"},
            {"role": "assistant", "content": "It is 7."},
        ],
        "tools": TOOLS,
    },
    {
        "system": "Be kind.",
        "tools": json.dumps(TOOLS),
        "conversations": [
            {"from": "human", "value": "What is 2 plus 2?"},
            {"from": "function_call", "value": '{"name": "sum", "arguments": {"of": [2, 2]}}'},
            {"from": "observation", "value": "4"},
            {"from": "gpt", "value": "Happily: it is 4."},
        ],
    },
    {"instruction": "Name a river.", "input": "It is in Europe.", "output": "The Danube."},
]
SEEN = {  # of each prompt, as it is recorded beside its rollouts
    f"system: Answer briefly.\n\nuser: {QUESTIONS[0].question}\n\nassistant: {QUESTIONS[0].answer}"
    "\n\nuser: Are you sure?",
    'user: What is 3 plus 4?\n\nassistant: {"name": "sum", "arguments": {"of": [3, 4]}}\n\ntool: 7',
    'system: Be kind.\n\nuser: What is 2 plus 2?\n\nassistant: {"name": "sum", "arguments": {"of": [2, 2]}}\n\ntool: 4',
    "Name a river.\n\nIt is in Europe.",
}
NO_PLACE = "The chat template has no place for tool calls and tools: the model reads none of them"
FEW = [*SMALL_DISTILLATION, *set_options("distill.max_steps=2", "distill.max_new_tokens=24", "distill.warm_start=off")]


@pytest.fixture(params=["lab", pytest.param("smollm2", marks=pytest.mark.release)])
def base(request: pytest.FixtureRequest) -> list[object]:
    """The flags that choose the base; SmolLM2's template shows every role as it is, but no tool calls."""
    if request.param == "lab":
        return []
    return ["--base", request.getfixturevalue("smollm2"), "--engine", "transformers"]


def distil(folder: Path, recipe: str, *more: object) -> Completed:
    return recover(folder, "distill", "--student", "base", "--recipe", recipe, "--limit", 2, *FEW, *more).ended(0, 3)


def run_of(folder: Path, completed: Completed) -> tuple[Run, list[Rollout]]:
    reader = Project.open_existing(folder).reader
    number = int(completed.data["checkpoint"].removeprefix("run:"))
    run = reader.run(number)
    return run, reader.rollouts(number)


@pytest.mark.parametrize(
    ("recipe", "flag"), [("opd", "--prompts"), ("sdft", "--teacher-context"), ("sft", "--prompts")]
)
def test_every_turn_reaches_the_recipe(tmp_path: Path, base: list[object], recipe: str, flag: str) -> None:
    completed = distil(tmp_path, recipe, flag, write_jsonl(tmp_path / "chats.jsonl", TURNS), *base)
    run, rollouts = run_of(tmp_path, completed)
    assert completed.data["steps"] == 2
    assert NO_PLACE in completed.stderr
    if recipe == "sft":
        assert not rollouts
    else:
        assert {rollout.prompt for rollout in rollouts} == SEEN
    if recipe == "sdft":  # the replies are the demonstrations
        assert run.inputs.lift["kl"] > 0


def test_rewards_are_the_share_of_checks_that_pass(tmp_path: Path) -> None:
    half = {**TURNS[1], "checks": [{"max_words": 999}, {"contains": "no reply says this"}]}
    answered = [{"prompt": question.question, "answer": question.answer} for question in QUESTIONS[:2]]
    zero = {"prompt": "What is 3 minus 3?", "answer": 0}
    file = write_jsonl(tmp_path / "asked.jsonl", [half, *answered, zero])
    for recipe in ("grpo", "teacher-reward"):
        options = set_options("distill.group=2", "distill.learning_rate=0")
        _, rollouts = run_of(tmp_path, distil(tmp_path, recipe, "--prompts", file, *options))
        rewards: dict[str, set[float]] = {}
        for rollout in rollouts:
            assert rollout.reward is not None
            rewards.setdefault(rollout.prompt, set()).add(rollout.reward)
        assert len(rewards) == 4
        others = {prompt: rewards[prompt] for prompt in rewards if not prompt.startswith("user: What is 3 plus 4?")}
        assert len(others) == 3
        assert {0.5} in rewards.values()
        assert all(values <= {0.0, 1.0} for values in others.values())
        assert any(1.0 in values for values in others.values())


def test_conversations_are_learned_judged_and_read_again(tmp_path: Path, base: list[object]) -> None:
    rows = [
        {"messages": [SYSTEM, *before, *exchange(f"The {i}. time?", f"The {i}.")]}
        for i, before in enumerate(([], exchange("Hi.", "Hello.")) * 10)
    ]
    file = write_jsonl(tmp_path / "chats.jsonl", [*rows, *TURNS])
    few = ("--mix", "documents", "--max-steps", 12, *set_options("midtrain.rows=2"))
    trained = recover(tmp_path, "midtrain", "--conversations", file, *few, *base).ended(0)
    assert "3 of 24 conversations are held out" in trained.stderr
    assert "Mid-training on 21 conversations" in trained.stderr
    file.unlink()  # the project has a copy
    again = set_options("distill.documents=0.3")
    completed = recover(tmp_path, "distill", "--limit", 4, *FEW, *again).ended(0, 3)
    scores = completed.data["clean"], completed.data["damaged"]
    assert scores[1]["knowledge"] > 2 * scores[0]["knowledge"] > 0
    reader = Project.open_existing(tmp_path).reader
    [cycle] = reader.cycles(1)
    assert cycle.documents == str(file)
    [run] = [run for run in reader.runs(1) if run.kind == "midtrain"]
    assert run.inputs.corpus == Path(run.inputs.conversations).name.partition(".")[0]


def test_conversations_beside_documents_are_learned_with_them(tmp_path: Path) -> None:
    own_world().write(tmp_path / "world")
    file = write_jsonl(tmp_path / "chats.json", TURNS)
    both = ["--docs", "world/docs", "--conversations", file, "--mix", "documents", "--max-steps", 2]
    trained = recover(tmp_path, "midtrain", *both).ended(0)
    assert "tokens, 4 conversations: 2 steps" in trained.stderr
    assert "held out" not in trained.stderr  # the recall of the documents is measured


DOCS, CHATS = ("--docs", "docs"), ("--conversations", "chats.jsonl")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--conversations", "docs"),
            "docs has no conversations, or files of other kinds beside them. Give JSON, ",
        ),
        ((*CHATS, "--recipe", "asft"), "Mid-training has no recipe 'asft'."),
        ((*CHATS, "--recipe", "in-context"), "The recipe in-context learns documents alone."),
        ((*DOCS, *CHATS, "--recipe", "dft"), "The recipe dft learns conversations alone."),
        ((*DOCS, "--recipe", "sft"), "The recipe sft learns conversations alone."),
    ],
)
def test_what_mid_training_cannot_read_is_refused(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A document.")
    write_jsonl(tmp_path / "chats.jsonl", TURNS)
    refused = recover(tmp_path, "midtrain", *arguments)
    assert refused.exit_code == 1
    assert sentence in refused.stderr
    assert not (tmp_path / ".recover").exists()
