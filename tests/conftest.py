import os

from hypothesis import HealthCheck, settings

# Read when the hub's client is imported: no test waits for a network. A test of the waiting itself unsets it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A busy machine is no failure of a property.
settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

pytest_plugins = ["tests.browser", "tests.postgres", "tests.real_model"]
