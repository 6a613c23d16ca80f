import random
import re
from datetime import timedelta
from html import unescape

import gradio as gr
import pytest

from dashboard.actions import Actions
from dashboard.pages import compare, cycle, lineage, live_run, playground, rollout_tokens
from dashboard.pages import cycle_list as cycles
from dashboard.pages.forms import SAVED
from dashboard.ui.caches import RunMetrics
from dashboard.ui.polling import NotFound
from db.queries import Reader
from db.tables import DONE, TOTAL, Checkpoint, RunInputs
from tests.dashboard.page_requests import browser_state, click_handlers, dashboard, page_html, page_request, parts
from tests.db.seeded import result, seed, training_settings, under_way


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
    numbers = re.findall(r">Cycle (\d+)</a></th>", page_html(cycles, reader, search))
    assert [int(number) for number in numbers] == expected


def test_a_cycle_shows_the_verdict_the_kinds_and_what_changed(reader: Reader) -> None:
    html = page_html(cycle, reader, "?number=3")
    assert "Cycle 3 not promoted" in html
    assert 'href="cycle?number=2"' in html
    assert "limit 0.870, with 95 % at least 0.780" in html
    assert "punctuation:no_comma" in html
    assert "12 documents, 36.1 kB" in html
    assert changed_settings(html) == ["midtrain.rows"], "only what differs"
    first = page_html(cycle, reader, "?number=1")
    assert "Settings changed" not in first, "the first cycle has no previous one"
    assert "All 7 settings" in first
    assert settings_in("Settings given", first) == ["midtrain.rows", "distill.steps"]
    assert "Cycle 3" in page_html(cycle, reader), "the latest is the default"


def test_a_cycle_and_the_live_view_say_what_the_steps_took_and_when_the_last_heartbeat_was(
    tracker, written, seeded
) -> None:
    seconds = {"rollout_seconds": 90.0, "teacher_seconds": 0.0, "update_seconds": 30.5}
    for step in range(2):
        tracker.step(seeded.distill_runs[1], step, seconds)
    with under_way(tracker, seeded) as run:
        tracker.step(run, 0, {"update_seconds": 5.0})
        tracker.flush()
        html = page_html(cycle, written, "?number=2")
        assert html.count("steps: ") == 1, "mid-training recorded no times"
        assert "steps: rollout 3 min, update 1 min 1 s" in html
        assert "steps: update 5 s" in page_html(live_run, written)
        at = written.run(run).heartbeat_at
        assert f"last heartbeat {at:%d %b %Y %H:%M} UTC" in page_html(cycle, written), "an open page is not drawn again"


def test_a_cycle_links_to_rollouts_only_of_runs_that_stored_some(tracker, written, seeded) -> None:
    with_rollouts, without = seeded.distill_runs[0], tracker.start_run(seeded.project, "distill", 1)
    tracker.flush()
    html = page_html(cycle, written, "?number=1")
    assert f'href="tokens?run={with_rollouts}"' in html
    assert f'href="tokens?run={without}"' not in html


def test_a_kind_of_instruction_links_to_its_answers(reader: Reader) -> None:
    html = page_html(cycle, reader, "?number=3")
    search = re.search(r'href="compare(\?[^"]*kind=punctuation%3Ano_comma[^"]*)"', html)
    assert search is not None
    answers = page_html(compare, reader, unescape(search[1]))
    assert re.search(r"Answers to behaviour · [^<]+", answers)


def test_the_kinds_of_an_open_cycle_link_to_what_it_has_measured_so_far(tracker, written, seeded) -> None:
    opened = tracker.open_cycle(seeded.project)
    new = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.recovered[1], cycle=opened.id)
    tracker.evaluation(new, None, result("behaviour", 0.5, random.Random(0)))
    assert f'href="compare?a={seeded.base}&amp;b={new}&amp;task=' in page_html(cycle, written)


def test_a_corpus_may_be_one_document(tracker, written, seeded) -> None:
    corpus = tracker.corpus("/notes", "0")
    tracker.documents(corpus, [{"name": "a.md", "hash": "a", "bytes": 1}])
    tracker.open_cycle(seeded.project, corpus)
    assert "1 document, 1 B." in page_html(cycle, written)


def changed_settings(html: str) -> list[str]:
    return settings_in("Settings changed since the previous cycle", html)


def settings_in(card: str, html: str) -> list[str]:
    card = html[html.index(card) :].partition("<details>")[0]
    return re.findall(r'<th scope="row"[^>]*><bdi[^>]*>([^<]*)</bdi>', card)


