"""What a run takes of its machine."""

import time

from pipelines.machine.resource_usage import Meter


def test_the_processor_is_told_since_the_last_look_and_memory_as_it_is_now() -> None:
    meter, end = Meter(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = meter.look()
    time.sleep(0.2)
    assert busy["cpu_percent"] > 2 * meter.look()["cpu_percent"]
    assert busy["rss_bytes"] > 1e6
