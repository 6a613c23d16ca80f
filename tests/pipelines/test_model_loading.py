from pathlib import Path

import pytest

import pipelines.model_loading
from pipelines.model_loading import open_engine
from pipelines.settings.sources import EngineName
from recovery.engines import vllm
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.students import Student
from tests.models import tiny_student


class Served:
    """Stands for a vLLM engine."""

    closed = False

    def __init__(self, student: Student) -> None:
        self.student = student

    def close(self) -> None:
        self.closed = True


def refuse(student: Student) -> None:
    raise RecoverError("vLLM cannot serve this model. Use the transformers engine.")


def test_where_vllm_refuses_the_automatic_choice_falls_back_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines.model_loading, "choose_engine", lambda name, parameters: "vllm")
    monkeypatch.setattr(vllm, "VllmEngine", refuse)
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
    monkeypatch.setattr(vllm, "VllmEngine", Served)
    student = tiny_student(tmp_path)
    with open_engine(student, name) as engine:
        assert isinstance(engine, Served)
        assert engine.student is student
        assert not engine.closed
    assert engine.closed


@pytest.mark.parametrize("name", ["auto", "transformers"])
def test_a_small_model_is_served_by_transformers(name: EngineName, tmp_path: Path) -> None:
    with open_engine(tiny_student(tmp_path), name) as engine:
        assert isinstance(engine, TransformersEngine)
