import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.request import Request
from pipelines.settings.defaults import MEDIUM_MODEL_PARAMETERS, SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import (
    apply_overrides,
    change_recipe,
    differences,
    engine_of,
    flatten,
    resolve_settings,
)
from pipelines.settings.schema import Mix, Settings, split_rows
from pipelines.settings.sources import OTHER_VARIABLES, read_environment, read_toml
from recovery.errors import RecoverError

LARGE_MODEL_PARAMETERS = MEDIUM_MODEL_PARAMETERS + 1


@pytest.mark.parametrize("has_units", [True, False])
def test_only_large_models_train_an_adapter_and_bfloat16_needs_units(
    monkeypatch: pytest.MonkeyPatch, has_units: bool
) -> None:
    monkeypatch.setattr("recovery.hardware.has_bfloat16", lambda: has_units)
    for parameters in (SMALL_MODEL_PARAMETERS, MEDIUM_MODEL_PARAMETERS, LARGE_MODEL_PARAMETERS):
        default = defaults_for(parameters)
        assert (default.bf16, default.lora_rank > 0) == (has_units, parameters == LARGE_MODEL_PARAMETERS)


def test_settings_of_the_project_replace_defaults_and_are_announced(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text(
        "\ufefflora_rank = 0\n[midtrain.mix]\nanswers = 0.1\n[distill]\nlearning_rate = 1\nmax_steps = 7\n",
        encoding="utf-8",
    )
    settings = apply_overrides(Settings(), read_toml(tmp_path))
    assert settings.distill.learning_rate == 1.0
    assert differences(settings, Settings()) == [
        "lora_rank = 0 (default 128)",
        "midtrain.mix.answers = 0.1 (default 0.0)",
        "distill.learning_rate = 1.0 (default 0.0001)",
        "distill.max_steps = 7 (default none)",
    ]


def test_none_takes_a_limit_of_the_file_away(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("distill.max_steps = 20\nmidtrain.max_steps = 'none'")
    settings = resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {}, ["distill.max_steps=none"]).settings
    assert settings.distill.max_steps is settings.midtrain.max_steps is None
    with pytest.raises(RecoverError, match=r"distill\.steps must be a whole number of at least 0, not 'none'"):
        resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {}, ["distill.steps=none"])


def test_later_sources_replace_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recover.toml").write_text("[distill]\nsteps = 1\nrows = 1\nprompts = 1\nlearning_rate = 1\n")
    for name, value in {"STEPS": "2", "ROWS": "2", "PROMPTS": "2"}.items():
        monkeypatch.setenv(f"RECOVER_DISTILL__{name}", value)
    monkeypatch.setenv("RECOVER_AUTH", "no:setting")
    flags = {"distill": {"recipe": "grpo", "rows": 3, "prompts": 3}}
    settings, default, given = resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, flags, ["distill.prompts=4"])
    expected = {"recipe": "grpo", "learning_rate": 1.0, "steps": 2, "rows": 3, "prompts": 4}
    assert {name: getattr(settings.distill, name) for name in expected} == expected, "also before the recipe's own"
    assert given == {f"distill.{name}": value for name, value in expected.items()}
    assert change_recipe(default, "grpo", SMALL_MODEL_PARAMETERS) == defaults_for(SMALL_MODEL_PARAMETERS, "grpo")


def test_an_unknown_variable_is_a_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    ignored = {"RECOVER_DISTIL__STEPS": "2", "RECOVER_DISTILL_ROWS": "2", "RECOVERY": "x", "RECOVER_QQQ": "x"}
    environment = ignored | {f"RECOVER_{name}": "x" for name in OTHER_VARIABLES} | {"RECOVER_DISTILL__ROWS": "1"}
    assert read_environment(environment, flatten(Settings().model_dump())) == {"distill": {"rows": 1}}
    assert caplog.messages == [
        "Ignored RECOVER_DISTILL_ROWS: there is no such setting; did you mean RECOVER_DISTILL__ROWS?",
        "Ignored RECOVER_DISTIL__STEPS: there is no such setting; did you mean RECOVER_DISTILL__STEPS?",
        "Ignored RECOVER_QQQ: there is no such setting",
    ]
    monkeypatch.setenv("RECOVER_DISTILL__STEPZ", "2")
    with pytest.raises(RecoverError, match=r"There is no setting distill\.stepz"):
        resolve_settings(SMALL_MODEL_PARAMETERS, Path("nowhere"), {})


