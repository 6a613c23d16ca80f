from pathlib import Path

import pytest

from tests.chats import write_jsonl
from tests.e2e.command_line import recover


@pytest.mark.slow
def test_two_models_are_compared_item_by_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_BENCHMARK_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "piqa"
    folder.mkdir(parents=True)
    rows = [{"goal": f"Count to {i}", "sol1": "One, two.", "sol2": "Red.", "label": i % 2} for i in range(6)]
    write_jsonl(folder / "validation.jsonl", rows)
    [evaluation] = recover(tmp_path, "eval", "base", "--suite", "piqa", "--limit", 4).ended(0).data["evaluations"]
    assert [evaluation[name] for name in ("task", "suite", "data")] == ["piqa", "piqa", "local"]
    assert evaluation["metrics"]["acc"]["n"] == 4
    compared = recover(tmp_path, "compare", "base", "base", "--suite", "piqa", "--limit", 4)
    [task] = compared.data["tasks"]
    assert [task[name] for name in ("suite", "n", "lost", "gained")] == ["piqa", 4, 0, 0]
    assert task["forgetting"] == {"first": 0.0, "second": 0.0, "n": 4}
    assert "Reusing the stored results" in compared.stderr
