"""The pages' content, asked for as a browser does: what the address says is what is shown."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.actions import Actions
from dashboard.pages import compare, cycle, cycles, lineage
from dashboard.pages import live_run as live
from dashboard.pages import rollout_tokens as tokens
from dashboard.pages.cycle_sections import gate
from dashboard.ui import components as parts
from dashboard.ui.polling import NotThere
from db import views
from db.queries import Reader
from db.types import now
from tests.dashboard.looking import asked, content, words
from tests.db.seeded import seed, under_way


def numbers_in_order(html: str) -> list[int]:
    return [int(number) for number in re.findall(r">Cycle (\d+)</a></th>", html)]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("", [3, 2, 1]),
        ("?sort=oldest", [1, 2, 3]),
        ("?sort=behaviour", [2, 1, 3]),
        ("?status=rejected", [3]),
        ("?status=promoted&documents=Q2", [2]),
        ("?sort=nonsense", [3, 2, 1]),
    ],
)
def test_cycles_are_sorted_and_filtered_by_the_address(reader: Reader, search: str, expected: list[int]) -> None:
    assert numbers_in_order(words(cycles, reader, search)) == expected


def test_no_cycle_like_that_is_said(reader: Reader) -> None:
    assert "No cycle is like that" in words(cycles, reader, "?documents=nowhere")


def test_a_cycle_shows_the_gate_the_kinds_and_what_changed(reader: Reader) -> None:
    told = words(cycle, reader, "?number=3")
    assert "Cycle 3 rejected" in told
    assert 'href="cycle?number=2"' in told
    assert "−0.120" in told  # how bad the behaviour could still be
    assert "−0.030" in told
    assert "punctuation:no_comma" in told
    assert "12 documents, 36.1 kB" in told
    assert "midtrain.rows" in told
    assert "midtrain.lr" not in told, "only what differs"
    assert "Settings that differ" not in words(cycle, reader, "?number=1"), "nothing came before"
    assert "Cycle 3" in words(cycle, reader), "the latest, unless the address says which"


def test_what_is_not_there_is_said(reader: Reader) -> None:
    for page, search in ((cycle, "?number=9"), (cycle, "?number=x"), (lineage, "?checkpoint=99"), (live, "")):
        with pytest.raises(NotThere):
            content(page, reader, search)


def test_what_was_not_handed_in_is_hidden(reader: Reader) -> None:
    may = Actions(
        note=lambda text, who, *, cycle=None, checkpoint=None: None, promote=lambda checkpoint, who, why: None
    )
    assert [part["visible"] for part in content(cycle, reader)[-2:]] == [False, False]
    assert [part["visible"] for part in content(cycle, reader, actions=may)[-2:]] == [True, True]
    assert [part["visible"] for part in content(lineage, reader, actions=may)[-2:]] == [False, False], "none is chosen"
    assert [part["visible"] for part in content(lineage, reader, "?checkpoint=1", may)[-2:]] == [True, True]


def test_what_is_in_use_cannot_be_rejected_on_its_cycle(reader: Reader) -> None:
    may = Actions(promote=lambda checkpoint, who, why: None)
    shown = [content(cycle, reader, f"?number={number}", may)[-1]["visible"] for number in (1, 2, 3)]
    assert shown == [True, False, True]


def test_compare_names_what_has_to_be_measured(told) -> None:
    tracker, reader = told
    seeded = seed(tracker, cycles=1)
    opened = tracker.open_cycle(seeded.project)
    new = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.recovered[0], cycle=opened.id)
    for search in (f"?a={seeded.base}&b={new}", f"?a={seeded.base}&b={seeded.recovered[0]}&c={new}"):
        shown = words(compare, reader, search)
        assert "<pre>recover eval <bdi>cycle:2/midtrained</bdi></pre>" in shown
        assert shown.index("<form") < shown.index("recover eval")
    assert "Choose two of them." in words(compare, reader, f"?a={seeded.base}&b={seeded.base}")
    assert "recover eval" not in words(compare, reader)


def test_compare_says_what_to_do_with_one_checkpoint_or_none(told) -> None:
    tracker, reader = told
    project = tracker.project("bare", "/bare", "lab")
    tracker.checkpoint(project, "base", "/models/base")
    with pytest.raises(NotThere, match="recover eval <bdi>base</bdi>"):
        content(compare, reader)
    tracker.checkpoint(project, "external", "/my models/ft")
    with pytest.raises(NotThere, match="recover eval <bdi>&#x27;/my models/ft&#x27;</bdi>"):
        content(compare, reader)
    seed(tracker, cycles=0)
    shown = words(compare, reader)
    assert "<form" in shown
    assert "nothing to compare the clean model with" in shown
    assert "recover eval" not in shown


def test_compare_says_what_was_lost_and_how_surely(reader: Reader, record) -> None:
    base, *_, last = (one.id for one in reader.checkpoints(1))
    told = words(compare, reader, f"?a={base}&b={last}&show=lost")
    assert "cycle:3/recovered" in told
    lost = int(re.search(r"−(\d+) / \+\d+ <small>p", told)[1])  # type: ignore[index]
    assert f"{lost} of 40 items" in told
    assert told.count('class="tick no"') >= lost
    assert "<mark>no, it is not</mark>" in told


@pytest.mark.parametrize(
    ("search", "found"),
    [("&kind=keywords:frequency", "20 of 40"), ("&text=question 7?", "1 of 40"), ("&text=nowhere", "0 of 40")],
)
def test_answers_are_filtered_by_kind_and_words(reader: Reader, search: str, found: str) -> None:
    assert f"{found} items" in words(compare, reader, f"?a=1&b=3{search}")


def test_answers_come_in_pages(reader: Reader) -> None:
    first, last = (words(compare, reader, f"?a=1&b=3&page={page}") for page in (1, 99))
    assert "page 1 of 3" in first
    assert "Question 0?" in first
    assert "page 3 of 3" in last
    assert "Question 39?" in last


def test_lineage_puts_what_was_rolled_back_aside(reader: Reader) -> None:
    told = words(lineage, reader)
    assert told.count("<circle") == 7
    assert told.count('class="recovered aside"') == 2, "a dot and its line"
    assert told.index("cycle:3/recovered") < told.index(">base<") or "<bdi>base</bdi>" in told
    lanes = lineage.lanes_of(reader.checkpoints(1), reader.current(1))
    assert list(lanes.values()).count(0) == 5
    chosen = words(lineage, reader, "?checkpoint=3")
    assert "run-" in chosen
    assert 'aria-current="true"' in chosen


def test_tokens_carry_what_both_models_would_have_said(reader: Reader) -> None:
    told = words(tokens, reader, "?step=20")
    assert "Rollouts of step 20" in told
    assert "Half of the divergence lies in" in told
    assert "␣there 0.20" in told
    assert "␣you 0.10" in told
    assert told.count('class="token"') == 18
    assert '<option value="20" selected>' in told


def test_tokens_of_an_unknown_shape_are_left_out(told) -> None:
    tracker, reader = told
    run = tracker.start_run(seed(tracker, cycles=0).project, "distill")
    odd = [["a", 0.5, [], []], ["b"], "c", ["d", "far", [], []], ["e", None, [["x"], [1, None]], [["y", 0.5]]]]
    tracker.rollouts(run, 0, [{"prompt": "p", "text": "ae", "tokens": odd}, {"prompt": "p", "text": "plain"}])
    tracker.flush()
    assert [token.text for token in tokens.tokens_of(reader.rollouts(run)[0])] == ["a", "e"]
    assert "plain" in words(tokens, reader)


def test_a_run_under_way_says_how_long_still(told) -> None:
    tracker, reader = told
    cancel = Actions(cancel=lambda run: None)
    with under_way(tracker, seed(tracker)) as run:
        shown = words(live, reader)
        assert "step 12 of 48" in shown
        assert " left" in shown
        assert "21.0 GB" in shown
        assert "HELLO, dear world." in shown
        assert content(live, reader, actions=cancel)[-1]["visible"] is True
        mark = live.mark(asked(reader))
        tracker.step(run, 12, {"loss": 0.1})
        tracker.flush()
        assert live.mark(asked(reader)) != mark, "a new step is news"
        tracker.request_cancel(run)
        assert "asked to stop" in words(live, reader)
        assert content(live, reader, actions=cancel)[-1]["visible"] is False
    with pytest.raises(NotThere, match="is interrupted"):
        content(live, reader)


def test_a_run_that_fell_silent_is_not_said_to_go_on(told, monkeypatch) -> None:
    tracker, reader = told
    with under_way(tracker, seed(tracker)):
        monkeypatch.setattr(parts, "now", lambda: now() + timedelta(minutes=5))
        shown = words(live, reader)
        assert "seems to be gone" in shown
        assert " left" not in shown


def test_the_gate_has_a_row_for_each_bound_and_none_for_what_was_not_judged() -> None:
    bound = {"passed": True, "value": 0.9, "bound": 0.9, "limit": 0.8, "n": 100}
    verdict = {"passed": True, "outcome": "passed", "behaviour": bound, "knowledge": None, "earlier": {}}
    stage = views.Stage()
    first = views.Cycle(1, 4, "promoted", None, None, verdict, now(), now(), stage, stage, stage)
    later = replace(first, verdict=verdict | {"earlier": {"2": bound | {"passed": False}}})
    assert gate(first).count("<tr") == 2  # the head, and behaviour
    shown = gate(later)
    assert shown.count("<tr") == 3
    assert "Knowledge of cycle 2" in shown


def test_two_branches_from_one_checkpoint_are_not_drawn_as_one_line() -> None:
    def made(id: int, parent: int | None) -> views.Checkpoint:
        return views.Checkpoint(id, 1, 1, None, parent, "recovered", "full", "", None, None, None, now())

    tree = [made(1, None), made(2, 1), made(3, 2), made(4, 1), made(5, 4), made(6, 1)]
    lanes = lineage.lanes_of(tree, tree[2])
    assert [lanes[id] for id in (1, 2, 3)] == [0, 0, 0]
    assert lanes[4] == lanes[5] != 0, "a branch stays a line"
    assert lanes[6] not in (0, lanes[4]), "its line passes 4 and 5, which it does not come from"


def test_what_earlier_cycles_taught_is_asked_again(told) -> None:
    tracker, reader = told
    seeded = seed(tracker, cycles=2)
    asked_again = {"task": "cycle:1", "suite": "earlier", "data": "questions.jsonl", "seconds": 1.0, "settings": {}}
    for checkpoint, run, value in ((3, 5, 0.5), (4, 6, 0.75)):
        at = (seeded.midtrained, seeded.recovered)[checkpoint - 3][1]
        metrics = {"match": {"value": value, "n": 40}}
        tracker.evaluation(at, run, asked_again | {"metrics": metrics, "items": []})
    tracker.flush()
    shown = words(cycle, reader, "?number=2")
    row = shown[shown.index("What earlier cycles taught") :].partition("</section>")[0]
    for said in ("Cycle 1", "2026-q1", "0.900", "0.500", "0.750"):
        assert said in row
    assert "What earlier cycles taught" not in words(cycle, reader, "?number=1")
