"""The clock of a job: what is left, what stages took, and how one stage corrects the others."""

import pytest

from pipelines import stage_clock
from pipelines.stage_clock import Progress, StageClock, StageEstimate

PLAN = (
    StageEstimate("write/texts", "writing 96 texts", 20),
    StageEstimate("midtrain", "mid-training", 100),
    StageEstimate("measure/clean", "measuring the clean model", 60),
    StageEstimate("distill", "distilling", 200),
    StageEstimate("measure/recovered", "measuring the recovered model", 60),
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(stage_clock.time, "monotonic", lambda: now[0])
    return now


def test_each_stage_says_how_much_is_left(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="recover")
    clock = StageClock(PLAN)
    with clock.stage("midtrain"):
        assert clock.seconds_left() == 440
        with clock.stage("write/texts"):
            now[0] += 20
        now[0] += 60
        assert clock.seconds_left() == 40 + 60 + 200 + 60
        assert clock.stage_estimate() == {"seconds": 100, "after": 320}
    with clock.stage("measure/clean"):
        pass
    assert caplog.messages == [
        "About 7 min left: mid-training, about 2 min",
        "About 7 min left: writing 96 texts, about 20 s",
        "About 5 min left: measuring the clean model, about 60 s",
    ]


def test_the_time_of_a_stage_does_not_count_for_the_one_around_it(now: list[float]) -> None:
    clock = StageClock(PLAN)
    with clock.stage("midtrain"):
        now[0] += 3
        with clock.stage("write/texts"):
            now[0] += 30
        now[0] += 4
    assert clock.took == {"write/texts": 30, "midtrain": 7}


def test_a_stage_that_was_slower_corrects_those_of_its_kind(now: list[float]) -> None:
    stored: list[tuple[str, float]] = []
    clock = StageClock(PLAN, finished=lambda key, took: stored.append((key, took)))
    with clock.stage("measure/clean"):
        now[0] += 90
    assert [e.seconds for e in clock.estimates if e.key == "measure/recovered"] == [90]
    assert clock.seconds_left() == 200 + 90
    assert stored == [("measure/clean", 90)]


def test_a_stage_that_ended_early_says_nothing_about_others(now: list[float]) -> None:
    stored: list[str] = []
    clock = StageClock(PLAN, finished=lambda key, took: stored.append(key))
    with clock.stage("distill"):
        now[0] += 50
        clock.end_early("distill")
    assert stored == []
    summary = clock.summary()
    assert summary is not None
    assert (summary["seconds"], summary["took"]) == (440, 50)
    (distilling,) = [row for row in summary["stages"] if row["stage"] == "distilling"]
    assert distilling == {"stage": "distilling", "seconds": 200, "took": 50, "complete": False}


def test_stages_that_were_not_needed_are_no_longer_waited_for(now: list[float]) -> None:
    clock = StageClock(PLAN)
    with clock.stage("distill"):
        now[0] += 200
    assert clock.seconds_left() == 60


def test_progress_within_a_stage_is_published(now: list[float]) -> None:
    published: list[tuple[Progress, int | None]] = []
    clock = StageClock(PLAN, publish=lambda progress, run: published.append((progress, run)))
    with clock.stage("measure/clean"):
        clock.run = 7
        update = clock.listener("replies", 10)
        for done in range(1, 11):
            now[0] += 12
            update(done)
    first, *_, last = published
    assert first[0] == Progress("measuring the clean model", "", 0, 0, 440)
    assert last == (Progress("measuring the clean model", "replies", 10, 10, 380), 7)
    assert published[5][0].seconds_left == 60 + 380, "half is done after a minute: another minute is left"


def test_within_a_training_its_steps_are_the_progress(now: list[float]) -> None:
    published: list[Progress] = []
    clock = StageClock(PLAN, publish=lambda progress, run: published.append(progress))
    with clock.stage("distill"):
        update = clock.listener("steps", 4)
        clock.listener("replies", 64)(32)
        now[0] += 60
        update(1)
    assert (published[-1].units, published[-1].done, published[-1].total) == ("steps", 1, 4)


def test_a_training_that_is_faster_than_estimated_shortens_the_wait(now: list[float]) -> None:
    clock = StageClock(PLAN)
    with clock.stage("distill"):
        update = clock.listener("steps", 10)
        now[0] += 8  # of 200 estimated
        update(5)  # the first step after an interruption
        assert clock.seconds_left() == 5 * 8 + clock.seconds_after()
        now[0] += 4
        update(6)
        assert clock.seconds_left() == 4 * 6 + clock.seconds_after()


def test_without_an_estimate_nothing_is_compared(now: list[float]) -> None:
    clock = StageClock()
    with clock.stage("midtrain"):
        assert clock.stage_estimate() is None
    assert clock.summary() is None


def test_what_is_going_on_can_be_asked_at_any_time(now: list[float]) -> None:
    clock = StageClock(PLAN)
    assert clock.describe() == "  still working"
    with clock.stage("midtrain"):
        now[0] += 30
        assert clock.describe() == "  mid-training: 30 s so far, about 7 min left in all"