def test_a_cycle_without_distillation_shows_what_was_changed_by_hand_alone(tracker, written, seeded) -> None:
    again = training_settings(99) | {"lora_rank": 8, "distill": {"recipe": "grpo", "steps": 0, "warm_start": "off"}}
    number = tracker.open_cycle(seeded.project, None).id
    inputs = RunInputs(given={"lora_rank": 8, "midtrain.rows": 99, "distill.steps": 10})
    for kind in ("midtrain", "distill"):  # the model passed as it was: its copy is recorded as a distillation
        tracker.start_run(seeded.project, kind, number, again, inputs=inputs)
    tracker.flush()
    assert changed_settings(page_html(cycle, written)) == ["lora_rank", "midtrain.rows"]


def test_a_page_that_does_not_exist_raises_not_found(reader: Reader) -> None:
    for page, search in ((cycle, "?number=9"), (cycle, "?number=x"), (lineage, "?checkpoint=99"), (live_run, "")):
        with pytest.raises(NotFound):
            parts(page, reader, search)


def test_forms_without_their_action_or_subject_are_hidden(reader: Reader) -> None:
    actions = Actions(
        add_note=lambda text, user, *, cycle=None, checkpoint=None: None,
        decide=lambda checkpoint, user, reason, decision: None,
    )
    assert [part["visible"] for part in parts(cycle, reader)[-2:]] == [False, False]
    assert [part["visible"] for part in parts(cycle, reader, actions=actions)[-2:]] == [True, True]
    assert [part["visible"] for part in parts(lineage, reader, actions=actions)[-2:]] == [False, False], (
        "no checkpoint is selected"
    )
    assert [part["visible"] for part in parts(lineage, reader, "?checkpoint=1", actions)[-2:]] == [True, True]
    visible = [parts(cycle, reader, f"?number={number}", actions)[-1]["visible"] for number in (1, 2, 3)]
    assert visible == [True, False, True], "the current checkpoint is not decided about"


def test_compare_names_the_checkpoints_to_evaluate(tracker, written, seeded) -> None:
    opened = tracker.open_cycle(seeded.project)
    new = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.recovered[0], cycle=opened.id)
    for search in (f"?a={seeded.base}&b={new}", f"?a={seeded.base}&b={seeded.recovered[0]}&c={new}"):
        html = page_html(compare, written, search)
        assert "<pre><bdi>recover eval cycle:4/midtrained</bdi></pre>" in html
        assert html.index("<form") < html.index("recover eval")
    assert "Choose two checkpoints." in page_html(compare, written, f"?a={seeded.base}&b={seeded.base}")
    assert "recover eval" not in page_html(compare, written)


def test_compare_gives_no_test_of_graded_tasks(tracker, written, seeded) -> None:
    for checkpoint, value in ((seeded.base, 0.2), (seeded.recovered[0], 0.9)):
        graded = result("knowledge", value, random.Random(0)) | {"task": "answers"}
        items = [item | {"passed": False} for item in graded["items"]]
        tracker.evaluation(checkpoint, None, graded | {"items": items})
    html = page_html(compare, written, f"?a={seeded.base}&b={seeded.recovered[0]}")
    row = html[html.index("<bdi>answers</bdi>") :].split("</tr>")[0]
    assert "graded" in row
    assert "p =" not in row
    assert "p = " in html or "p &lt; " in html or "p < " in html, "tasks that pass or fail have their test"


def test_compare_pairs_no_items_of_a_file_that_has_changed(tracker, written, seeded) -> None:
    for checkpoint, content in ((seeded.base, "old"), (seeded.recovered[0], "new")):
        house = result("behaviour", 0.5, random.Random(0)) | {"task": "house", "data": "house.jsonl"}
        items = [item | {"answer": f"{content} answer"} for item in house["items"]]
        tracker.evaluation(checkpoint, None, house | {"items": items, "settings": {"content": content}})
    search = f"?a={seeded.base}&b={seeded.recovered[0]}&task=behaviour · house · house.jsonl"
    html = page_html(compare, written, search)
    row = html[html.index("<bdi>house</bdi>") :].split("</tr>")[0]
    assert "the file has changed" in row
    assert "p =" not in row
    assert "old answer" in html
    assert "new answer" not in html


