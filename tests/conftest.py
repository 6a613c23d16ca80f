import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# Read when the hub's client is imported: no test waits for a network. A test of the waiting itself unsets it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A busy machine is no failure of a property.
settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

pytest_plugins = ["tests.browser", "tests.e2e.damaged_project", "tests.postgres", "tests.real_model"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole commands first: few files, and one that begins last would leave the other process without work."""
    items.sort(key=lambda item: "e2e" not in item.path.parts)


@pytest.fixture(autouse=True, scope="module")
def no_search_of_what_is_there() -> None:
    """What is there before a file's tests stays until the process ends: each full collection of garbage takes half a
    second to look through all modules, tests and reports."""
    gc.collect()
    gc.freeze()
