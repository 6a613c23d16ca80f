from typing import Any

import pytest
import torch

from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.schema import Distill, Settings
from pipelines.training.probes import EarlyStopping, ProbeResult
from pipelines.training.stage_context import Stage
from pipelines.training.warm_start import ENOUGH, NOTHING_LOST, WarmStart, WarmStartPlan, warm_start, warm_start_plan
from recovery.lab import BASE
from recovery.models.interpolation import InterpolationError
from recovery.models.students import Student, load_student
from tests.pipelines.project.checkpoints import record_checkpoint


def with_start(value: str | float) -> Settings:
    return Settings(lora_rank=0, distill=Distill(warm_start=value))


def clean() -> str:
    return str(BASE)


AUTO, DEFAULT, LOST = with_start("auto"), with_start("default"), (0.5, 0.8)
KEPT, ALWAYS = WarmStartPlan(clean), WarmStartPlan(clean, 0.2, always=True)
REJECTED = WarmStartPlan(clean, rejected=True)


@pytest.fixture
def student() -> Student:
    """The built-in model, every weight moved by one."""
    student = load_student(str(BASE))
    with torch.no_grad():
        for parameter in student.trainable():
            parameter.add_(1.0)
    return student


def probes(*scores: tuple[float, float | None]) -> EarlyStopping:
    """Probes with these scores of (behaviour, knowledge).

    The clean model scores 0.9, and the gate keeps 0.95 of a knowledge of 0.8."""

    def result(behaviour: float, knowledge: float | None) -> ProbeResult:
        kept = knowledge is None or knowledge >= 0.95 * 0.8
        return ProbeResult(behaviour, knowledge, 0.9 - behaviour, kept and behaviour >= 0.9 - 0.015)

    return in_turn(*(result(*score) for score in scores))


def in_turn(*results: ProbeResult) -> EarlyStopping:
    remaining = iter(results)
    return EarlyStopping(probe=lambda best: next(remaining))


def start(
    student: Student, settings: Settings, plan: WarmStartPlan, *scores: tuple[float, float | None]
) -> tuple[WarmStart, float | None]:
    """And the best knowledge of all probes."""
    monitor = probes(*scores)
    return warm_start(student, monitor, settings, plan), monitor.state.best_knowledge


def distance(student: Student) -> float:
    """The distance left to the clean model: 1 before any move."""
    clean = load_student(str(BASE))
    return float((student.trainable()[0] - clean.trainable()[0]).detach().mean())