def test_compare_says_what_to_do_with_one_checkpoint_or_none(tracker, written) -> None:
    project = tracker.project("bare", "/bare", "lab")
    tracker.checkpoint(project, "base", "/models/base")
    with pytest.raises(NotFound, match="recover eval base"):
        parts(compare, written)
    tracker.checkpoint(project, "external", "/my models/ft")
    with pytest.raises(NotFound, match="recover eval '/my models/ft'"):
        parts(compare, written)
    seed(tracker, cycles=0)
    html = page_html(compare, written)
    assert "<form" in html
    assert "no other checkpoint to compare with" in html
    assert "recover eval" not in html


def test_checkpoints_measured_by_a_public_benchmark_alone_are_compared(tracker, written) -> None:
    project = tracker.project("bare", "/bare", "lab")
    ends = [tracker.checkpoint(project, "base", "/base"), tracker.checkpoint(project, "external", "/ft")]
    public = {"suite": "gsm8k", "task": "gsm8k", "data": "lm-eval"}
    for checkpoint, part in zip(ends, ("probe", ""), strict=True):
        measured = result("retention", 0.5, random.Random(0)) | public | {"settings": {"part": part}}
        tracker.evaluation(checkpoint, None, measured)
    assert "<pre><bdi>recover eval base</bdi></pre>" in page_html(compare, written), "probes alone do not count"
    tracker.evaluation(ends[0], None, result("retention", 0.5, random.Random(0)) | public)
    html = page_html(compare, written)
    assert "Answers to gsm8k" in html
    assert "recover eval" not in html


def test_compare_shows_lost_items_and_their_p_value(reader: Reader) -> None:
    base, *_, last = (one.id for one in reader.checkpoints(1))
    html = page_html(compare, reader, f"?a={base}&b={last}&show=lost")
    assert "cycle:3/recovered" in html
    lost = int(re.search(r"−(\d+) / \+\d+ <small>p", html)[1])  # type: ignore[index]
    assert f"{lost} of 40 items" in html
    assert html.count('class="tick no"') >= lost
    assert "<mark>no, it is not</mark>" in html


def test_an_answer_beside_none_is_not_marked(tracker, written, seeded) -> None:
    for checkpoint, n in ((seeded.base, 40), (seeded.recovered[0], 20)):
        house = result("behaviour", 1.0, random.Random(0), n=n) | {"task": "house"}
        tracker.evaluation(checkpoint, None, house)
    search = f"?a={seeded.base}&b={seeded.recovered[0]}&task=behaviour · house · lab&page=3"
    html = page_html(compare, written, search)
    assert "Question 39?" in html
    assert "<mark>" not in html


def test_answers_come_in_pages_and_are_filtered(reader: Reader) -> None:
    first, last = (page_html(compare, reader, f"?a=1&b=3&page={page}") for page in (1, 99))
    assert "page 1 of 3" in first
    assert "Question 0?" in first
    assert "page 3 of 3" in last
    assert "Question 39?" in last
    for text, count in (("question 6?", 1), ("question 7?", 0)):  # the kinds take turns
        html = page_html(compare, reader, f"?a=1&b=3&kind=keywords:frequency&text={text}")
        assert f"{count} of 40 items" in html


def test_lineage_draws_rolled_back_checkpoints_in_another_lane(reader: Reader) -> None:
    html = page_html(lineage, reader)
    assert html.count("<circle") == 7
    assert html.count('class="recovered aside"') == 2, "a dot and its line"
    lanes = lineage.lanes_of(reader.checkpoints(1), reader.current(1))
    assert list(lanes.values()).count(0) == 5
    selected = page_html(lineage, reader, "?checkpoint=3")
    assert "run-" in selected
    assert 'aria-current="true"' in selected


def test_the_page_of_a_checkpoint_says_that_its_weights_were_deleted(tracker, written, seeded) -> None:
    assert "deleted" not in page_html(lineage, written, f"?checkpoint={seeded.recovered[2]}")
    tracker.weights_deleted(seeded.recovered[2])
    at = written.checkpoint(seeded.recovered[2]).deleted_at
    html = page_html(lineage, written, f"?checkpoint={seeded.recovered[2]}")
    assert f"40 steps, deleted {at:%d %b %Y %H:%M} UTC" in html


def test_checkpoints_without_weights_cannot_be_tried(tracker, written, seeded) -> None:
    tracker.weights_deleted(seeded.recovered[2])
    choices = parts(playground, written)[2]["choices"]
    assert str(seeded.recovered[2]) not in dict(choices).values()
    assert str(seeded.recovered[1]) in dict(choices).values()
    search = f"?a={seeded.base}&b={seeded.recovered[2]}"
    html = page_html(compare, written, search, Actions(generate=lambda checkpoints, prompt: []))
    assert f'href="try?of={seeded.base}&amp;' in html, "beside one that can be"


