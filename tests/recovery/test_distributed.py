"""Two processes over gloo with four rows each give the gradient of one process with all eight."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recovery.losses.objectives import CrossEntropy
from recovery.models.students import load_student
from recovery.signals import Labels
from recovery.states import FixedRows
from recovery.train import Plan, TrainState, train
from tests.models import save_tiny
from tests.recovery.test_train import UNEVEN, gradient

WORKER = """
import sys
import torch
import torch.distributed as dist
from recovery.losses.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.models.students import load_student
from recovery.train import Plan
from tests.recovery.test_train import UNEVEN, gradient

dist.init_process_group("gloo")
student = load_student(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
result = gradient(student, Plan(1, 0.0, clip_norm=1e9), CrossEntropy(), Labels(), UNEVEN)
if dist.get_rank() == 0:
    torch.save(result, sys.argv[3])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_two_ranks_of_four_equal_one_of_eight(tmp_path: Path, dtype: str, tolerance: float) -> None:
    model = save_tiny(tmp_path / "model")
    alone = gradient(
        load_student(str(model), dtype=getattr(torch, dtype)),
        Plan(1, 0.0, clip_norm=1e9),
        CrossEntropy(),
        Labels(),
        UNEVEN,
    )
    script, output = tmp_path / "worker.py", tmp_path / "gradient.pt"
    script.write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run(
        [*torchrun, str(model), dtype, str(output)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    together = torch.load(output)
    assert float((together - alone).norm() / alone.norm()) < tolerance


def test_a_single_process_takes_all_rows(tmp_path: Path) -> None:
    student = load_student(str(save_tiny(tmp_path)))
    state = TrainState(torch.optim.SGD(student.trainable(), lr=0.0))
    record = next(train(student, FixedRows(UNEVEN, rows=8), Labels(), CrossEntropy(), Plan(1, 0.0), state))
    assert record.target_tokens == sum(s.target_count for s in UNEVEN)
