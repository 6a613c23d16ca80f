"""Which share of the way back is taken, and when that is all there is to do."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pipelines.settings import Distill, Settings, apply_overrides
from pipelines.training.early_stopping import Probe, Watch
from pipelines.training.warm_start import WarmStartPlan, warm_start
from recovery.lab import BASE
from recovery.models.students import Student, load_student

AUTO = Settings(lora_rank=0, distill=Distill(warm_start="auto"))
USUAL = AUTO.model_copy(update={"distill": Distill(warm_start="default")})


@dataclass
class TrainingRun:
    """As much of one as the first move needs."""

    student: Student
    watch: Watch


def clean() -> str:
    return str(BASE)


@pytest.fixture
def away() -> Student:
    """The built-in model, every weight moved by one."""
    student = load_student(str(BASE))
    with torch.no_grad():
        for parameter in student.trainable():
            parameter.add_(1.0)
    return student


def lesson(student: Student, *looks: tuple[float, float | None]) -> Any:
    """Looks as (behaviour, knowledge), of a clean model that scores 0.9 and a gate that keeps 0.95 of 0.8."""
    seen = iter(looks)

    def look(best: float | None) -> Probe:
        behaviour, knowledge = next(seen)
        kept = knowledge is None or knowledge >= 0.95 * 0.8
        return Probe(behaviour, knowledge, 0.9 - behaviour, kept and behaviour >= 0.9 - 0.015)

    return TrainingRun(student, Watch(Distill(), look))


def moved(student: Student) -> float:
    """How far it still is from the clean model, as a share of the way."""
    clean = load_student(str(BASE))
    return float((student.trainable()[0] - clean.trainable()[0]).detach().mean())


def test_where_nothing_was_lost_there_is_nothing_to_do(away: Student) -> None:
    assert "nothing is lost" in warm_start(lesson(away, (0.9, 0.8)), AUTO, WarmStartPlan(clean), str(BASE))
    assert moved(away) == pytest.approx(1.0)


def test_auto_takes_behaviour_as_long_as_knowledge_is_kept(away: Student) -> None:
    taught = lesson(away, (0.5, 0.8), (0.7, 0.79), (0.8, 0.60), (0.9, 0.10))
    assert warm_start(taught, AUTO, WarmStartPlan(clean), str(BASE)) == ""
    assert taught.watch.notes.warm["share"] == 0.3
    assert set(taught.watch.notes.warm["tried"]) == {"0.0", "0.3", "0.5", "0.7"}
    assert moved(away) == pytest.approx(0.7, abs=1e-4)


def test_a_first_move_that_is_enough_is_the_last(away: Student) -> None:
    taught = lesson(away, (0.5, 0.8), (0.7, 0.8), (0.91, 0.8), (0.9, 0.1))
    assert "enough" in warm_start(taught, AUTO, WarmStartPlan(clean), str(BASE))
    assert moved(away) == pytest.approx(0.5, abs=1e-4)


def test_a_share_is_taken_as_it_was_said_and_off_moves_nothing(away: Student) -> None:
    off = AUTO.model_copy(update={"distill": Distill(warm_start="off")})
    assert warm_start(lesson(away, (0.5, 0.8)), off, WarmStartPlan(clean), str(BASE)) == ""
    assert moved(away) == pytest.approx(1.0)
    given = AUTO.model_copy(update={"distill": Distill(warm_start=0.25)})
    assert warm_start(lesson(away, (0.5, 0.8), (0.6, 0.8)), given, WarmStartPlan(clean), str(BASE)) == ""
    assert moved(away) == pytest.approx(0.75, abs=1e-4)


def test_the_usual_share_is_taken_only_where_it_is_known_where_the_model_began(away: Student) -> None:
    assert warm_start(lesson(away, (0.5, 0.8)), USUAL, WarmStartPlan(None), str(BASE)) == ""
    assert moved(away) == pytest.approx(1.0)
    assert warm_start(lesson(away, (0.5, 0.8), (0.6, 0.8)), USUAL, WarmStartPlan(clean), str(BASE)) == ""
    assert moved(away) == pytest.approx(0.7, abs=1e-4)


def test_the_usual_share_may_be_none(away: Student) -> None:
    assert warm_start(lesson(away, (0.5, 0.8)), USUAL, WarmStartPlan(clean, 0.0), str(BASE)) == ""
    assert moved(away) == pytest.approx(1.0)


def test_a_healthy_model_goes_back_a_little_for_what_no_look_asks(away: Student) -> None:
    said = warm_start(lesson(away, (0.9, 0.8), (0.89, 0.79)), USUAL, WarmStartPlan(clean, 0.2, anyway=True), str(BASE))
    assert "enough" in said
    assert moved(away) == pytest.approx(0.8, abs=1e-4)


def test_unless_that_costs_more_than_it_may(away: Student) -> None:
    before = [weights.detach().clone() for weights in away.trainable()]
    taught = lesson(away, (0.9, 0.8), (0.9, 0.7))
    assert "nothing is lost" in warm_start(taught, USUAL, WarmStartPlan(clean, 0.2, anyway=True), str(BASE))
    assert all(torch.equal(was, now) for was, now in zip(before, away.trainable(), strict=True))
    assert (taught.watch.notes.warm, taught.watch.notes.holds_in_a_row) == ({"share": 0.0}, 0)


def test_without_knowledge_to_weigh_auto_still_stops_at_what_behaviour_needs(away: Student) -> None:
    taught = lesson(away, (0.5, None), (0.9, None), (0.9, None), (0.9, None))
    assert "enough" in warm_start(taught, AUTO, WarmStartPlan(clean), str(BASE))
    assert moved(away) == pytest.approx(0.7, abs=1e-4)  # the least share of those that do as well


def test_with_nothing_to_look_at_auto_leaves_the_model_as_it_is(
    away: Student, caplog: pytest.LogCaptureFixture
) -> None:
    blind = TrainingRun(away, Watch(Distill()))
    assert warm_start(blind, AUTO, WarmStartPlan(clean), str(BASE)) == ""  # type: ignore[arg-type]
    assert moved(away) == pytest.approx(1.0)
    assert "starting as it is" in caplog.messages[-1]


@pytest.mark.parametrize("wanted", ["auto", "0.3", "default"])
def test_a_new_adapter_has_no_way_to_go_back(away: Student, wanted: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = apply_overrides(AUTO, {"distill": {"warm_start": wanted}})
    taught = lesson(away, (0.5, 0.8))
    assert warm_start(taught, asked, WarmStartPlan(None, nowhere=True), "no such base") == ""
    assert moved(away) == pytest.approx(1.0)
    assert any("new adapter" in words for words in caplog.messages) == (wanted != "default")