def test_tokens_show_the_choices_of_both_models(reader: Reader) -> None:
    html = page_html(rollout_tokens, reader, "?step=20")
    assert "Rollouts of step 20" in html
    assert "Half of the divergence lies in" in html
    assert "␣there 0.20" in html
    assert "␣you 0.10" in html
    assert html.count('class="token"') == 18
    assert '<option value="20" selected>' in html


def test_tokens_of_an_unknown_shape_are_left_out(tracker, written) -> None:
    run = tracker.start_run(seed(tracker, cycles=0).project, "distill")
    odd = [
        ["a", 0.5, [], []],
        ["b"],
        "c",
        ["d", "far", [], []],
        ["e", None, [["x"], [1, None], ["z", "most"]], [["y", 0.5]]],
    ]
    tracker.rollouts(run, 0, [{"prompt": "p", "text": "ae", "tokens": odd}, {"prompt": "p", "text": "plain"}])
    tracker.flush()
    assert [token.text for token in rollout_tokens.tokens_of(written.rollouts(run)[0])] == ["a", "e"]
    assert "plain" in page_html(rollout_tokens, written)


def test_a_poll_reads_no_history(tracker, written, seeded, monkeypatch) -> None:
    """It would take longer the more there is of it."""
    run = tracker.start_run(seeded.project, "distill", seeded.cycles[0], {}, steps=80)
    points, of_counts = Reader.points, []
    monkeypatch.setattr(
        Reader, "points", lambda *of, names=None, **more: (names and of_counts.append(names)) or points(*of, **more)
    )
    page_html(live_run, written)
    assert not of_counts, "a training counts its steps"
    monkeypatch.setattr(Reader, "runs", None)
    assert live_run.version(page_request(written))[1] == written.run(run).heartbeat_at


def test_a_running_run_shows_the_remaining_time(tracker, written, seeded) -> None:
    cancel = Actions(cancel=lambda run: None)
    with under_way(tracker, seeded) as run:
        html = page_html(live_run, written)
        assert "step 12 of 48" in html
        assert " left" in html
        assert "HELLO, dear world." in html
        assert parts(live_run, written, actions=cancel)[-1]["visible"] is True
        version = live_run.version(page_request(written))
        tracker.step(run, 12, {"loss": 0.1})
        tracker.flush()
        assert live_run.version(page_request(written)) != version, "a new step changes the version"
        tracker.request_cancel(run)
        assert "stop requested" in page_html(live_run, written)
        assert parts(live_run, written, actions=cancel)[-1]["visible"] is False
    with pytest.raises(NotFound, match="is interrupted"):
        parts(live_run, written)


def test_a_click_is_refused_where_the_address_means_another_thing_by_then(tracker, written, seeded) -> None:
    done = list[object]()
    actions = Actions(
        add_note=lambda text, user, *, cycle=None, checkpoint=None: done.append(cycle),
        decide=lambda checkpoint, user, reason, decision: done.append(checkpoint),
        cancel=done.append,
    )

    with gr.Blocks() as app:
        cycle.page(app, site := dashboard(written, actions=actions))
        live_run.page(app, site)
    handlers = click_handlers(app)

    def click(shown: str) -> list[str]:
        """The messages to a note, a decision and a stop, each on the page of the latest cycle or run."""
        state, request = browser_state(shown=shown), gr.Request(username="")
        return [
            handlers["note-save"]("so", state, request)[0],
            handlers["promote"]("it reads well", state, request),
            handlers["stop"](True, state)[0],
        ]

    def shown() -> str:
        return " ".join(re.findall('data-shown="([^"]*)"', page_html(cycle, written) + page_html(live_run, written)))

    first = tracker.start_run(seeded.project, "midtrain")
    before = shown()
    assert before == f"cycle:3 checkpoint:{seeded.recovered[2]} run:{first}"
    assert click(before) == [SAVED, "Promoted.", f"Stop requested for run {first}."]
    assert done == [seeded.cycles[2], seeded.recovered[2], first]
    cycle_4 = tracker.open_cycle(seeded.project)
    other = tracker.start_run(seeded.project, "midtrain", cycle_4.id)
    tracker.checkpoint(seeded.project, "recovered", "again", cycle=cycle_4.id)
    for message, kind in zip(click(before), ("cycle", "checkpoint", "run"), strict=True):
        assert f"The page shows another {kind} now" in message
    assert len(done) == 3
    assert f"run:{other}" in shown()
    click(shown())
    assert len(done) == 6


