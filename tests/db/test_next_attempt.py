from dataclasses import replace
from typing import Any

import pytest

from db.column_types import now
from db.next_attempt import Attempt, advise, next_attempt
from db.queries import Reader
from db.tables import COLLAPSED
from db.tracker import Tracker

DISTILL = {"recipe": "opd", "steps": 40, "documents": 0.0, "warm_start": "off", "probe_every": 10}
ATTEMPT = Attempt({"lora_rank": 0, "keep_documents": True, "distill": DISTILL}, 40, 40)
PASSED = {"passed": True, "n": 400}
SHORT = {"passed": False, "n": 400, "needed": None, "unsure": False}
UNSURE = {"passed": False, "n": 400, "needed": 900, "needed_limit": 950, "unsure": True}


def attempt_with(**distill: Any) -> Attempt:
    return replace(ATTEMPT, settings={**ATTEMPT.settings, "distill": DISTILL | distill})


def command(attempt: Attempt = ATTEMPT, **judgements: Any) -> str:
    """The flags of the advice, without what every advice has."""
    advice = advise({"passed": False, "behaviour": PASSED, "knowledge": PASSED, **judgements}, attempt)
    return advice.command.removeprefix("recover distill --teacher base ")


def test_missing_instruction_following_asks_for_more_steps() -> None:
    advice = advise({"passed": False, "behaviour": SHORT}, replace(ATTEMPT, steps=60, planned=60))
    assert str(advice) == "Try again with more steps: recover distill --teacher base --set distill.steps=120"


def test_a_distillation_that_made_it_worse_has_a_lower_rate_next() -> None:
    attempt = attempt_with(learning_rate=1e-3)
    assert command(attempt, behaviour=SHORT | {"came_back": -0.02}) == "--set distill.learning_rate=0.00025"
    assert command(attempt, behaviour=SHORT | {"came_back": 0.02}) == "--set distill.steps=80"
    assert command(attempt, behaviour=SHORT | {"came_back": None}) == "--set distill.steps=80"


def test_the_next_attempt_has_the_settings_that_were_given_but_for_those_that_change() -> None:
    given = {"distill.recipe": "gkd", "distill.steps": 40, "midtrain.epochs": 3, "gate.behaviour_margin": 0.06}
    attempt = replace(attempt_with(recipe="gkd"), given=given)
    assert command(attempt, behaviour=SHORT) == "--recipe gkd --set gate.behaviour_margin=0.06 --set distill.steps=80"
    limited = replace(ATTEMPT, given={"distill.max_steps": 20, "distill.max_minutes": 5.0, "distill.max_flops": 1e15})
    lifted = " ".join(f"--set distill.max_{limit}=none" for limit in ("steps", "minutes", "flops"))
    assert command(limited, behaviour=SHORT) == f"{lifted} --set distill.steps=80", "they would end it as early again"
    started = replace(ATTEMPT, given={"distill.warm_start": "off", "bf16": False})
    assert command(started, retention=SHORT) == "--set bf16=false --warm-start 0.3"
    taught = advise({"passed": False, "behaviour": SHORT}, replace(ATTEMPT, given={"teacher": "maths=my run,*=base"}))
    assert str(taught).endswith("recover distill --teacher 'maths=my run,*=base' --set distill.steps=80")


def test_an_attempt_without_a_distillation_has_the_usual_one_next() -> None:
    attempt = replace(ATTEMPT, steps=0, planned=0, given={"distill.steps": 0, "bf16": False})
    advice = advise({"passed": False, "behaviour": SHORT}, attempt)
    assert str(advice) == "Try again with a distillation: recover distill --teacher base --set bf16=false"


def test_knowledge_that_a_warm_start_alone_lost_asks_for_none() -> None:
    attempt = replace(attempt_with(warm_start="0.15"), steps=0, planned=0, given={"distill.steps": 0})
    assert command(attempt, knowledge=SHORT, retention=SHORT) == "--set distill.steps=0 --warm-start off"
    assert command(attempt, knowledge=SHORT, behaviour=SHORT) == "--warm-start off", "which the default steps follow"


