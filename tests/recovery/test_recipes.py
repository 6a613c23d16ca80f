import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recovery.context_templates import check_template
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.students import Student, load_student
from recovery.objectives import Divergence
from recovery.recipes import RECIPES, Recipe, objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.signals import Labels, TeacherSignal
from recovery.states import Accepted, Documents, FixedRows, Mixture, Prompt, Rollouts, States, TeacherContinuations
from recovery.teachers import FrozenTeacher, Teacher
from recovery.train import Plan, train
from tests.models import save_tiny, tiny_student

ROWS = 16
MIDDLE = 130  # of the vocabulary
CHATS = [[{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": "abc" * i}] for i in range(1, 9)]
CONTEXTUAL = [name for name, r in RECIPES.items() if r.context and not r.needs_reward]
WITH_TEACHER = [
    name
    for name, r in RECIPES.items()
    if (r.scores_with_teacher or r.data == "teacher" or r.continued) and not r.needs_reward and not r.anchor
]
WITH_REWARD = [name for name, r in RECIPES.items() if r.needs_reward]


def reward_upper_half(sample: Sample) -> float:
    return 10.0 * sum(token > MIDDLE for token in sample.tokens)  # outweighs any teacher


def prompts(student: Student) -> list[Prompt]:
    return [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(8)]


def rollouts(student: Student, rows: int, group: int = 1) -> Rollouts:
    return Rollouts(prompts(student), TransformersEngine(student), rows=rows, group=group, max_new_tokens=8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A student and a teacher with other weights; no test changes their files."""
    folder = tmp_path_factory.mktemp("models")
    return save_tiny(folder / "s", seed=1), save_tiny(folder / "t", seed=2)


@cache
def sampled_from(teacher: Path) -> list[Sample]:
    model = load_student(str(teacher), frozen=True)
    model_prompts = prompts(model) * 32
    replies = TransformersEngine(model).generate([p.tokens for p in model_prompts], Sampling(8, seed=0))
    return [prompt.with_reply(reply.tokens) for prompt, reply in zip(model_prompts, replies, strict=True)]


def states_of(chosen: Recipe, student: Student, teacher: Path) -> States:
    own = round(chosen.on_policy_fraction * ROWS)
    parts: list[States] = [rollouts(student, own, chosen.group)] if own else []
    if chosen.continued:
        writer = load_student(str(teacher), frozen=True)
        engine = TransformersEngine(writer)
        parts = [TeacherContinuations(parts[0], engine, writer.parameters, min_tokens=2, max_tokens=4)]
    if rest := ROWS - own:
        others = {
            "documents": lambda: Documents([[5, 6, 7] * 30] * 6, end_id=0, window=16, rows=rest),
            "conversations": lambda: FixedRows([Sample(*student.chat.conversation(chat)) for chat in CHATS], rows=rest),
            "teacher": lambda: FixedRows(sampled_from(teacher), rows=rest),
            "start": lambda: FixedRows(sampled_from(Path(student.path)), rows=rest),
        }
        parts.append(others[chosen.data]())
    return Mixture(*parts)


def teacher_of(chosen: Recipe, teacher: Path) -> Teacher | None:
    return FrozenTeacher(str(teacher)) if chosen.scores_with_teacher else None


def distance(student: Student, teacher: Path) -> float:
    """Return the divergence from the teacher, on the student's rollouts and on the teacher's samples."""
    states = Mixture(rollouts(student, 32), FixedRows(sampled_from(teacher), rows=32))
    plan = Plan(1, 0.0)
    record = next(train(student, states, TeacherSignal(FrozenTeacher(str(teacher))), Divergence(0.5), plan))
    assert record.kl is not None
    return record.kl


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_consistent_settings(name: str) -> None:
    chosen = recipe(name)
    assert chosen.about
    assert 0 <= chosen.on_policy_fraction <= 1
    assert 0 <= chosen.teacher_weight <= 1
    assert 0 <= chosen.beta <= 1
    assert (chosen.data == "none") == (chosen.on_policy_fraction == 1), (
        "`data` names the source of the rows that are not rollouts"
    )
    assert chosen.on_policy_fraction == 1 or chosen.estimator != "sampled", "the sampled estimator needs rollouts"
    assert chosen.estimator == "full" or (chosen.beta == 1 and not chosen.clip), "both are for exact divergences"
    assert bool(chosen.context) == bool(chosen.template), "a context is read by a template"
    if chosen.template:
        check_template(chosen.template)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_alone_and_beside_a_text(name: str, models: tuple[Path, Path]) -> None:
    student, teacher, chosen = load_student(str(models[0])), models[1], recipe(name)
    signal = signal_of(chosen, teacher_of(chosen, teacher), reward_upper_half if chosen.needs_reward else None)
    alone = states_of(chosen, student, teacher)
    text = Documents([[5, 6, 7] * 30], end_id=0, window=16, rows=1, use_labels=not chosen.compares)
    for states in (alone, Mixture(alone, text)):
        before = {key: weights.clone() for key, weights in student.model.state_dict().items()}
        record = next(train(student, states, signal, objective_of(chosen), Plan(1, 1e-2)))
        assert math.isfinite(record.loss)
        assert not record.skipped
        assert (record.rollout_length is not None) == (chosen.on_policy_fraction > 0 and not chosen.continued)
        assert (record.reward is not None) == chosen.needs_reward
        assert any((before[key] != weights).any() for key, weights in student.model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "other", "dials"),
    [
        ("gkd", "opd", {"on_policy_fraction": 0.5, "beta": 0.5}),
        ("opd", "gkd", {"on_policy_fraction": 1.0, "beta": 1.0}),
        ("offpolicy-kl", "opd", {"on_policy_fraction": 0.0, "beta": 0.0}),
        ("opd-sampled", "teacher-reward", {"teacher_weight": 1.0, "group": 4}),
        ("teacher-reward", "grpo", {"teacher_weight": 0.5}),
        ("grpo", "opd-sampled", {"teacher_weight": 0.0, "group": 8}),
        ("grpo", "opd", {"teacher_weight": 0.0, "group": 8}),
        ("dft", "sft", {"dft": True}),
        ("sft-anchored", "sft", {"anchor": 0.1}),
        ("asft", "dft", {"anchor": 0.1}),
        ("opsd", "opsd", {"clip": 0.05, "clip_mode": "zero", "beta": 0.0, "epochs": 1}),
    ],
)
def test_a_name_and_its_dials_take_the_same_steps(name: str, other: str, dials: dict[str, Any]) -> None:
    named, changed = recipe(name), recipe(other, **dials)
    assert changed.dials == named.dials
    assert objective_of(changed) == objective_of(named)
    for part in ("data", "on_policy_fraction", "teacher_weight", "needs_reward", "scores_with_teacher"):
        assert getattr(changed, part) == getattr(named, part), part


@pytest.fixture(scope="module")
def distance_before(models: tuple[Path, Path]) -> float:
    return distance(load_student(str(models[0])), models[1])


@pytest.mark.parametrize("name", WITH_TEACHER)
def test_a_recipe_with_a_teacher_approaches_it(name: str, models: tuple[Path, Path], distance_before: float) -> None:
    student, teacher, chosen = load_student(str(models[0])), models[1], recipe(name)
    signal = signal_of(chosen, FrozenTeacher(str(teacher)))
    list(train(student, states_of(chosen, student, teacher), signal, objective_of(chosen), Plan(10, 1e-2)))
    assert distance(student, teacher) < 0.8 * distance_before


@pytest.mark.parametrize("name", WITH_REWARD)
def test_a_recipe_with_a_reward_increases_it(name: str, models: tuple[Path, Path]) -> None:
    student, teacher, chosen = load_student(str(models[0])), models[0], recipe(name)
    signal = signal_of(chosen, teacher_of(chosen, teacher), reward_upper_half)
    steps = train(student, states_of(chosen, student, teacher), signal, objective_of(chosen), Plan(20, 2e-2))
    rewards = [record.reward for record in steps if record.reward is not None]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 10


def test_errors_name_what_a_recipe_needs() -> None:
    with pytest.raises(RecoverError, match="Choose one of midtrain"):
        recipe("magic")
    with pytest.raises(RecoverError, match="Name one with --teacher"):
        signal_of(recipe("opd"))
    with pytest.raises(RecoverError, match="scores a reply"):
        signal_of(recipe("grpo"))


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_contextual_recipe_learns_what_the_context_makes_of_the_teacher(name: str, models: tuple[Path, Path]) -> None:
    """The teacher has the student's own weights: only the context makes them differ."""
    student, chosen, frozen = load_student(str(models[0])), recipe(name), FrozenTeacher(str(models[0]))
    context = student.chat.prompt("a hint that the student does not see")
    shown = [replace(prompt, teacher_prompt=context) for prompt in prompts(student)]
    states: States = Rollouts(shown, TransformersEngine(student), rows=ROWS, max_new_tokens=8)
    if chosen.data == "teacher":
        replies = TransformersEngine(frozen.model).generate([context] * len(shown) * 8, Sampling(8, seed=0))
        rows = [prompt.with_reply(reply.tokens) for prompt, reply in zip(shown * 8, replies, strict=True)]
        states = FixedRows(rows, rows=ROWS)
    records = list(train(student, states, signal_of(chosen, frozen), objective_of(chosen), Plan(16, 1e-2)))
    measured = [record.kl if record.kl is not None else record.loss for record in records]
    assert sum(measured[-3:]) < 0.8 * sum(measured[:3])
    assert (records[0].clipped is not None) == bool(chosen.clip)


def test_accepted_rollouts_are_to_every_prompt_once_an_epoch(tmp_path: Path) -> None:
    """A step without any asks further prompts, and leaves those of all steps as they are."""
    student, asked = tiny_student(tmp_path), list[int]()

    class Asked:
        def draw(self, student: Student, step: int) -> list[Sample]:
            asked.append(step)
            return [Sample([1, 5], [False, True])] * 2

    right = iter([False, False, False, True, True, True, False, False, True, *[True] * 20])
    accepted = Accepted(Asked(), lambda sample: next(right))
    rows = [len(accepted.draw(student, step)) for step in range(5)]
    assert rows == [4, 2, 4, 2, 2]
    assert [step for step in asked if step >= 0] == [0, 1, 2, 3, 4]
    assert len(set(asked)) == len(asked) == 7


def test_only_accepted_rollouts_are_learned_and_all_are_paid_for(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    drawn = rollouts(student, 4)
    even = Accepted(drawn, lambda sample: sum(sample.tokens) % 2 == 0)
    for step in range(3):
        rows = even.draw(student, step)
        assert len(rows) % 4 == 0
        for row in rows:
            is_even = sum(row.tokens) % 2 == 0
            assert (row.reward, bool(row.target_count)) == (float(is_even), is_even)
    assert even.draw(student, 1) == even.draw(student, 1)
    record = next(train(student, even, Labels(), objective_of(recipe("rs-sft")), Plan(1, 0.0)))
    rows = even.draw(student, 0)
    passes = [1 + 3 * bool(row.target_count) for row in rows]
    tokens = sum(count * len(row.tokens) for count, row in zip(passes, rows, strict=True))
    assert record.flops == 2.0 * student.parameters * tokens
    assert record.reward == sum(row.reward or 0 for row in rows) / len(rows)
    assert record.target_tokens == sum(row.target_count for row in rows)
    with pytest.raises(RecoverError, match="None of 12 rollouts passed"):
        Accepted(drawn, lambda sample: False, most=12).draw(student, 0)


def test_a_run_of_checks_that_one_rollout_in_ten_passes_does_not_end_by_chance(tmp_path: Path) -> None:
    rng, student = Random(0), tiny_student(tmp_path)

    @dataclass
    class Rows:
        count: int

        def draw(self, student: Student, step: int) -> list[Sample]:
            return [Sample([1, 5], [False, True])] * self.count

    for count in (1, 7):
        accepted = Accepted(Rows(count), lambda sample: rng.random() < 0.1)
        assert all(any(row.target_count for row in accepted.draw(student, step)) for step in range(2000))


def test_rollouts_of_tokens_that_the_teacher_lacks_are_named(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    student.vocabulary = 1
    with pytest.raises(RecoverError, match="All rollouts of this step begin with a token that the teacher lacks"):
        next(train(student, rollouts(student, 4), Labels(), objective_of(recipe("sft")), Plan(1, 0.0)))
