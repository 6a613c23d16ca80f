"""Stages that were measured on different numbers of prompts are compared on those that all of them answered."""

import re
from html import unescape

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dashboard.pages import cycle, cycle_list, overview
from dashboard.pages import cycle_summary as summaries
from dashboard.pages.compare import Flips, is_graded
from db.queries import Reader
from db.tables import RunInputs
from db.tracker import Tracker
from evals.stats.paired_comparison import paired_test
from tests.dashboard.page_requests import page_html
from tests.db.seeded import TASKS, result_of

CLEAN = [index % (5 if index < 50 else 4) == 0 for index in range(500)]  # the first are harder


def measured(suite: str, passes: list[bool], value: float | None = None) -> dict:
    row = result_of(suite, passes)
    if value is not None:
        row["metrics"][TASKS[suite][1]]["value"] = value
    return row


def stages(tracker: Tracker, suite: str, *of_stages: list[bool], values: tuple = (None, None, None)) -> None:
    project = tracker.project("x", "/x", "b")
    checkpoint, opened = tracker.checkpoint(project, "base", "/b"), tracker.open_cycle(project)
    kinds = {"base": "eval", "midtrained": "midtrain", "recovered": "distill"}
    for (role, kind), passes, value in zip(kinds.items(), of_stages, values, strict=True):
        run = tracker.start_run(project, kind, opened.id)
        if role != "base":
            checkpoint = tracker.checkpoint(project, role, role, parent=checkpoint, run=run, cycle=opened.id)
        tracker.evaluation(checkpoint, run, measured(suite, passes, value))
        tracker.finish_run(run, "done")


def tile(reader: Reader, suite: str = "behaviour") -> tuple[str, str]:
    (trail,) = summaries.trails(reader.cycles(1), reader.stages(1))
    return overview.recovery_tile(reader, trail, suite, "of {:.3f}")


def retained(reader: Reader) -> tuple[str, str]:
    (opened,) = reader.cycles(1)
    (trail,) = summaries.trails([opened], reader.stages(1))
    return overview.retained_tile(reader, trail, opened)


def text(page, reader: Reader) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page_html(page, reader))).split())


def test_nothing_is_lost_where_no_answer_changed(tracker, written):
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN[:200])
    assert tile(written) == ("nothing lost", "by mid-training")
    shown = text(cycle, written)
    assert re.search(r"ifeval lab behaviour .* \+0\.000 ", shown[shown.index("Change by distillation") :])
    kinds = shown[shown.index("Change from clean") :]
    assert re.findall(r"[+−]\d\.\d{3}", kinds.partition("Settings")[0]) == ["+0.000", "+0.000"]


def test_a_loss_is_of_the_items_that_all_answered(tracker, written):
    half = [passed and index % 2 == 1 for index, passed in enumerate(CLEAN[:50])]
    stages(tracker, "behaviour", CLEAN, half, CLEAN[:200])
    assert tile(written) == (
        "100 %", f"of {(sum(CLEAN[:50]) - sum(half)) / 50:.3f}, on the 50 items that all three answered"
    )  # fmt: skip
    shown = text(cycle, written)
    kinds = shown[shown.index("Change from clean") :]
    assert kinds.index("keywords:frequency") < kinds.index("punctuation:no_comma"), "all of the first kind were lost"


def test_prompts_of_other_data_are_not_forgotten(tracker, written):
    """They may have the same keys."""
    stages(tracker, "behaviour", CLEAN, CLEAN, [not passed for passed in CLEAN[:200]])
    (opened,) = written.cycles(1)
    assert overview.count_forgotten(written, opened) == (sum(CLEAN[:200]), sum(CLEAN[:200]))
    other = measured("behaviour", [False] * 200) | {"data": "public"}
    tracker.evaluation(opened.recovered.checkpoint_id, opened.recovered.checkpoint.run_id, other)
    assert overview.count_forgotten(written, written.cycles(1)[0]) is None


def test_a_difference_that_may_be_chance_is_no_loss(tracker, written):
    lost = list(CLEAN)
    lost[CLEAN.index(True)] = False
    stages(tracker, "behaviour", CLEAN, lost, CLEAN)
    assert tile(written) == ("–", "0.002 lost, within the confidence interval")


def test_of_grades_the_interval_of_the_start_decides(tracker, written):
    stages(tracker, "behaviour", *[CLEAN[:100]] * 3, values=(0.9, 0.1, 0.5))
    assert tile(written) == ("50 %", "of 0.800")


def test_what_it_knew_before_is_kept_of_the_items_that_both_answered(tracker, written):
    stages(tracker, "retention", CLEAN, CLEAN[:50], CLEAN[:200])
    share = sum(CLEAN[:200]) / 200
    text = f"{share:.3f} of the clean model's {share:.3f}, on the 200 items that both answered"
    assert retained(written) == ("100 %", text)


def test_the_table_of_cycles_subtracts_scores_of_the_same_items_alone(tracker, written):
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN[:200])
    assert not re.search(r"[+−]\d\.\d{3}", text(cycle_list, written))


