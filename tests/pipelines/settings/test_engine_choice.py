from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec

import pytest

from pipelines.settings import defaults
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, choose_engine
from pipelines.settings.sources import EngineName

SMALL, LARGE = SMALL_MODEL_PARAMETERS, SMALL_MODEL_PARAMETERS + 1


@pytest.fixture
def vllm_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Make vLLM look installed or missing."""

    def pretend(installed: bool) -> None:
        spec = ModuleSpec("vllm", None) if installed else None
        monkeypatch.setattr(defaults, "find_spec", lambda name: spec if name == "vllm" else None)

    defaults._automatic.cache_clear()
    yield pretend
    defaults._automatic.cache_clear()


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize(
    ("name", "parameters", "engine"),
    [
        *((name, parameters, name) for name in ("vllm", "transformers") for parameters in (SMALL, LARGE)),
        ("auto", SMALL, "transformers"),
    ],
)
def test_a_named_engine_is_that_engine_and_a_small_model_needs_no_message(
    installed: bool,
    name: EngineName,
    parameters: int,
    engine: str,
    vllm_installed: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    vllm_installed(installed)
    assert choose_engine(name, parameters) == engine
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("installed", "engine", "message"),
    [
        (True, "vllm", "Engine: vLLM"),
        (False, "transformers", "Engine: transformers; vLLM generates text several times as fast, but it is not"),
    ],
)
def test_large_models_use_vllm_if_it_is_installed_and_the_choice_is_logged_once(
    installed: bool,
    engine: str,
    message: str,
    vllm_installed: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    vllm_installed(installed)
    assert [choose_engine("auto", parameters) for parameters in (LARGE, 10 * LARGE, LARGE)] == [engine] * 3
    assert [text.startswith(message) for text in caplog.messages] == [True]