def test_where_no_line_leads_to_the_clean_model_the_weights_stay_and_only_a_share_that_was_named_is_refused(
    student: Student, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_line(*_: object) -> None:
        raise InterpolationError("The adapter uses DoRA.")

    monkeypatch.setattr("pipelines.training.warm_start.WeightInterpolation", no_line)
    named = with_start(0.3)
    assert start(student, AUTO, KEPT, LOST) == (WarmStart(), 0.8), "the probe counts"
    assert start(student, DEFAULT, KEPT, LOST) == (WarmStart(), 0.8)
    assert start(student, named, REJECTED, LOST) == (WarmStart(), 0.8)
    with pytest.raises(InterpolationError):
        start(student, named, KEPT, LOST)


def test_by_default_weights_whose_mid_training_is_not_recorded_stay(project: Project, student: Student) -> None:
    checkpoint = project.reader.checkpoint(record_checkpoint(project, None, 5))
    plan = warm_start_plan(Stage(project, Job("distill", Settings(), start=checkpoint.id)), student, checkpoint)
    assert (plan.origin(), plan.share) == (project.base, 0.0)


@pytest.mark.parametrize(
    ("settings", "plan", "scores", "stop_reason", "left"),
    [
        pytest.param(AUTO, KEPT, [(0.9, 0.8)], NOTHING_LOST, 1.0, id="nothing is lost"),
        pytest.param(AUTO, KEPT, [LOST, (0.7, 0.8), (0.91, 0.8), (0.9, 0.1)], ENOUGH, 0.5, id="a share is enough"),
        pytest.param(AUTO, KEPT, [(0.5, None), *[(0.9, None)] * 3], ENOUGH, 0.7, id="no questions: the smallest share"),
        pytest.param(DEFAULT, KEPT, [LOST, (0.6, 0.8)], "", 0.7, id="the default share"),
        pytest.param(DEFAULT, WarmStartPlan(clean, 0.0), [LOST], "", 1.0, id="the default share is zero"),
        pytest.param(DEFAULT, ALWAYS, [(0.9, 0.8), (0.89, 0.79)], ENOUGH, 0.8, id="for knowledge of earlier cycles"),
        pytest.param(with_start("off"), KEPT, [LOST], "", 1.0, id="off"),
        pytest.param(with_start(0.25), KEPT, [LOST, (0.6, 0.8)], "", 0.75, id="a share that was set"),
    ],
)
def test_how_far_the_weights_move_back_and_whether_anything_is_left_to_distil(
    student: Student,
    settings: Settings,
    plan: WarmStartPlan,
    scores: list[tuple[float, float | None]],
    stop_reason: str,
    left: float,
) -> None:
    warm, best = start(student, settings, plan, *scores)
    assert warm.stop_reason == stop_reason
    assert distance(student) == pytest.approx(left, abs=1e-4)
    moved = None if left == 1.0 else pytest.approx(1 - left, abs=1e-4)
    assert (warm.share, best) == (moved, None if scores[0][1] is None else 0.8)


def test_auto_recovers_behaviour_as_long_as_knowledge_is_kept(student: Student) -> None:
    warm, best = start(student, AUTO, KEPT, (0.5, 0.8), (0.7, 0.79), (0.8, 0.60), (0.9, 0.10))
    assert (warm.stop_reason, warm.share, best) == ("", 0.3, 0.8)
    recorded: dict[str, Any] | None = warm.as_json()
    assert recorded["share"] == 0.3
    assert set(recorded["tried"]) == {"0.0", "0.3", "0.5", "0.7"}
    assert recorded["tried"]["0.3"] == {"behaviour": 0.7, "knowledge": 0.79, "holds": False}
    assert distance(student) == pytest.approx(0.7, abs=1e-4)


def test_a_healthy_model_stays_if_moving_back_loses_more_than_the_gate_allows(student: Student) -> None:
    before = [weights.detach().clone() for weights in student.trainable()]
    warm, _ = start(student, DEFAULT, ALWAYS, (0.9, 0.8), (0.9, 0.7))
    assert warm.stop_reason == NOTHING_LOST
    assert all(torch.equal(old, new) for old, new in zip(before, student.trainable(), strict=True))
    assert warm.as_json() == {"share": 0.0}


def test_without_a_probe_set_auto_moves_nothing(student: Student, caplog: pytest.LogCaptureFixture) -> None:
    assert warm_start(student, EarlyStopping(), AUTO, KEPT) == WarmStart()
    assert distance(student) == pytest.approx(1.0)
    assert "No warm start: there is no probe set" in caplog.messages[-1]


@pytest.mark.parametrize("value", ["auto", 0.3, "default"])
def test_a_new_adapter_stays_in_place(student: Student, value: str | float, caplog: pytest.LogCaptureFixture) -> None:
    plan = WarmStartPlan(clean, new_adapter=True)
    assert start(student, with_start(value), plan, LOST) == (WarmStart(), 0.8)
    assert distance(student) == pytest.approx(1.0)
    assert any("new adapter" in message for message in caplog.messages) == (value != "default")


def test_the_search_counts_what_was_known_before_and_what_a_likelihood_had_without_training(student: Student) -> None:
    def search(*scores: tuple[float, float]) -> float | None:
        results = [ProbeResult(0.9, gained, 1.0 - known, False, known, floor=0.5) for known, gained in scores]
        return warm_start(student, in_turn(*results), AUTO, KEPT).share

    assert search((0.6, 0.8), (0.7, 0.8), (0.9, 0.8), (1.0, 0.8)) == 0.7, "all instructions are followed everywhere"
    # Of a gain of 0.3 at most 0.0075 may be lost; without the floor, 0.02.
    assert search((0.9, 0.8), (0.97, 0.79), (0.97, 0.7), (0.97, 0.6)) == 0.3
    assert search((0.95, 0.8), (0.955, 0.782), (0.955, 0.7), (0.955, 0.6)) == 0.0


@pytest.mark.parametrize(
    ("gained", "known", "error", "floor", "keep", "share"),
    [
        # Measured on an adapter that TRL's SFTTrainer trained: the largest share would leave a seventh of the gain.
        ((0.124, 0.096, 0.057, 0.017), (0.0, 0.083, 0.317, 0.583), 0.0, 0.0004, 0.5, 0.3),
        ((1 / 60, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.95, 0.7),  # one answer, which every move loses
        ((0.402, 0.4, 0.4, 0.4), (0.0, 0.0, 0.0, 0.0), 0.02, 0.4, 0.95, 0.7),  # a rise below its error
        ((0.05, 0.06, 0.08, 0.1), (0.0, 0.9, 0.5, 0.4), 0.01, 0.12, 0.95, 0.3),  # nothing was gained
    ],
)
def test_a_gain_holds_the_weights_if_it_is_more_than_chance(
    student: Student,
    gained: tuple[float, ...],
    known: tuple[float, ...],
    error: float,
    floor: float,
    keep: float,
    share: float,
) -> None:
    settings = AUTO.model_copy(update={"gate": AUTO.gate.model_copy(update={"keep_knowledge": keep})})
    results = [
        ProbeResult(follows, has, 0.97 - follows, False, knows, error, floor)
        for follows, has, knows in zip((0.3, 0.867, 0.933, 0.967), gained, known, strict=True)
    ]
    assert warm_start(student, in_turn(*results), settings, KEPT).share == share


def test_a_model_that_the_gate_rejected_is_moved_where_probes_show_no_loss(student: Student) -> None:
    warm, _ = start(student, AUTO, REJECTED, (0.9, 0.8), (0.95, 0.8), (0.95, 0.8), (0.95, 0.8))
    assert (warm.share, list(warm.tried or {})) == (0.3, ["0.0", "0.3", "0.5", "0.7"])
    assert start(student, with_start(0.5), REJECTED, (0.9, 0.8), (0.9, 0.8))[0].share == 0.5
    assert distance(student) == pytest.approx(0.7 * 0.5, abs=1e-3)
