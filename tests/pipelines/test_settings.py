from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.settings import SMALL, Settings, defaults_for, differences, merged, read_toml, rows_beside, settled
from recovery.errors import RecoverError


def test_small_models_train_all_weights_and_large_ones_an_adapter() -> None:
    assert defaults_for(SMALL).lora_rank == 0
    assert defaults_for(SMALL + 1).lora_rank > 0


def test_bfloat16_is_the_default_only_where_there_are_units_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for has in (True, False):
        monkeypatch.setattr("recovery.models.precision.has_bfloat16", lambda has=has: has)
        assert defaults_for(SMALL).bf16 is defaults_for(SMALL + 1).bf16 is has


def test_what_is_written_in_the_project_replaces_the_default_and_is_announced(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("lora_rank = 0\n[distill]\nlearning_rate = 1\nmax_steps = 7\n")
    settings = merged(Settings(), read_toml(tmp_path))
    assert settings.distill.learning_rate == 1.0
    assert differences(settings, Settings()) == [
        "lora_rank = 0 (default 128)",
        "distill.learning_rate = 1.0 (default 0.0001)",
        "distill.max_steps = 7 (default None)",
    ]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"distil": {}}, "no setting 'distil'"),
        ({"distill": {"rate": 1}}, "no setting distill.'rate'"),
        ({"distill": 3}, r"write it as a \[distill\] table"),
        ({"distill": {"rows": 2.5}}, "distill.rows should be of the kind int"),
        ({"distill": {"rows": 0}}, "distill.rows should be at least 1"),
        ({"distill": {"max_steps": "ten"}}, "distill.max_steps should be of the kind int"),
        ({"gate": {"behaviour_margin": -1.0}}, "at least 0"),
        ({"gate": {"behaviour_margin": float("nan")}}, "behaviour_margin should be a number, not nan"),
        ({"midtrain": {"learning_rate": float("inf")}}, "learning_rate should be a number, not inf"),
        ({"bf16": 1}, "bf16 should be of the kind bool"),
        ({"lora_rank": True}, "lora_rank should be of the kind int"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_sentence(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecoverError, match=sentence):
        merged(Settings(), wanted)


@pytest.mark.parametrize(
    ("dotted", "sentence"),
    [
        ("base=foo", "base is not changed by --set: give --base REF"),
        ("db=x.db", "RECOVER_DB"),
        ("midtrain.epochs=0", "would read nothing"),
    ],
)
def test_what_no_command_could_mean_is_refused(dotted: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match=sentence):
        settled(SMALL, tmp_path, {}, [dotted])


def test_broken_toml_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("base = ")
    with pytest.raises(RecoverError, match="not valid TOML"):
        read_toml(tmp_path)


def test_what_is_read_again_must_leave_room_for_the_new_documents(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="leave nothing to the new documents"):
        settled(SMALL, tmp_path, {"midtrain": {"rehearse": 0.6, "recollect": 0.4}})
    wanted, usual = settled(SMALL, tmp_path, {"midtrain": {"recollect": 0.5}})
    assert (wanted.midtrain.recollect, usual.midtrain.rehearse) == (0.5, 0.3)
    with pytest.raises(RecoverError, match="recollect is a share"):
        settled(SMALL, tmp_path, {"midtrain": {"recollect": 1.0}})


@given(rows=st.integers(1, 64), first=st.floats(0, 0.98), second=st.floats(0, 0.98))
def test_the_new_documents_always_have_a_row(rows: int, first: float, second: float) -> None:
    assume(first + second < 1)
    taken = rows_beside(rows, (first, second))
    assert sum(taken) < rows
    assert all(abs(count - share * rows) <= 1 for count, share in zip(taken, (first, second), strict=True))


def test_a_share_however_small_is_a_row() -> None:
    assert str(rows_beside(16, (0.0, 0.03))) == "[0, 1]"  # it is told in words, so it must be a number
