"""Memory, processor and GPU use of this process, for the curves of a run; how busy other programs keep the machine."""

import time

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


class OtherPrograms:
    """What share of all cores other programs used since this was created."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = self._seconds()

    def share(self) -> float:
        wall, busy, own = (now - before for now, before in zip(self._seconds(), self._start, strict=True))
        return max(0.0, busy - own) / max(wall * (psutil.cpu_count() or 1), 1e-9)

    def _seconds(self) -> tuple[float, float, float]:
        """Wall time, and processor time of all programs and of this one."""
        everyone, own = psutil.cpu_times(), self._process.cpu_times()
        everyone_busy = everyone.user + everyone.system + getattr(everyone, "nice", 0.0)  # no such field on Windows
        return time.perf_counter(), everyone_busy, own.user + own.system
