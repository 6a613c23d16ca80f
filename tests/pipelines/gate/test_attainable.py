"""What a verdict can show with the prompts that there are: from earlier verdicts or from assumptions."""

import json
from pathlib import Path
from typing import Any

import pytest

from db.tables import Cycle, Headline, Stage
from evals.stats.paired_comparison import n_needed, smallest_margin
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.attainable import Attainable, attainable
from pipelines.settings.schema import Gate


def cycle(**behaviour: Any) -> Cycle:
    verdict = {"behaviour": behaviour} if behaviour else None
    return Cycle(number=1, status="rejected", verdict=verdict)


def of(
    plan: EvalPlan, cycles: list[Cycle] | None = None, named: dict[str, str] | None = None, samples: int = 4
) -> Attainable:
    result = attainable(Gate(samples=samples), plan, named if named is not None else {"behaviour": "lab"}, cycles or [])
    assert result is not None
    return result


@pytest.fixture
def public_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.suites.suite_measurement.public_ifeval", lambda: [{"key": n} for n in range(541)])


@pytest.mark.parametrize(("n", "differ"), [(200, 0.02), (541, 0.1), (541, 0.25), (2000, 0.25)])
def test_the_smallest_margin_takes_as_many_items_as_there_are(n: int, differ: float) -> None:
    margin = smallest_margin(n, differ)
    needed, more = n_needed(margin, differ), n_needed(margin - 0.001, differ)
    assert needed is not None
    assert more is not None
    assert needed <= n < more


def test_the_public_prompts_can_hardly_show_the_margin_if_a_quarter_of_the_verdicts_differ(
    public_prompts: None,
) -> None:
    shown = of(EvalPlan(), named={})
    assert (shown.prompts, shown.can_ask_more) == (541, False)
    assert shown.cases[-1].differ == 0.25
    assert shown.cases[-1].smallest_loss > 0.05
    text = "\n".join(shown.lines())
    assert "With 541 prompts, the smallest loss that the verdict can rule out is" in text
    assert f"takes about {shown.cases[0].needed:,} or {shown.cases[-1].needed:,} prompts" in text
    assert "both models give up to 4 further replies to each prompt, which takes longer than estimated" in text
    assert [case.with_samples < case.smallest_loss for case in shown.cases if case.with_samples] == [True, True]
    assert "with 541 it can hardly be shown if 25 % come out differently" in text  # if 10 % do, further replies show it
    assert "if 25 % do (assumed)" in text
    assert "--ifeval-data FILE, with more prompts" in text
    assert 400 < of(EvalPlan(split="final"), named={}).prompts < 460
    without = of(EvalPlan(), named={}, samples=0)
    assert [case.with_samples for case in without.cases] == [None, None]
    assert "with 541 it can hardly be shown if 10 % come out differently" in "\n".join(without.lines())


def test_where_further_replies_are_enough_nothing_else_is_advised(public_prompts: None) -> None:
    lines = of(EvalPlan(), [cycle(differ=0.1, n=541)], named={}).lines()
    assert lines[-1] == "  The gate asks for 0.030, which further replies can show"
    assert len(lines) == 3


def test_generated_prompts_can_be_more(public_prompts: None) -> None:
    few = of(EvalPlan(limit=200))
    assert f"--limit {few.cases[-1].needed}" in few.lines()[-1]
    [line] = of(EvalPlan(limit=few.cases[-1].needed)).lines()
    assert line.endswith("; the gate asks for 0.030")


def test_earlier_verdicts_replace_the_assumption() -> None:
    cycles = [cycle(differ=0.02, n=300), cycle(differ=0.06, n=100), cycle(n=100), cycle()]
    [case] = of(EvalPlan(limit=400), cycles).cases
    assert (case.differ, case.source) == (pytest.approx(0.03), "earlier verdicts")


def test_the_prompts_of_a_file_are_counted_and_those_of_lm_eval_are_unknown(tmp_path: Path) -> None:
    file = tmp_path / "checks.jsonl"
    rows = [{"prompt": f"Prompt {n}.", "checks": [{"contains": "yes"}]} for n in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert of(EvalPlan(), named={"behaviour": str(file)}).prompts == 30
    assert of(EvalPlan(limit=20), named={"behaviour": str(file)}).prompts == 20
    assert attainable(Gate(), EvalPlan(), {"behaviour": "gsm8k"}, []) is None


def test_no_number_of_prompts_shows_a_margin_of_zero() -> None:
    shown = attainable(Gate(behaviour_margin=0.0, samples=0), EvalPlan(), {"behaviour": "lab"}, [])
    assert shown is not None
    assert [case.needed for case in shown.cases] == [None, None]
    assert "which no number of prompts can show" in shown.lines()[1]
    assert shown.lines()[-1] == "  Accept a larger loss (gate.behaviour_margin)"


def test_a_share_of_what_the_clean_model_follows_is_the_margin_once_it_was_measured() -> None:
    gate, plan, named = Gate(keep_behaviour=0.95), EvalPlan(limit=200), {"behaviour": "lab"}
    measured = Stage(scores={"behaviour": Headline(0.2, 200, 0.03, 0.1, 0.3, "ifeval", "prompt_level_strict_acc")})
    before, after = (attainable(gate, plan, named, [Cycle(clean=clean)]) for clean in (Stage(), measured))
    assert before is not None
    assert after is not None
    assert (before.margin, after.margin) == (0.03, pytest.approx(0.01))
    assert after.cases[0].needed is not None
    assert before.cases[0].needed is not None
    assert after.cases[0].needed > before.cases[0].needed
