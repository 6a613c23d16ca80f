"""Tests with vLLM itself, on any device. Engines are shared: one for an adapter student, one for full weights."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

from recovery.engines import Generation, Sampling
from recovery.engines.served_model import LORA_RANKS
from recovery.engines.transformers import TransformersEngine
from recovery.engines.vllm import VllmEngine
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.interpolation import WeightInterpolation
from recovery.models.students import Student, load_student, save_student
from recovery.objectives import CrossEntropy, SampledGradient
from recovery.signals import Labels, TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train
from tests.models import save_tiny
from tests.recovery.engines.agreement import assert_log_probs_agree, assert_samples_follow_the_model, gap

pytestmark = pytest.mark.vllm
Start = Callable[[Student], VllmEngine]
TEXTS = ["hi", "a much longer question than that", "ok?", "x"]
CLOSE = 1e-4


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start engines and close them together: vLLM's groups belong to the process, so closing one engine ends all."""
    if importlib.util.find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
        pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
    started: list[VllmEngine] = []

    def start_engine(student: Student) -> VllmEngine:
        started.append(VllmEngine(student, cpu_cache_bytes=2**26, eager=True, dtype=torch.float32))
        return started[-1]

    yield start_engine
    for engine in started:
        engine.close()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("base"), head_dim=32, eos=[2, 60]))


@pytest.fixture(scope="module")
def full(start: Start, base: str) -> tuple[Student, VllmEngine]:
    student = load_student(base)
    return student, start(student)


@pytest.fixture(scope="module")
def adapted(start: Start, base: str) -> tuple[Student, VllmEngine]:
    """A trained adapter of rank 12."""
    student = load_student(base, adapter=Adapter(rank=12, alpha=12))
    list(train(student, rollouts(student, TransformersEngine(student)), Labels(), CrossEntropy(), Plan(3, 3e-2)))
    return student, start(student)


def rollouts(student: Student, engine: VllmEngine | TransformersEngine) -> Rollouts:
    prompts = [Prompt(t, student.chat.prompt(t)) for t in TEXTS]
    return Rollouts(prompts, engine, rows=16, max_new_tokens=12)


def assert_engines_agree(student: Student, engine: VllmEngine) -> list[Generation]:
    prompts = [student.chat.prompt(t) for t in TEXTS] * 4
    return assert_log_probs_agree(student, engine, prompts, Sampling(20, seed=7), within=CLOSE)


@pytest.mark.parametrize(("kind", "rate"), [("full", 1e-2), ("adapted", 3e-2)])
def test_log_probs_agree_before_and_after_updates(kind: str, rate: float, request: pytest.FixtureRequest) -> None:
    student, engine = request.getfixturevalue(kind)
    engine.sync(student)
    before, rows = assert_engines_agree(student, engine), [list(range(30, 130))] * 2  # long enough to be cached
    assert gap(engine.logprobs(rows), TransformersEngine(student).logprobs(rows)) < CLOSE
    # Rollouts synchronise before each draw; the last update has not been passed on yet.
    list(train(student, rollouts(student, engine), Labels(), CrossEntropy(), Plan(3, rate)))
    assert gap(engine.logprobs(rows), TransformersEngine(student).logprobs(rows)) > CLOSE
    engine.sync(student)
    assert gap(engine.logprobs(rows), TransformersEngine(student).logprobs(rows)) < CLOSE
    assert assert_engines_agree(student, engine) != before
    if student.adapter_base:
        engine.sync(WeightInterpolation(student, student.adapter_base).move_to(0.5))
        assert_engines_agree(student, engine)


def test_the_ranks_of_adapters_are_those_of_the_installed_version(full: tuple[Student, VllmEngine]) -> None:
    from vllm.config.lora import MaxLoRARanks

    assert tuple(sorted(get_args(MaxLoRARanks))) == LORA_RANKS


