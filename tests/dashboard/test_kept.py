"""Ten who look at the same page cost one look; what changed, or grew old, is looked at anew."""

from dashboard import follow, overview
from dashboard.kept import Kept
from tests.dashboard.looking import said, site
from tests.db.seeded import seed


def test_what_was_made_is_given_again_until_it_is_old():
    made = iter(range(10))
    kept, brief = Kept(), Kept(seconds=0.0)
    assert [kept.of("a", lambda: next(made)) for _ in range(2)] == [0, 0]
    assert kept.of("b", lambda: next(made)) == 1
    assert [brief.of("a", lambda: next(made)) for _ in range(2)] == [2, 3]


def test_only_so_much_is_kept():
    kept = Kept(most=2)
    for key in "abc":
        kept.of(key, lambda: [key])  # noqa: B023
    assert kept.of("c", list) == ["c"]
    assert kept.of("a", lambda: ["anew"]) == ["anew"]


def test_a_second_viewer_is_told_the_same_without_the_record_being_read_for_it(told):
    tracker, reader = told
    seeded = seed(tracker, cycles=1)
    looks, shared = [], site(reader)

    def fill(asked):
        looks.append(asked.query)
        return overview.fill(asked)

    def look(search=""):
        return follow.refreshed(shared, "", 6, fill, follow.changes, None, said(search))

    first, second = look(), look()
    assert first == second
    assert len(looks) == 1
    look("?another=address")
    assert len(looks) == 2
    tracker.open_cycle(seeded.project)
    assert "Cycle 2 is under way" in look()[1]["value"]
