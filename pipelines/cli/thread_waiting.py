"""How long torch's threads wait busily for each other, to be said before torch is first imported.

libgomp's own choice made a rollout 14 times slower beside other work; not waiting at all makes it 1.8 times slower on a
machine that has nothing else to do (docs/log.md). So they wait long where fewer than half the cores are busy, and
briefly elsewhere.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

LONG, SHORT = "10000", "1000"  # turns of a loop


def wait_as_fits(environment: MutableMapping[str, str] = os.environ, load: Path = Path("/proc/loadavg")) -> None:
    """Unless the user has said how."""
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", LONG if _idle(load) else SHORT)


def _idle(load: Path) -> bool:
    """Whether fewer than half the cores have other work at this moment (not over a minute: an installation may just
    have ended), as Linux tells it; others have no libgomp."""
    try:
        running = int(load.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return False
    return running - 1 < (os.cpu_count() or 1) / 2
