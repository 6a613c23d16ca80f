"""Settings and inputs of runs that version 0002 recorded: renamed, separated, and restored."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.migrations.renamed_settings import join, renamed, restored, split
from db.run_inputs import RunInputs
from pipelines.settings.schema import Settings

SHARES = st.floats(0, 0.99).map(lambda share: repr(share).removesuffix(".0"))
MIDTRAIN = st.fixed_dictionaries(
    {
        "recipe": st.just("midtrain"),
        "rows": st.integers(1, 64),
        "across": st.booleans(),
        "soft": st.booleans(),
        "recollections": st.integers(1, 4096),
        "replay": SHARES | st.just("auto"),
        "reword": st.integers(0, 3),
        "rehearse": st.floats(0, 0.4),
        "recollect": st.floats(0, 0.4),
        "max_steps": st.none() | st.integers(1, 9),
    }
)
DISTILL = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 99),
        "remember": st.floats(0, 0.9),
        "warm_start": SHARES | st.sampled_from(["off", "auto", "usual"]),
    }
)
SETTINGS = st.fixed_dictionaries({"lora_rank": st.integers(0, 128), "midtrain": MIDTRAIN, "distill": DISTILL})
SEARCH = {"share": 0.1, "tried": {"0": {"behaviour": 0.5, "knowledge": None}}, "steps": 3}
INPUTS = st.fixed_dictionaries(
    {"errand": st.just("bbd72f39"), "stage": st.just("midtrained")},
    optional={
        "corpus": st.just("13e7af"),
        "questions": st.just("/home/ada/questions.jsonl"),
        "passages": st.just("/home/ada/passages.jsonl"),
        "teacher": st.just("base"),
        "replay": st.just(SEARCH),
        "reworded": st.just({"written": 4, "kept": 3}),
    },
)


@given(SETTINGS)
def test_renamed_settings_are_settings_of_this_release_and_can_be_restored(old: dict[str, Any]) -> None:
    new = renamed(old)
    assert restored(new) == old
    settings = Settings.model_validate(new)
    assert settings.midtrain.soft_labels == old["midtrain"]["soft"]
    assert settings.midtrain.cross_document_attention == old["midtrain"]["across"]
    assert settings.midtrain.generated_texts == old["midtrain"]["recollections"]
    assert settings.midtrain.mix.texts == old["midtrain"]["recollect"]
    assert settings.midtrain.mix.earlier == old["midtrain"]["rehearse"]
    assert settings.midtrain.mix.paraphrases == old["midtrain"]["reword"]
    assert settings.distill.earlier_prompts == old["distill"]["remember"]
    assert settings.lora_rank == old["lora_rank"]
    assert settings.model_dump()["midtrain"] | new["midtrain"] == settings.model_dump()["midtrain"]
    assert settings.model_dump()["distill"] | new["distill"] == settings.model_dump()["distill"]


@given(SETTINGS, INPUTS, st.floats(0, 0.9), st.floats(0, 0.9))
def test_split_and_join_are_inverse(
    old: dict[str, Any], inputs: dict[str, Any], replay: float, recollect: float
) -> None:
    recorded = old | inputs | {"beside": {"replay": replay, "recollect": recollect}}
    settings, new_inputs = split("midtrain", recorded)
    assert join(settings, new_inputs) == recorded
    assert settings == renamed(old)
    assert RunInputs.from_json(new_inputs).as_json() == new_inputs
    assert new_inputs["mix"] == {"answers": replay, "texts": recollect}
    assert (new_inputs["job"], new_inputs["stage"]) == ("bbd72f39", "midtrained")
    assert new_inputs.get("answers_search") == inputs.get("replay")
    assert new_inputs.get("paraphrases") == inputs.get("reworded")


@pytest.mark.parametrize(("share", "expected"), [("auto", "auto"), ("0", 0.0), ("0.3", 0.3), (0.3, 0.3), (0, 0.0)])
def test_shares_written_as_text_become_numbers(share: Any, expected: Any) -> None:
    assert renamed({"midtrain": {"replay": share}}) == {"midtrain": {"mix": {"answers": expected}}}
    assert renamed({"distill": {"warm_start": share}}) == {"distill": {"warm_start": expected}}


def test_the_default_warm_start_was_called_usual() -> None:
    assert renamed({"distill": {"warm_start": "usual"}}) == {"distill": {"warm_start": "default"}}
    assert restored({"distill": {"warm_start": "default"}}) == {"distill": {"warm_start": "usual"}}


def test_settings_without_training_groups_stay_as_they_are() -> None:
    for settings in ({}, {"limit": 4}, {"suite": "all", "part": "final", "beside": 200}):
        assert renamed(settings) == restored(settings) == settings


def test_evaluations_keep_their_plan_in_the_settings() -> None:
    plan = {"suite": "all", "part": "final", "limit": 30, "beside": 200, "questions": "/q.jsonl", "passages": None}
    recorded = plan | {"errand": "bbd72f39", "stage": "measure/clean"}
    settings, inputs = split("eval", recorded)
    assert settings == plan
    assert inputs == {"job": "bbd72f39", "stage": "measure/clean"}
    assert join(settings, inputs) == recorded


@pytest.mark.parametrize(
    ("midtrain", "search", "mix"),
    [
        ({"replay": "0.3", "recollect": 0.2}, None, {"answers": 0.3, "texts": 0.2}),
        ({"replay": "auto"}, {"share": 0.1, "tried": {}}, {"answers": 0.1, "texts": 0.0}),
        ({"replay": "auto"}, None, {"answers": 0.0, "texts": 0.0}),
        ({}, None, {"answers": 0.0, "texts": 0.0}),
    ],
)
def test_early_records_of_a_mid_training_get_the_mix_that_was_set(
    midtrain: dict[str, Any], search: dict[str, Any] | None, mix: dict[str, float]
) -> None:
    """They do not say what was in effect."""
    _, inputs = split("midtrain", {"midtrain": midtrain, "replay": search})
    assert inputs["mix"] == mix
    assert inputs.get("answers_search") == search
    assert "mix" not in split("distill", {"midtrain": midtrain})[1]


def test_the_address_of_the_database_leaves_the_record() -> None:
    settings, inputs = split("midtrain", {"lora_rank": 0, "db": "postgresql://ada:secret@host/record"})
    assert (settings, inputs) == ({"lora_rank": 0}, {})
