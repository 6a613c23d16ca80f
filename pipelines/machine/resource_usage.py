"""Memory, processor and GPU use of this process, for the curves of a run."""

import psutil
import torch


class ResourceMeter:
    """Each reading has the memory in use now, and the processor use since the reading before."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # starts the first interval

    def read(self) -> dict[str, float]:
        usage = {
            "rss_bytes": float(self._process.memory_info().rss),
            "cpu_percent": float(self._process.cpu_percent()),  # 100: one core
            "load": float(psutil.getloadavg()[0]),
        }
        if torch.cuda.is_available():
            usage |= {
                "gpu_bytes": float(torch.cuda.max_memory_allocated()),
                "gpu_total": float(torch.cuda.mem_get_info()[1]),
            }
        return usage
