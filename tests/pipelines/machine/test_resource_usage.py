"""Resource use of a run."""

import os
import subprocess
import sys
import time

from pipelines.machine.resource_usage import OtherPrograms, ResourceMeter


def test_processor_use_is_since_the_last_reading_and_memory_use_is_current() -> None:
    meter, end = ResourceMeter(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = meter.read()
    time.sleep(0.2)
    assert busy["cpu_percent"] > 2 * meter.read()["cpu_percent"]
    assert busy["rss_bytes"] > 1e6


def test_other_programs_count_and_the_own_process_does_not() -> None:
    def share_while(seconds: float) -> float:
        others, end = OtherPrograms(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return others.share()

    before = share_while(0.5)
    busy_loop = "import time\nend = time.perf_counter() + 20\nwhile time.perf_counter() < end: pass"
    with subprocess.Popen([sys.executable, "-c", busy_loop]) as other:
        time.sleep(0.2)
        during = share_while(1.0)
        other.kill()
    assert before < 1.0  # the own loop alone would be a core
    assert during > 0.3 / (os.cpu_count() or 1)
