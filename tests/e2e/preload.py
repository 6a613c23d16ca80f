"""Imported by the server from which the processes of the command line are forked: what nearly every command imports."""

from pipelines.cli.environment import silence_libraries

silence_libraries()  # before the libraries are imported, as in a command

import pipelines.cycle  # noqa: E402
import pipelines.demo  # noqa: E402, F401
from evals.downloads import has_punkt, ifeval_checkers  # noqa: E402

if has_punkt():  # else each command looks for it, in a thread, which may not be forked
    ifeval_checkers()
