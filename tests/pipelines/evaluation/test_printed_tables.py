"""Tables of scores on a terminal."""

from pipelines.evaluation.printed_tables import scores_table


def test_the_table_has_the_four_measures_and_a_dash_for_what_was_not_measured() -> None:
    rows = {
        "clean": {"behaviour": 0.92, "knowledge": 0.02, "earlier": None, "retention": 1.0},
        "recovered": {"behaviour": 0.91, "knowledge": 0.98, "earlier": 0.97, "retention": 0.984},
    }
    assert scores_table(rows) == [
        "           instruction          new      earlier      what it",
        "             following    knowledge       cycles  knew before",
        "clean            0.920        0.020            -        1.000",
        "recovered        0.910        0.980        0.970        0.984",
    ]