def test_every_variable_that_is_used_is_known() -> None:
    root = Path(__file__).parents[3]
    files = [
        file
        for package in ("recovery", "evals", "db", "dashboard", "tests/db")
        for file in root.glob(f"{package}/**/*.py")
    ]
    files += [root / ".ci" / "run", root / "compose.yaml", root / "pipelines" / "cli" / "__init__.py"]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert {name for name in re.findall(r"\bRECOVER_([A-Z_]*[A-Z])", text)} <= set(OTHER_VARIABLES)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"distil": {}}, "There is no setting distil. Known here: base, "),
        ({"distill": {"rate": 1}}, "There is no setting distill.rate. Known here: .*, recipe, "),
        ({"midtrain": {"mix": {"text": 1}}}, "There is no setting midtrain.mix.text. Known here: answers, texts, "),
        ({"distill": 3}, r"The setting distill is a group of settings. Write it as a \[distill\] table."),
        ({"midtrain": {"mix": True}}, r"Write it as a \[midtrain.mix\] table."),
        ({"distill": {"rows": 0}}, "distill.rows must be a whole number of at least 1, not 0"),
        ({"distill": {"rows": 2.5}}, "distill.rows must be a whole number of at least 1, not 2.5"),
        ({"distill": {"max_steps": "ten"}}, "distill.max_steps must be a whole number of at least 1, not 'ten'"),
        ({"distill": {"warm_start": "usual"}}, "warm_start must be off, auto, default or a share of at least 0"),
        ({"midtrain": {"mix": {"answers": "some"}}}, "answers must be a number of at least 0 and below 1"),
        ({"midtrain": {"mix": {"texts": 1.5}}}, "mix.texts must be a number of at least 0 and below 1, not 1.5"),
        ({"midtrain": {"mix": {"texts": "nan"}}}, "midtrain.mix.texts must be a number of at least 0 .*, not "),
        ({"midtrain": {"mix": {"answers": False}}}, "answers must be a number of .*, not False"),
        ({"distill": {"warm_start": False}}, "warm_start must be off, auto, default or a share of .*, not False"),
        ({"gate": {"behaviour_margin": 5.0}}, "behaviour_margin must be a number from 0 to 1, not 5.0"),
        ({"gate": {"behaviour_margin": float("nan")}}, "behaviour_margin must be a number from 0 to 1, not nan"),
        ({"midtrain": {"learning_rate": float("inf")}}, "learning_rate must be a number of at least 0, not inf"),
        ({"engine": "steam"}, "engine must be auto, transformers, vllm or http://HOST:PORT of vLLM servers, not"),
        ({"bf16": 1}, "bf16 must be true or false, not 1"),
        ({"distill": {"beta": 1.5}}, "distill.beta must be a number from 0 to 1, not 1.5"),
        ({"distill": {"clip_mode": "cut"}}, "distill.clip_mode must be zero or scale"),
        ({"lora_rank": True}, "lora_rank must be a whole number of at least 0, not True"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_sentence(overrides: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecoverError, match=sentence):
        apply_overrides(Settings(), overrides)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("base=foo", "base cannot be changed by --set. Give --base REF"),
        ("db=x.db", "RECOVER_DB"),
        ("midtrain.epochs=0", "midtrain.epochs must be auto or a number above 0"),
        ("nonsense", "Write a setting as name=value"),
    ],
)
def test_an_assignment_that_cannot_be_applied_is_refused(assignment: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match=sentence):
        resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {}, [assignment])