@pytest.mark.parametrize("warm_start", ["off", "default", None, 0.0])
@pytest.mark.parametrize("short", [{"earlier": {"1": SHORT}}, {"retention": SHORT}, {"behaviour": SHORT}])
def test_what_mid_training_alone_lost_asks_for_a_distillation(warm_start: object, short: dict[str, Any]) -> None:
    attempt = replace(attempt_with(warm_start=warm_start), steps=0, planned=0, given={"distill.steps": 0})
    advice = advise({"passed": False, **short}, attempt)
    assert (advice.changes, advice.flags) == (("a distillation",), "")
    assert advice.command == "recover distill --teacher base"
    unsure = {"behaviour": UNSURE, "retention": UNSURE | {"needed_limit": 3000}}
    assert command(attempt, **unsure) == "--set distill.steps=0 --limit 3000", "more items may show that all is well"


def test_an_attempt_that_probes_ended_takes_all_its_steps_next() -> None:
    early = replace(ATTEMPT, steps=20)
    assert command(early, behaviour=SHORT) == "--set distill.probe_every=0"
    collapsed = replace(attempt_with(learning_rate=1e-3), steps=20, stopped=f"{COLLAPSED}: the KL doubled")
    assert command(collapsed, behaviour=SHORT | {"came_back": 0.05}) == "--set distill.learning_rate=0.00025"
    by_budget = replace(attempt_with(max_minutes=5.0), steps=20)
    assert command(by_budget, behaviour=SHORT) == "--set distill.steps=40"


def test_too_few_items_ask_for_more_items() -> None:
    assert command(behaviour=UNSURE) == "--limit 950"
    assert command(behaviour=UNSURE, retention=UNSURE | {"needed_limit": 3000}) == "--limit 3000"  # enough for both
    assert command(behaviour=UNSURE, retention=UNSURE | {"needed_limit": 600}) == "--limit 950"
    assert command(behaviour=UNSURE | {"needed": None}) == "--set distill.steps=80"  # no number of items would do
    assert command(behaviour=UNSURE | {"needed_limit": None}) == "--set distill.steps=80"  # there are no more items


@pytest.mark.parametrize("needed", [256, None])
def test_prompts_that_were_not_asked_do_not_count_as_short(needed: int | None) -> None:
    """Knowledge had failed, so that the gate asked one block: the advice is about knowledge alone."""
    left_open = {"passed": False, "unsure": True, "n": 200, "of": 2000, "needed": needed}
    assert command(attempt_with(documents=0.4), behaviour=left_open, knowledge=SHORT) == "--set distill.steps=20"
    in_full = left_open | {"n": 2000, "needed": None}
    assert command(attempt_with(documents=0.4), behaviour=in_full, knowledge=SHORT) == "--set distill.steps=80"


@pytest.mark.parametrize("short", [{"knowledge": SHORT}, {"earlier": {"1": PASSED, "2": SHORT}}])
def test_missing_knowledge_asks_for_documents_then_for_fewer_steps(short: dict[str, Any]) -> None:
    assert command(**short) == "--set distill.documents=0.2"
    assert command(attempt_with(documents=0.2), **short) == "--set distill.documents=0.4"
    assert command(attempt_with(documents=0.4), **short) == "--set distill.steps=20"
    without_texts = replace(ATTEMPT, settings={**ATTEMPT.settings, "keep_documents": False})
    assert command(without_texts, **short) == "--set distill.steps=20"


def test_missing_retention_asks_for_a_warm_start_then_for_texts_then_for_more_steps() -> None:
    assert command(retention=SHORT) == "--warm-start 0.3"
    assert command(retention=UNSURE) == "--limit 950"
    for share, advice in ((None, "texts=0.2"), (0.2, "texts=0.4"), (0.4, "steps=80")):
        attempt = attempt_with(warm_start="default", texts=share)
        assert command(attempt, retention=SHORT) == f"--set distill.{advice}"
    adapter = replace(ATTEMPT, settings={**ATTEMPT.settings, "lora_rank": 128})
    assert command(adapter, retention=SHORT) == "--set distill.texts=0.2"
    both = attempt_with(warm_start="default", documents=0.3, texts=0.3)
    assert command(both, retention=SHORT, knowledge=SHORT) == "--set distill.texts=0.4 --set distill.documents=0.4"
    assert command(attempt_with(warm_start="default", documents=0.7), retention=SHORT) == "--set distill.texts=0.2"
    full = attempt_with(warm_start="default", documents=0.8)
    assert command(full, retention=SHORT) == "--set distill.steps=80"


