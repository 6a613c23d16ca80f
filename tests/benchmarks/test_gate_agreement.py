from pathlib import Path

import pytest

from benchmarks import gate_agreement


def test_the_gate_against_a_larger_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def run(number: int, *rest: object) -> dict[str, object]:
        done.append(number)
        row = {"cycle": number, "settings": "defaults", "gate": "passed", "large": "passed", "agree": number != 1}
        return row | {"difference": 0.0, "large_difference": 0.0, "asked": 400, "of": 2000, "seconds": 1}

    monkeypatch.setattr(gate_agreement, "run", run)
    monkeypatch.setattr(gate_agreement, "_clean_passes", lambda args: {})
    out = ["--out", str(tmp_path / "cycles.jsonl")]
    gate_agreement.main([*out, "--cycles", "2"])
    rows = gate_agreement.main([*out, "--cycles", "4"])
    assert done == [0, 1, 2, 3]  # the second command goes on with the third cycle
    assert gate_agreement.summary(rows).startswith(
        "3 of 4 agree (0.75, 95 %: 0.30 to 0.95), 0 decided the opposite; 4 passed "
    )


@pytest.mark.release
def test_a_cycle_is_judged_by_both_measurements(tmp_path: Path) -> None:
    settings = [
        "midtrain.max_steps=2", "midtrain.rows=4", "midtrain.generated_texts=24", "distill.steps=2", "distill.rows=4",
        "distill.prompts=24", "distill.max_new_tokens=48", "distill.probe_every=0",
    ]  # fmt: skip
    small = [argument for setting in settings for argument in ("--set", setting)]
    out = ["--out", str(tmp_path / "cycles.jsonl"), "--size", "quick", "--items", "12", "--large", "16"]
    [row] = gate_agreement.main([*out, "--cycles", "1", *small])
    assert (row["asked"], row["of"]) == (12, 12)
    assert row["agree"] == ((row["gate"] == "passed") == (row["large"] == "passed"))