def test_an_adapter_that_vllm_ignores_is_refused(
    adapted: tuple[Student, VllmEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    student, engine = adapted
    engine.sync(student)
    before = {name: p.clone() for name, p in student.model.named_parameters()}
    engine._check_agreement(student, CLOSE)
    assert all(torch.equal(p, before[name]) for name, p in student.model.named_parameters())
    monkeypatch.setattr(engine, "_swap_adapter", lambda student: None)  # as if it had loaded nothing
    with pytest.raises(RecoverError, match="vLLM ignores the adapter"):
        engine._check_agreement(student, CLOSE)


@pytest.mark.parametrize("kind", ["full", "adapted"])
def test_a_teacher_equal_to_the_student_gives_no_advantage(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    student, engine = request.getfixturevalue(kind)
    engine.sync(student)
    advantages: list[torch.Tensor] = []

    class RecordingGradient(SampledGradient):
        def prepare(self, signal, batch, teacher_weight):  # type: ignore[no-untyped-def]
            signal = super().prepare(signal, batch, teacher_weight)
            advantages.append(signal.advantage)
            return signal

    save_student(student, tmp_path / "copy", {})
    teacher = TeacherSignal(FrozenTeacher(str(tmp_path / "copy")))
    record = next(train(student, rollouts(student, engine), teacher, RecordingGradient(), Plan(1, 0.0)))
    assert max(float(a.abs().max()) for a in advantages) < CLOSE
    assert record.ratio_max == pytest.approx(1, abs=CLOSE)


@pytest.mark.parametrize("of_turns", [False, True])
def test_every_eos_ends_a_reply_and_is_part_of_it(full: tuple[Student, VllmEngine], of_turns: bool) -> None:
    student, engine = full
    ends = student.chat.turn_ends if of_turns else student.chat.eos_ids
    assert ends == ({2, 60} if of_turns else {0, 2, 60})
    generations = engine.generate([student.chat.prompt("hi")] * 100, Sampling(60, seed=0, of_turns=of_turns))
    for g in generations:
        assert g.finished == (g.tokens[-1] in ends)
        assert not set(g.tokens[:-1]) & ends
        assert len(g.tokens) == len(g.logprobs)
    assert {g.tokens[-1] for g in generations if g.finished} <= ends
    assert any(not g.finished for g in generations)
    assert all(len(g.tokens) == 60 for g in generations if not g.finished)


def test_the_same_seed_samples_the_same_whatever_the_other_prompts(full: tuple[Student, VllmEngine]) -> None:
    student, engine = full
    prompts = [student.chat.prompt(t) for t in TEXTS]
    once, twice, other = (engine.generate(prompts, Sampling(10, seed=s)) for s in (1, 1, 2))
    assert [g.tokens for g in once] == [g.tokens for g in twice]
    assert [g.tokens for g in once] != [g.tokens for g in other]
    assert engine.generate(prompts[:1], Sampling(10, seed=1))[0].tokens == once[0].tokens
    assert len({tuple(g.tokens) for g in engine.generate(prompts[:1] * 8, Sampling(10, seed=1))}) == 8


def test_greedy_answers_equal_the_students(full: tuple[Student, VllmEngine]) -> None:
    student, engine = full
    engine.sync(student)
    prompts = [student.chat.prompt(t) for t in TEXTS]
    greedy = Sampling(15, temperature=0)
    theirs, ours = engine.generate(prompts, greedy), TransformersEngine(student).generate(prompts, greedy)
    assert [g.tokens for g in theirs] == [g.tokens for g in ours]
    assert gap([g.logprobs for g in theirs], [g.logprobs for g in ours]) < CLOSE
    bare = engine.generate(prompts, Sampling(15, temperature=0, with_logprobs=False))
    assert [(g.tokens, g.logprobs) for g in bare] == [(g.tokens, []) for g in ours]


def test_sampling_follows_the_models_distribution(full: tuple[Student, VllmEngine]) -> None:
    student, engine = full
    engine.sync(student)
    assert_samples_follow_the_model(student, engine)


def test_an_untied_head_is_updated_too(start: Start, tmp_path: Path) -> None:
    student = load_student(str(save_tiny(tmp_path, head_dim=32, tied=False)))
    engine = start(student)
    list(train(student, rollouts(student, engine), Labels(), CrossEntropy(), Plan(2, 1e-2)))
    engine.sync(student)
    assert_engines_agree(student, engine)


def test_what_does_not_fit_is_refused(full: tuple[Student, VllmEngine], base: str) -> None:
    _, engine = full
    assert engine.longest == 511
    with pytest.raises(RecoverError, match="600 tokens does not fit into the 512"):
        engine.logprobs([[5] * 600])
    with pytest.raises(RecoverError, match="Start another"):
        engine.sync(load_student(base, adapter=Adapter(rank=2)))
    with pytest.raises(RecoverError, match="at most 512"):
        VllmEngine(load_student(base, adapter=Adapter(rank=513)))
    assert engine.logprobs([[5]]) == [[]]
    assert engine.generate([], Sampling()) == []


def test_without_vllm_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(RecoverError, match="Install recover's extra `vllm`"):
        VllmEngine(load_student(str(save_tiny(tmp_path))))
