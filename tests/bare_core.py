"""Import every module of the core and take one step of OPD, with only torch, transformers and peft installed.

python -m tests.bare_core
"""

import importlib
import pkgutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import recovery
from recovery.engines.transformers import TransformersEngine
from recovery.recipes import objective_of, recipe, signal_of
from recovery.states import Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train
from tests.models import save_tiny, tiny_student


def main() -> None:
    assert not [name for name in ("lm_eval", "sqlalchemy", "gradio", "vllm") if find_spec(name)]
    names = [m.name for m in pkgutil.walk_packages(recovery.__path__, "recovery.") if not m.name.endswith("__main__")]
    for name in names:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        student = tiny_student(Path(folder) / "student", seed=1)
        teacher = FrozenTeacher(str(save_tiny(Path(folder) / "teacher", seed=2)))
        chosen = recipe("opd")
        prompts = [Prompt("hi", student.chat.prompt("hi"))]
        states = Rollouts(prompts, TransformersEngine(student), rows=4, max_new_tokens=8)
        record = next(train(student, states, signal_of(chosen, teacher), objective_of(chosen), Plan(1, 1e-3)))
        assert record.kl is not None
        assert record.kl > 0
    print(f"{len(names)} modules imported, one step of OPD, KL {record.kl:.3f}")


if __name__ == "__main__":
    main()