def test_the_remaining_time_of_a_resumed_run_has_no_interruption_in_it(written, seeded) -> None:
    run = written.runs(seeded.project)[0]
    run.started_at = run.heartbeat_at - timedelta(hours=12)
    run.kind, run.steps, run.stale, run.cancel_requested_at = "distill", 100, False, None
    series = {"update_seconds": [(step, 60.0) for step in range(20)]}
    assert "about 1 h 20 min left of this run" in live_run.progress(run, 19, {}, series)
    probes = {"probe/seconds": [(9, 600.0), (19, 600.0)]}
    assert "about 2 h 40 min left of this run" in live_run.progress(run, 19, {}, series | probes)
    assert "about 2 d left of this run" in live_run.progress(run, 19, {}, {}), "before the record has their times"


def test_a_run_whose_process_is_gone_is_interrupted_and_takes_no_more_time(written, seeded) -> None:
    opened = next(one for one in written.cycles(seeded.project) if one.number == 3)
    run = written.runs(seeded.project)[0]
    run.status, run.stale, run.finished_at = "running", True, None
    run.started_at = run.heartbeat_at - timedelta(minutes=20)
    run.heartbeat_at, run.started_at = (at - timedelta(days=2) for at in (run.heartbeat_at, run.started_at))
    html = cycle.timeline(written, [run], [], opened, RunMetrics(written))
    assert "Interrupted</span>" in html
    assert "Running" not in html
    assert "20 min in total" in html


def test_the_live_page_shows_the_items_of_a_measurement(tracker, written, seeded) -> None:
    run = tracker.start_run(seeded.project, "eval")
    assert "in progress" in page_html(live_run, written)
    tracker.step(run, 0, {DONE: 1200, TOTAL: 2000})
    tracker.flush()
    assert "1,200 of 2,000 items of this task" in page_html(live_run, written)


def test_a_run_without_heartbeats_is_not_shown_as_running(tracker, written, seeded, monkeypatch) -> None:
    with under_way(tracker, seeded):
        monkeypatch.setattr("db.queries.STALE_SECONDS", 0.001)  # its last heartbeat is older than that
        html = page_html(live_run, written)
        assert "seems to have ended" in html
        assert " left" not in html


def test_two_branches_from_one_checkpoint_are_not_drawn_as_one_line() -> None:
    def checkpoint(id: int, parent: int | None) -> Checkpoint:
        return Checkpoint(id=id, parent_id=parent, role="recovered")

    tree = [checkpoint(*ids) for ids in ((1, None), (2, 1), (3, 2), (4, 1), (5, 4), (6, 1))]
    lanes = lineage.lanes_of(tree, tree[2])
    assert [lanes[id] for id in (1, 2, 3)] == [0, 0, 0]
    assert lanes[4] == lanes[5] != 0, "a branch stays a line"
    assert lanes[6] not in (0, lanes[4]), "its line passes 4 and 5, which are not its ancestors"


def test_knowledge_of_earlier_cycles_is_shown(tracker, written, seeded) -> None:
    again = {"task": "cycle:1", "suite": "earlier", "data": "questions.jsonl", "seconds": 1.0, "settings": {}}
    ends = ((seeded.midtrained[1], seeded.midtrain_runs[1], 0.5), (seeded.recovered[1], seeded.distill_runs[1], 0.75))
    for checkpoint, run, value in ends:
        tracker.evaluation(checkpoint, run, again | {"metrics": {"match": {"value": value, "n": 40}}})
    html = page_html(cycle, written, "?number=2")
    row = html[html.index("Knowledge of earlier cycles") :].partition("</section>")[0]
    for text in ("Cycle 1", "2026-q1", "0.900", "0.500", "0.750"):
        assert text in row
    assert "Knowledge of earlier cycles" not in page_html(cycle, written, "?number=1")
    judged = {"passed": False, "value": 0.65, "bound": 0.65, "limit": 0.665, "before": 0.7, "n": 20}
    verdict = written.cycles(seeded.project)[1].verdict | {"earlier": {"1": judged}}
    tracker.promote(seeded.project, seeded.cycles[1], seeded.recovered[1], "rejected", "gate", "ok", verdict)
    row = page_html(cycle, written, "?number=2").partition("At the end of that cycle")[2].partition("</table>")[0]
    assert "0.900" not in row, "of all questions, beside a limit on those asked both times"
    assert "0.700" in row
