"""The callback in a training on two processes: the first one reads, and all of them stop together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.watch import ForgettingCallback, readings
from recovery.distributed import leave
from tests.pipelines.watch.test_callback import trainer_of


def main(folder: Path, process: int) -> None:
    readings.LIMIT_PER_ENTROPY = 1e-12  # the first reading warns
    readings.NEW_TOKENS = 8
    trainer = trainer_of(folder / str(process), steps=6, ddp_backend="gloo", logging_steps=1)
    watch = ForgettingCallback(trainer, every=2, probes=2, stop=True)
    trainer.add_callback(watch)
    trainer.train()
    result = {"steps": trainer.state.global_step, "readings": len(watch.readings)}
    (folder / f"{process}.json").write_text(json.dumps(result))
    leave()  # an interpreter that ends while a thread of gloo runs may be aborted


@pytest.mark.slow
def test_the_first_process_reads_and_all_stop(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.pipelines.watch.test_several_processes", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads((tmp_path / f"{process}.json").read_text()) for process in range(2)]
    assert results == [{"steps": 2, "readings": 1}, {"steps": 2, "readings": 0}]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(os.environ["RANK"]))