@pytest.mark.parametrize(
    ("text", "parameters", "mix"),
    [
        ("documents", SMALL_MODEL_PARAMETERS, Mix(answers=0, texts=0, earlier=0)),
        ("answers=0.1, texts=0.2", SMALL_MODEL_PARAMETERS, Mix(answers=0.1, texts=0.2, earlier=0)),
        ("answers=.1,texts=.2", SMALL_MODEL_PARAMETERS, Mix(answers=0.1, texts=0.2, earlier=0)),
        ("answers=0.1", LARGE_MODEL_PARAMETERS, Mix(answers=0.1, earlier=0)),
    ],
)
def test_a_mix_in_short_replaces_the_whole_mix_anywhere(text: str, parameters: int, mix: Mix, tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("[midtrain.mix]\nearlier = 0.1")
    assert resolve_settings(parameters, tmp_path, {"midtrain": {"mix": text}})[0].midtrain.mix == mix
    assert resolve_settings(parameters, tmp_path, {}, [f"midtrain.mix={text}"])[0].midtrain.mix == mix
    (tmp_path / "recover.toml").write_text(f'[midtrain]\nmix = "{text}"')
    assert resolve_settings(parameters, tmp_path, {})[0].midtrain.mix == mix


@pytest.mark.parametrize("file", ['midtrain = "x"', "[midtrain]\nmix = 3", "RECOVER_MIDTRAIN=x"])
def test_a_value_in_place_of_a_group_is_refused(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.startswith("RECOVER_"):
        monkeypatch.setenv(*file.split("="))
    else:
        (tmp_path / "recover.toml").write_text(file)
    with pytest.raises(RecoverError, match=r"The setting midtrain.* is a group of settings. Write it as a \[midtrain"):
        resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, Request("midtrain", mix="documents").setting_flags())


def test_flags_have_only_what_was_set() -> None:
    assert Request("cycle").setting_flags() == {}
    assert Request("cycle", mix="", warm_start="").setting_flags() == {
        "midtrain": {"mix": ""},
        "distill": {"warm_start": ""},
    }


READABLE = "Write --mix documents, or shares of answers, texts"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, READABLE) for text in ("", "half", "answer=0.3", "answers", "documents=0.5", "documents,texts=0.1")),
        ("answers=0.3,answers=0.4", "lists an entry twice"),
        ("replay=0.3", r"has the unknown entry 'replay=0\.3'"),
    ],
)
def test_a_mix_that_cannot_be_read_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match=sentence):
        resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {"midtrain": {"mix": text}})


def test_the_mix_must_leave_room_for_the_new_documents(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="leave nothing to the new documents"):
        resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {"midtrain": {"mix": "earlier=0.6,texts=0.4"}})
    settings = resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {}, ["midtrain.mix.texts=0.5"]).settings
    assert settings.midtrain.mix == Mix(answers=0.3, texts=0.5, earlier=0.3)


@given(rows=st.integers(1, 64), first=st.floats(0, 0.98), second=st.floats(0, 0.98))
def test_the_new_documents_always_have_a_row(rows: int, first: float, second: float) -> None:
    assume(first + second < 1)
    counts = split_rows(rows, (first, second))
    assert sum(counts) < rows
    assert all(abs(count - share * rows) <= 1 for count, share in zip(counts, (first, second), strict=True))
    assert str(split_rows(16, (0.0, 0.03))) == "[0, 1]"  # at least one for any share; printed, so whole numbers


def test_commands_that_train_nothing_have_the_engine_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine_of(tmp_path, None) == "auto"
    of_a_large_model = "[midtrain.mix]\nearlier = 0.7\n"
    (tmp_path / "recover.toml").write_text(f'engine = "http://gpu:8000"\n{of_a_large_model}')
    assert engine_of(tmp_path, None) == "http://gpu:8000"
    monkeypatch.setenv("RECOVER_ENGINE", "vllm")
    assert (engine_of(tmp_path, None), engine_of(tmp_path, "transformers")) == ("vllm", "transformers")


def test_the_address_of_the_database_is_in_no_output(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text('db = "postgresql://me:secret@host/db"\nbf16 = false\n')
    settings, default, _ = resolve_settings(SMALL_MODEL_PARAMETERS, tmp_path, {})
    assert "secret" not in json.dumps(settings.model_dump()) + "".join(differences(settings, default))
