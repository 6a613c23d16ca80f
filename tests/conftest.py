import os

# The hub's client reads it when it is imported. No test waits for a network, except those of the waiting, which unset it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytest_plugins = ["tests.browser"]
