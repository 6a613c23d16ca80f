"""The cycle page lists the kept checkpoints of probes, and says that another than the last may be promoted."""

from dashboard.html_report import report
from dashboard.pages import cycle, lineage
from tests.dashboard.page_requests import page_html
from tests.db.seeded import seed, try_again


def test_the_kept_checkpoints_of_a_cycle_are_listed_with_their_probes(writable_record) -> None:
    tracker, reader = writable_record
    seeded = seed(tracker)
    assert "Choice of checkpoints" not in page_html(cycle, reader)
    try_again(tracker, seeded, kept_steps=(20, 40))
    run = max(one.id for one in reader.runs(seeded.project))
    html = page_html(cycle, reader)
    table = html[html.index("<caption>Kept checkpoints") :].partition("</table>")[0]
    first, second, last = table.split("<tr>")[2:]
    assert f"<bdi>run:{run}/step:20</bdi>" in first
    assert "0.520" in first
    assert "0.940" in first
    assert f"<bdi>run:{run}/step:40</bdi>" in second
    assert "<bdi>cycle:3/recovered</bdi>" in last
    assert f"recover promote run:{run}/step:20 --reason TEXT" in html
    attempts = html[html.index("<caption>Attempts") :].partition("</table>")[0]
    assert "/step:" not in attempts
    (project,) = reader.projects()
    assert "Kept checkpoints" in report(reader, project, 3)
    assert f"<bdi>run:{run}/step:40</bdi>" in page_html(lineage, reader)


def test_a_promoted_one_stands_for_its_cycle(writable_record) -> None:
    tracker, reader = writable_record
    seeded = seed(tracker)
    try_again(tracker, seeded, kept_steps=(20,))
    run = max(one.id for one in reader.runs(seeded.project))
    [kept] = reader.probe_checkpoints(run)
    tracker.promote(seeded.project, seeded.cycles[-1], kept.id, "promoted", "ada", "it kept more")
    named = reader.cycle_checkpoint(seeded.project, 3)
    assert named is not None
    assert (named.id, named.reference) == (kept.id, "cycle:3/recovered")
    end = reader.run_checkpoint(run)
    assert end is not None
    assert end.reference == f"run:{run}"
    assert f"<bdi>run:{run}</bdi>" in page_html(cycle, reader)