@pytest.mark.parametrize(
    ("settings", "are_the_same"),
    [({}, True), ({"of": 500}, True), ({"content": "ab"}, False), ({"part": "final"}, False), ({"of": 900}, False)],
)
def test_scores_of_as_many_other_items_are_not_subtracted(tracker, written, settings, are_the_same):
    """Of another file of equal size, of another part of the items, or of blocks of more prompts."""
    for suite in ("behaviour", "retention"):
        stages(tracker, suite, CLEAN, CLEAN, CLEAN)
        recovered = written.stages(1)[-1].checkpoint
        evaluation = measured(suite, [not passed for passed in CLEAN]) | {"settings": settings}
        tracker.evaluation(recovered.id, recovered.run_id, evaluation)
    shown = re.findall(r"[+−]\d\.\d{3}", text(cycle_list, written))
    assert len(shown) == (2 if are_the_same else 0)


@pytest.mark.parametrize("content", ["ab", "cd"])
def test_of_several_tasks_what_is_kept_is_of_the_same_files(tracker, written, content):
    stages(tracker, "retention", CLEAN, CLEAN, CLEAN)
    runs = reversed(written.runs(1))
    for stage, run, file in zip(written.stages(1), runs, ("ab", "ab", content), strict=True):
        evaluation = measured("retention", CLEAN) | {"task": "house", "settings": {"content": file}}
        tracker.evaluation(stage.checkpoint.id, run.id, evaluation)
    assert retained(written)[0] == ("100 %" if content == "ab" else "–")


def test_stages_without_a_common_item_are_not_compared(tracker, written):
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN[:25], values=(0.9, 0.1, 0.5))
    assert tile(written) == ("–", "not measured on the same items")


def test_where_nothing_was_learned_nothing_is_kept(tracker, written):
    stages(tracker, "knowledge", [True, True], [True, False], [True, True])
    assert tile(written, "knowledge") == ("–", "mid-training added nothing")


@given(lost=st.integers(0, 40), gained=st.integers(0, 40))
def test_a_loss_is_shown_where_the_paired_interval_excludes_none(lost, gained):
    flips = Flips(200, lost, gained)
    assume(abs(flips.p_value / 2 - 0.05) > 0.003)
    before = {str(key): key < lost for key in range(200)}
    after = {str(key): lost <= key < lost + gained for key in range(200)}
    assert flips.shows_loss == (paired_test(before, after).high < 0)


@pytest.mark.parametrize("other", ["public", "lab"])
def test_equal_keys_of_other_data_are_other_items(tracker, written, other):
    stages(tracker, "behaviour", CLEAN, CLEAN, CLEAN)
    damaged = written.stages(1)[1].checkpoint
    tracker.evaluation(damaged.id, damaged.run_id, measured("behaviour", [False] * 500) | {"data": other})
    assert tile(written)[0] == ("–" if other == "public" else "100 %")


def test_the_bars_of_a_kind_are_of_one_set_of_prompts(tracker, written):
    """Whatever else a model was asked, and when."""
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN[:200])
    shown = text(cycle, written)
    kinds = shown[shown.index("Change from clean") :].partition("Settings")[0]
    base = written.checkpoints(1)[0].id
    for prompts in ("lab", "other.jsonl"):
        tracker.evaluation(base, None, measured("behaviour", [False] * 20) | {"data": prompts})
    for checkpoint in written.checkpoints(1)[1:]:
        tracker.evaluation(checkpoint.id, None, measured("behaviour", [False] * 20) | {"data": "other.jsonl"})
    shown = text(cycle, written)
    assert shown[shown.index("Change from clean") :].partition("Settings")[0] == kinds


def test_settings_are_those_of_the_attempt_that_the_cycle_ended_with(tracker, written):
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN[:200])
    *_, student, _ = written.checkpoints(1)
    for number, settings in enumerate(({"distill.steps": 999}, {"distill.rows": 8}), 1):
        inputs = RunInputs(given=settings)
        run = tracker.start_run(1, "distill", 1, settings={"distill": {"rows": 8}}, inputs=inputs)
        tracker.checkpoint(1, "recovered", f"attempt-{number}", parent=student.id, run=run, cycle=1)
        tracker.finish_run(run, "done")
    shown = text(cycle, written)
    assert "distill.rows 8" in shown
    assert "999" not in shown


def test_the_last_finished_cycle_is_shown_with_its_own_clean_score(tracker, written):
    stages(tracker, "behaviour", CLEAN, CLEAN[:50], CLEAN)
    *_, recovered = written.checkpoints(1)
    tracker.promote(1, 1, recovered.id, "rejected", "gate", "short of its limit")
    opened = tracker.open_cycle(1)
    run = tracker.start_run(1, "eval", opened.id)
    tracker.evaluation(written.checkpoints(1)[0].id, run, measured("behaviour", [True] * 20))
    shown = text(overview, written)
    assert "Cycle 1" in shown
    assert "(clean" not in shown


def test_a_task_whose_items_have_one_key_twice_is_not_graded():
    assert not is_graded(0.75, 40, [True] * 30 + [False] * 9)
    assert is_graded(0.75, 40, [True] * 20 + [False] * 20)
    assert not is_graded(0.5, 4, [True, False, True, False])
    assert is_graded(None, 4, [True])
