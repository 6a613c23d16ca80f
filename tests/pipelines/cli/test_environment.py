import os
from pathlib import Path

import pytest

from pipelines.cli import environment
from pipelines.cli.environment import LONG_WAIT, SHORT_WAIT, set_thread_waiting, use_huge_pages


@pytest.mark.parametrize(
    ("load", "turns"),
    [
        ("2.10 1.80 1.00 1/83 3744\n", LONG_WAIT),  # only this process runs now, whatever ran before
        (f"0.00 0.00 0.00 {1 + (os.cpu_count() or 1)}/83 3744\n", SHORT_WAIT),
        ("no numbers here", SHORT_WAIT),
        (None, SHORT_WAIT),  # there is no such file
    ],
)
def test_threads_wait_long_only_where_nothing_else_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: str | None, turns: str
) -> None:
    if load is not None:
        (tmp_path / "loadavg").write_text(load)
    monkeypatch.setattr(environment, "LOAD_FILE", tmp_path / "loadavg")
    monkeypatch.setattr(os, "environ", {})
    set_thread_waiting()
    assert os.environ == {"GOMP_SPINCOUNT": turns}


@pytest.mark.parametrize("user_setting", [{"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_user_s_own_setting_stays(monkeypatch: pytest.MonkeyPatch, user_setting: dict[str, str]) -> None:
    monkeypatch.setattr(os, "environ", user_setting | {"THP_MEM_ALLOC_ENABLE": "0"})
    set_thread_waiting()
    use_huge_pages()
    assert os.environ == user_setting | {"THP_MEM_ALLOC_ENABLE": "0"}
