"""Imported by the server from which the processes of the command line are forked: what libraries read when imported."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from pipelines.cli import silence_libraries

silence_libraries()

import pipelines.cycle  # noqa: E402
import pipelines.demo  # noqa: E402, F401
