"""What this process takes of its machine."""

import os
import resource
import sys

import torch


def resources() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    found = {
        "rss_bytes": float(used.ru_maxrss * unit),
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "load": os.getloadavg()[0],
    }
    if torch.cuda.is_available():
        found |= {
            "gpu_bytes": float(torch.cuda.max_memory_allocated()),
            "gpu_total": float(torch.cuda.mem_get_info()[1]),
        }
    return found
