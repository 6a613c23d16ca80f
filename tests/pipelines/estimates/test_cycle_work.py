"""The stages of a cycle on a base that is known by its config."""

import pytest

from pipelines.estimates.cycle_work import cycle_work
from pipelines.estimates.work import Generating, Measuring, Training
from pipelines.settings.defaults import defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schedule import scheduled
from pipelines.settings.schema import Settings

TOKENS = 1_000_000


def stages(settings: Settings) -> dict[str, list[object]]:
    settings = settings.model_copy(update={"midtrain": scheduled(settings.midtrain, TOKENS)})
    return {stage.key: list(stage.parts) for stage in cycle_work(settings, TOKENS)}


def training(parts: list[object]) -> Training:
    return next(part for part in parts if isinstance(part, Training))


def test_a_large_model_is_trained_on_its_documents_and_distilled_on_its_own_replies() -> None:
    planned = stages(defaults_for(8_000_000_000))
    assert list(planned) == ["midtrain", "measure", "write/prompts", "distill"]
    midtrain = training(planned["midtrain"])
    read = midtrain.steps * (midtrain.label_tokens + midtrain.taught_tokens)
    assert read == pytest.approx(3 * TOKENS, rel=0.05)  # three epochs
    assert len([part for part in planned["measure"] if isinstance(part, Measuring)]) == 3
    assert training(planned["distill"]).taught_tokens > 0
    assert any(isinstance(part, Generating) for part in planned["distill"])


def test_answers_and_texts_in_the_mix_are_written_and_read() -> None:
    settings = defaults_for(8_000_000_000)
    mixed = apply_overrides(settings, {"midtrain": {"mix": {"answers": 0.3, "texts": 0.3}}})
    plain, planned = stages(settings), stages(mixed)
    assert list(planned)[:3] == ["write/texts", "write/answers", "midtrain"]
    assert training(planned["midtrain"]).taught_tokens > training(plain["midtrain"]).taught_tokens


def test_replies_that_the_teacher_writes_are_a_stage_of_their_own() -> None:
    planned = stages(defaults_for(600_000_000))
    assert planned["write/replies"]
    assert not any(isinstance(part, Generating) for part in planned["distill"])


def test_the_limit_of_steps_and_the_lack_of_probes_count() -> None:
    short = apply_overrides(defaults_for(8_000_000_000), {"distill": {"max_steps": 7, "probe_every": 0}})
    planned = stages(short)["distill"]
    assert training(planned).steps == 7
    assert not any(isinstance(part, Measuring) for part in planned)
