"""Resource use of a run."""

import time

from pipelines.training_memory import ResourceMeter


def test_processor_use_is_since_the_last_reading_and_memory_use_is_current() -> None:
    meter, end = ResourceMeter(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = meter.read()
    time.sleep(0.2)
    assert busy["cpu_percent"] > 2 * meter.read()["cpu_percent"]
    assert busy["rss_bytes"] > 1e6
