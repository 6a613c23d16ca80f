"""Which library generates text where the setting leaves it open: vLLM if it is installed, except for small models."""

from functools import cache
from importlib.util import find_spec

from pipelines.log import log
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS
from pipelines.settings.sources import EngineName
from recovery.distributed import processes


def choose_engine(setting: EngineName, parameters: int) -> EngineName:
    """The engine itself, or what `auto` stands for with a model of this size; addresses of servers stay."""
    if setting != "auto":
        return setting
    if processes() > 1:
        return "transformers"  # vLLM would use the training's process group as its own
    return _automatic(parameters > SMALL_MODEL_PARAMETERS)


@cache  # so that the choice is logged once
def _automatic(large: bool) -> EngineName:
    if not large:
        return "transformers"  # vLLM takes longer to start than a small model takes to answer
    if find_spec("vllm") is None:
        log.info("Engine: transformers; vLLM generates text several times as fast, but it is not installed")
        return "transformers"
    log.info("Engine: vLLM")
    return "vllm"
