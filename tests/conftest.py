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


def pytest_collection_finish() -> None:
    """Modules and tests stay: to look through them takes half a second of every full collection of garbage."""
    gc.collect()
    gc.freeze()
