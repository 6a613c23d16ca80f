import time

import pytest

from pipelines.log import log
from pipelines.silence import no_silence


def test_a_long_silence_is_broken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="recover")
    with no_silence(lambda: "still training", seconds=0.2):
        time.sleep(1.0)
    count = caplog.messages.count("still training")
    assert 1 <= count <= 5
    time.sleep(0.5)
    assert caplog.messages.count("still training") == count


def test_what_is_logged_anyway_needs_no_other_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="recover")
    with no_silence(lambda: "still training", seconds=60):
        for step in range(3):
            log.info("step %d", step)
    assert caplog.messages == ["step 0", "step 1", "step 2"]
