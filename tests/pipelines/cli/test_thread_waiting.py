import os

import pytest

from pipelines.cli.thread_waiting import LONG, SHORT, wait_as_fits


@pytest.mark.parametrize(
    ("load", "turns"),
    [
        ("2.10 1.80 1.00 1/83 3744\n", LONG),  # this process alone, whatever ran a moment ago
        (f"0.00 0.00 0.00 {1 + (os.cpu_count() or 1)}/83 3744\n", SHORT),
        ("no numbers here", SHORT),
    ],
)
def test_threads_wait_long_only_where_nothing_else_runs(tmp_path, load, turns):
    (tmp_path / "loadavg").write_text(load)
    environment = {}
    wait_as_fits(environment, tmp_path / "loadavg")
    assert environment == {"GOMP_SPINCOUNT": turns}


def test_where_the_system_tells_no_load_they_wait_briefly(tmp_path):
    environment = {}
    wait_as_fits(environment, tmp_path / "none")
    assert environment == {"GOMP_SPINCOUNT": SHORT}


@pytest.mark.parametrize("said", [{"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_user_has_said_holds(said):
    environment = dict(said)
    wait_as_fits(environment)
    assert environment == said
