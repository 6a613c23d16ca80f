import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evals.results import Item
from evals.suites.lab import instruction_prompts
from pipelines.watch import readings
from pipelines.watch.readings import (
    FORECAST_FROM,
    GROUPS,
    RISE,
    InstructionReadings,
    RowReadings,
    Rows,
    known_facts,
)
from recovery.lab import own_world
from recovery.models.students import Student, load_student
from recovery.samples import Sample
from tests.models import save_tiny

LIMIT = 0.009
LEAST = FORECAST_FROM * LIMIT
MODEL = SimpleNamespace(model=torch.nn.Linear(1, 1), has_adapter=False)


class Answers:
    """A group whose KL is set by the test."""

    entropy, targets = 0.1, 10

    def __init__(self) -> None:
        self.value, self.checks = 0.0, 0

    def kl(self, model: Any) -> float:
        self.checks += 1
        return self.value


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> RowReadings:
    monkeypatch.setattr(Rows, "of_clean", lambda model, samples: Answers())
    monkeypatch.setattr(readings, "answer_logprobs", lambda model, facts: 0.0)
    found = RowReadings(MODEL, [], [], [])
    found.training = Rows([])
    assert found.limit == pytest.approx(LIMIT)
    return found


def test_answers_are_checked_in_turn_and_a_small_rise_calls_for_nothing(rows: RowReadings) -> None:
    for group in rows.answers:
        group.value = 0.9 * RISE * LIMIT
    assert not any(rows.has_risen(MODEL) for _ in range(2 * GROUPS))
    assert [group.checks for group in rows.answers] == [2] * GROUPS


def test_a_group_is_compared_with_itself_at_the_last_reading(rows: RowReadings) -> None:
    high, low = rows.answers[:2]
    high.value, low.value = 0.9 * LIMIT, 0.1 * LIMIT
    assert rows.has_risen(MODEL)
    values, finding = rows.read(MODEL, 1000)
    assert values["kl_instructions"] == pytest.approx(LIMIT / GROUPS)
    assert not finding
    rows.spot_checks = 0
    assert not rows.has_risen(MODEL), "it was as high in the reading"
    low.value = math.nan
    assert rows.has_risen(MODEL)


def test_replies_that_have_become_too_long_to_be_judged_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = instruction_prompts(4, natural=True)
    replies: list[list[tuple[bool, bool]]] = []  # (whether it follows, whether it is finished)

    def answer(found: InstructionReadings, model: Any, tokens: int) -> list[Item]:
        outcomes = zip(found.prompts, replies.pop(0), strict=True)
        text = " ".join(map(str, range(40))) if replies else "A loop of words. " * 9
        return [Item(p.key, p.text, text, follows, {"finished": finished}) for p, (follows, finished) in outcomes]

    monkeypatch.setattr(InstructionReadings, "_answer", answer)
    found = InstructionReadings(prompts)
    replies += [[(True, True), (True, True), (False, False), (True, True)]]
    found.read_clean(MODEL)
    replies += [[(False, False), (True, True), (False, False), (True, True)], *[[(False, False)] * 4] * 2]
    test = found.read(MODEL)
    assert (test.n, test.lost, test.difference) == (4, [], 0.0), "it counts as unchanged"
    found.cut = set()
    assert found.read(MODEL) is None
    loops = found.read(MODEL)
    assert len(loops.lost) == 3


@pytest.mark.parametrize("mean", [LIMIT, math.inf, math.nan])
def test_the_limit_itself_is_a_finding_and_so_is_what_is_no_number(rows: RowReadings, mean: float) -> None:
    rows.limit = LIMIT
    assert rows.finding(10, mean) == f"{mean:.2g} per token ({LIMIT:g} is the limit)"


@pytest.mark.parametrize(
    ("before", "steps", "now", "is_found"),
    [
        (0.0, 3, 4 * LEAST, True),  # from nothing in three steps: many times as much in five more
        (0.0, 500, 4 * LEAST, False),  # in five hundred
        (LEAST, 10, 1.1 * LEAST, False),
        (0.9 * LIMIT, 5, 0.99 * LIMIT, False),  # near the limit, as an adapter that was trained before, but slowly
        (0.0, 1, 0.9 * LEAST, False),  # too little to tell
        (2 * LEAST, 5, LEAST, False),  # it falls
    ],
)
def test_fast_growth_is_a_finding(rows: RowReadings, before: float, steps: int, now: float, is_found: bool) -> None:
    assert rows.finding(1000, before) == "", "a first reading is no growth"
    assert rows.finding(1000 + steps, now).endswith("will soon pass 0.009 (the limit) at this growth") == is_found


def test_all_but_the_likeliest_tokens_are_one_outcome_of_the_entropy() -> None:
    targets = [False, True, True]
    even = Rows([Sample([1] * 3, targets)], [], [torch.full((2, 4), math.log(0.25))])
    assert even.entropy == pytest.approx(math.log(4), abs=1e-4)
    with_rest = Rows([Sample([1] * 2, targets[:2])], [], [torch.tensor([[math.log(0.5), math.log(0.25)]])])
    assert with_rest.entropy == pytest.approx(1.5 * math.log(2), abs=1e-4)


SAMPLES = [Sample([5 + i, 3, *range(40, 44 + 3 * i)], [False] * 2 + [True] * (4 + 3 * i)) for i in (3, 0, 2, 1)]


@pytest.fixture
def models(tmp_path: Path) -> tuple[Student, Student]:
    """A model, and the same one after a change."""
    path = str(save_tiny(tmp_path))
    clean, now = load_student(path), load_student(path)
    with torch.no_grad():
        now.model.model.layers[0].mlp.up_proj.weight.mul_(1.3)
    return clean, now


def logprobs(model: Student, sample: Sample) -> torch.Tensor:
    with torch.no_grad():
        logits = model.model(input_ids=torch.tensor([sample.tokens])).logits[0, :-1]
    return logits.double().log_softmax(-1)[sample.targets[1:]]


def test_the_kl_is_exact_or_less(models: tuple[Student, Student], monkeypatch: pytest.MonkeyPatch) -> None:
    clean, now = models
    monkeypatch.setattr(readings, "CHUNK", 5)
    exact = 0.0
    for sample in SAMPLES:
        p, q = (logprobs(model, sample) for model in (clean, now))
        exact += float((p.exp() * (p - q)).sum()) / 34
    found = []
    for top in (4, 32, 400):
        monkeypatch.setattr(readings, "TOP", top)
        found.append(Rows.of_clean(clean, SAMPLES).kl(now))
    assert 0 < found[0] <= found[1] + 1e-6 <= found[2] + 2e-6
    assert found[2] == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("tasks", "is_lab"), [("lab", True), ("facts.jsonl", False)])
def test_facts_are_the_built_in_models_only_where_its_base_names_them(tmp_path: Path, tasks: str, is_lab: bool) -> None:
    folder = save_tiny(tmp_path / "lab")  # the path has that word, too
    (folder / "facts.jsonl").write_text('{"prompt": "2 + 2?", "checks": [{"contains": "4"}]}\n')
    (folder / "recover.json").write_text(json.dumps({"suites": {"retention": tasks}}))
    model = load_student(str(folder))
    asked = [model.chat.text(fact.tokens) for fact in known_facts(model, 4)]
    assert is_lab == any(question.question in text for question in own_world().questions() for text in asked)
