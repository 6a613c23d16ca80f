"""An open page: only what reads differently is sent again, and a run's numbers are read once."""

import gradio as gr

from dashboard.ui import polling as follow
from dashboard.ui.polling import NotThere
from dashboard.ui.run_metrics import RUNS_KEPT, Numbers
from tests.dashboard.looking import asked, said, site
from tests.db.seeded import seed


def test_only_the_parts_that_say_something_else_are_sent(told):
    tracker, reader = told
    seeded = seed(tracker, cycles=1)

    def look(seen):
        def fill(_):
            return ["the same", f"{len(reader.notes(seeded.project))} notes", None]

        return follow.refreshed(site(reader), "", 4, fill, follow.changes, seen, said())

    seen, *first = look(None)
    assert first[1]["value"] == "0 notes"
    assert first[2] == gr.update(visible=False)
    tracker.note(seeded.project, "so", "ada", cycle=seeded.cycles[0])
    seen, top, second, third = look(seen)
    assert (top, third) == (gr.skip(), gr.skip())
    assert second["value"] == "1 notes"
    assert look(seen) == [gr.skip()] * 4


def test_what_is_not_there_leaves_a_way_back(reader):
    def fill(_):
        raise NotThere("<h1>There is no such thing</h1>")

    _, top, rest = follow.refreshed(site(reader), "cycle", 3, fill, follow.changes, None, said())
    assert "There is no such thing" in top["value"]
    assert 'href="cycles"' in top["value"]
    assert rest == gr.update(visible=False)


def test_a_number_in_the_address_is_a_number_or_nothing(reader):
    numbers = [asked(reader, f"?n={text}").number("n") for text in ("7", "-7", "٣", "1e3", "", "9" * 30, "7&n=8")]
    assert numbers == [7, None, None, None, None, None, 8]


def test_numbers_are_read_from_where_the_last_look_ended(told):
    tracker, reader = told
    seeded = seed(tracker, cycles=1, steps=5)
    run, looks = seeded.midtrain_runs[0], []
    points = reader.points
    reader.points = lambda run, after: looks.append(after) or points(run, after=after)
    numbers = Numbers(reader)
    assert [step for step, _ in numbers.of(run)["loss"]] == [0, 1, 2, 3, 4]
    tracker.step(run, 5, {"loss": 1.0})
    tracker.flush()
    assert [step for step, _ in numbers.of(run)["loss"]] == [0, 1, 2, 3, 4, 5]
    assert looks == [-1, 4]
    for other in range(100, 100 + RUNS_KEPT):
        numbers.of(other)
    numbers.of(run)
    assert looks[-1] == -1, "the memory it takes is bounded"
