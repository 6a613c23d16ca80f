from pathlib import Path

import pytest
import torch

import pipelines.model_loading
from pipelines.model_loading import check_servers, engine_and_precision, load_frozen, load_trained, open_engine
from pipelines.settings.sources import EngineName
from pipelines.training.stage_context import Teachers
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student, parameters_of, save_student
from recovery.objectives import CrossEntropy, Divergence
from recovery.samples import Sample
from recovery.signals import Labels, TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import AdapterOffTeacher, FrozenTeacher
from recovery.train import Plan, train
from tests.models import save_tiny, tiny_student
from tests.pipelines.training.test_stage_context import checkpoint
from tests.recovery.engines.small_server import SmallServer, serving


class Served:
    """Stands for a vLLM engine."""

    closed = False

    def __init__(self, student: Student) -> None:
        self.student = student

    def close(self) -> None:
        self.closed = True


def refuse(student: Student) -> None:
    raise RecoverError("vLLM cannot serve this model. Use the transformers engine.")


def test_automatic_falls_back_where_vllm_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines.model_loading, "choose_engine", lambda name, parameters: "vllm")
    monkeypatch.setattr(pipelines.model_loading, "VllmEngine", refuse)
    student = tiny_student(tmp_path)
    with open_engine(student, "auto") as engine:
        assert isinstance(engine, TransformersEngine)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("Engine: transformers, since vLLM cannot be used: vLLM cannot serve this")
    with pytest.raises(RecoverError, match="cannot serve this model"), open_engine(student, "vllm"):
        pass


@pytest.mark.parametrize("name", ["auto", "vllm"])
def test_a_vllm_engine_is_closed_at_the_end(name: EngineName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines.model_loading, "choose_engine", lambda name, parameters: "vllm")
    monkeypatch.setattr(pipelines.model_loading, "VllmEngine", Served)
    student = tiny_student(tmp_path)
    with open_engine(student, name) as engine:
        assert isinstance(engine, Served)
        assert engine.student is student
        assert not engine.closed
    assert engine.closed


def test_an_adapter_s_own_parameters_do_not_change_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = str(save_tiny(tmp_path / "base"))
    folder = str(tmp_path / "adapter")
    save_student(load_student(base, adapter=Adapter(4)), tmp_path / "adapter", {})
    monkeypatch.setattr("pipelines.settings.defaults.SMALL_MODEL_PARAMETERS", parameters_of(base))
    monkeypatch.setattr("pipelines.settings.defaults._automatic", lambda: "vllm")
    monkeypatch.setattr(pipelines.model_loading, "VllmEngine", Served)
    assert engine_and_precision(folder, "auto").startswith("transformers")
    with open_engine(load_frozen(folder), "auto") as engine:
        assert isinstance(engine, TransformersEngine)


NOWHERE = "http://127.0.0.1:9"  # at which nothing listens


@pytest.mark.parametrize(
    ("rank", "is_teacher", "command"),
    [
        (8, False, r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve \S+ --host 127.0.0.1 --port \d+ "
                   r"--generation-config vllm --enable-lora --max-lora-rank 8 --lora-target-modules down_proj"),
        (8, True, r"Start one: vllm serve \S+ --host 127.0.0.1 --port \d+ --generation-config vllm$"),
    ],
)  # fmt: skip
def test_without_a_server_its_command_is_the_message(rank: int, is_teacher: bool, command: str) -> None:
    engine: EngineName = "transformers" if is_teacher else NOWHERE
    with pytest.raises(RecoverError, match=f"No vLLM server answers at {NOWHERE} .*{command}"):
        check_servers(str(BASE), engine, rank, NOWHERE if is_teacher else None)


def test_servers_of_the_base_are_accepted_and_no_servers_need_no_check() -> None:
    check_servers(str(BASE), "auto", 8, None)
    with serving(SmallServer(load_student(str(BASE), frozen=True))) as named:
        check_servers(str(BASE), named, 8, named)
        with pytest.raises(RecoverError, match=r"generate for adapters.* lora_rank"):
            check_servers(str(BASE), named, 0, None)


ROWS = [Sample([1, *range(3 + i, 40 + i), 2], [False] * 4 + [True] * 35) for i in range(4)]
ROUNDING = 1e-3  # nats between equal weights, where one model's states between its layers are in bfloat16


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that counts as large."""
    monkeypatch.setattr("pipelines.model_loading.SMALL_MODEL_PARAMETERS", 0)
    return str(save_tiny(tmp_path / "model"))


def dtypes(student: Student) -> dict[bool, set[torch.dtype]]:
    """By whether they are trained."""
    parameters = list(student.model.parameters())
    return {trained: {p.dtype for p in parameters if p.requires_grad == trained} for trained in (True, False)}


def first_kl(student: Student, teacher: FrozenTeacher | AdapterOffTeacher) -> float:
    record = next(
        train(student, FixedRows(ROWS, rows=4), TeacherSignal(teacher), Divergence(), Plan(2, 1e-3, bf16=True))
    )
    return float(record.metrics()["kl"])


def test_weights_below_an_adapter_are_halved_and_trained_ones_not(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dtypes(load_trained(large, Adapter(rank=2), bf16=True)) == {True: {torch.float32}, False: {torch.bfloat16}}
    assert dtypes(load_trained(large, None, bf16=True)) == {True: {torch.float32}, False: set()}
    assert dtypes(load_trained(large, Adapter(rank=2), bf16=False))[False] == {torch.float32}
    monkeypatch.undo()
    small = large  # which cost little, and what is measured on the lab stays exact
    assert dtypes(load_trained(small, Adapter(rank=2), bf16=True))[False] == {torch.float32}


def test_a_teacher_beside_the_student_is_halved_and_agrees_with_its_equal(large: str) -> None:
    student = load_trained(large, None, bf16=True)
    teacher = Teachers(checkpoint(large, "base")).load(student, bf16=True)
    assert isinstance(teacher, FrozenTeacher)
    assert dtypes(teacher.model)[False] == {torch.bfloat16}
    assert first_kl(student, teacher) == pytest.approx(0, abs=ROUNDING)


def test_the_base_below_a_new_adapter_is_its_exact_equal(large: str) -> None:
    student = load_trained(large, Adapter(rank=2), bf16=True)
    assert first_kl(student, AdapterOffTeacher(student)) == 0


def test_an_adapter_on_halved_weights_learns_and_writes(large: str) -> None:
    student = load_trained(large, Adapter(rank=2), bf16=True)
    losses = [
        record.loss
        for record in train(student, FixedRows(ROWS, rows=4), Labels(), CrossEntropy(), Plan(6, 1e-2, bf16=True))
    ]
    assert losses[-1] < losses[0]
    assert TransformersEngine(student).generate([ROWS[0].tokens], Sampling(4))[0].tokens
