import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.project.lock import held
from recovery.errors import RecoverError

HOLD = """
import sys, time
from pathlib import Path
from pipelines.project.lock import held
with held(Path(sys.argv[1]), "recover cycle --docs there"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_command_is_told_who_holds_the_project_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(RecoverError, match=rf"recover cycle --docs there` \(process {other.pid} on"),
            held(tmp_path, "x"),
        ):
            pass
        other.kill()
        other.wait()
    with held(tmp_path, "x"):
        assert "x" in (tmp_path / "lock.json").read_text()
    assert not (tmp_path / "lock.json").exists()
