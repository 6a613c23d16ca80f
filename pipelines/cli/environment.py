"""Variables that libraries read once: they must be set before the first import. The user's own values stay.

Thread waiting: libgomp's default made a rollout 14 times slower beside other work, and no waiting at all makes it 1.8
times slower on an idle machine (docs/log.md). So threads wait long where fewer than half the cores are busy, and
briefly elsewhere."""

import os
import warnings
from pathlib import Path

LONG_WAIT, SHORT_WAIT = "10000", "1000"  # turns of a loop
LOAD_FILE = Path("/proc/loadavg")


def set_thread_waiting() -> None:
    """Set GOMP_SPINCOUNT, unless the user has set it or OMP_WAIT_POLICY."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", LONG_WAIT if _is_idle() else SHORT_WAIT)


def use_huge_pages() -> None:
    """Let torch ask Linux for pages of 2 MB: on virtual machines each page that is first used costs microseconds."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def _is_idle() -> bool:
    """Whether fewer than half the cores are busy now; False on systems without /proc, which have no libgomp either.

    The load average would not do: an installation may just have ended."""
    try:
        running = int(LOAD_FILE.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return False
    return running - 1 < (os.cpu_count() or 1) / 2


def silence_libraries() -> None:
    """Turn off progress bars and warnings that would bury this program's messages."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for library in ("TRANSFORMERS", "HF_HUB", "DATASETS"):
        os.environ.setdefault(f"{library}_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", module="peft")