def test_retention_that_a_distillation_lost_asks_for_texts_then_for_a_lower_rate() -> None:
    worse = SHORT | {"came_back": -0.02}
    assert command(attempt_with(learning_rate=1e-3), retention=worse) == "--set distill.texts=0.2"
    most = attempt_with(learning_rate=1e-3, texts=0.4)
    assert command(most, retention=worse) == "--set distill.learning_rate=0.00025"
    assert command(most, retention=worse | {"came_back": 0.02}) == "--warm-start 0.3"


def test_several_criteria_are_combined_and_the_first_decides_about_a_setting() -> None:
    both = advise({"passed": False, "behaviour": SHORT, "knowledge": SHORT}, ATTEMPT, "cycle:1/midtrained")
    assert str(both) == (
        "Try again with more steps and rows of documents: recover distill --student cycle:1/midtrained "
        "--teacher base --set distill.steps=80 --set distill.documents=0.2"
    )
    assert command(attempt_with(documents=0.4), behaviour=SHORT, knowledge=SHORT) == "--set distill.steps=80"


@pytest.mark.parametrize("verdict", [{}, {"passed": True, "behaviour": PASSED}])
def test_without_a_criterion_that_failed_there_is_no_advice(verdict: dict[str, Any]) -> None:
    assert advise(verdict, ATTEMPT) is None


@pytest.mark.parametrize(
    ("recipe", "advised"), [("opd", True), ("offpolicy-kl", True), ("opsd", False), ("sft", False)]
)
def test_an_attempt_that_was_to_teach_something_new_has_no_advice_on_restoring(recipe: str, advised: bool) -> None:
    advice = advise({"passed": False, "behaviour": SHORT}, attempt_with(recipe=recipe))
    assert (advice is not None) == advised


def test_an_attempt_that_learned_from_a_reward_as_well_has_no_advice() -> None:
    assert advise({"passed": False, "behaviour": SHORT}, attempt_with(teacher_weight=0.5)) is None
    assert advise({"passed": False, "behaviour": SHORT}, attempt_with(teacher_weight=1.0)) is not None


def test_a_rejected_cycle_has_advice_as_long_as_its_midtrained_weights_are_there(
    tracker: Tracker, reader: Reader, project: int
) -> None:
    cycle = tracker.open_cycle(project)
    run = tracker.start_run(project, "distill", cycle.id, ATTEMPT.settings, steps=40)
    midtrained = tracker.checkpoint(project, "midtrained", "run-1", cycle=cycle.id)
    recovered = tracker.checkpoint(project, "recovered", "run-2", cycle=cycle.id, run=run, step=40)

    def advice() -> str:
        (row,) = reader.cycles(project)
        return str(next_attempt(row, reader.runs(project)))

    assert advice() == "None"
    tracker.promote(project, cycle.id, recovered, "rejected", "gate", "too low", {"passed": False, "behaviour": SHORT})
    assert advice().endswith("--set distill.steps=80")
    second = tracker.checkpoint(project, "recovered", "run-3", parent=recovered, cycle=cycle.id, run=run, step=40)
    short = {"passed": False, "behaviour": SHORT}
    tracker.promote(project, cycle.id, second, "rejected", "gate", "too low", short)
    assert f"recover distill --student run:{run} --teacher base" in advice(), "it went on from the first attempt"
    tracker.weights_deleted(midtrained)
    assert advice() == "None"
    (row,) = reader.cycles(project)
    assert row.damaged.checkpoint.deleted_at <= now()
