import os

# Read when the hub's client is imported: no test waits for a network. A test of the waiting itself unsets it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytest_plugins = ["tests.browser", "tests.real_model"]
