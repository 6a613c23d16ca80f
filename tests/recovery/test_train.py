import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient
from recovery.resume_state import load_progress, save_progress
from recovery.samples import Sample
from recovery.signals import Blend, Labels, Signal, TeacherSignal
from recovery.states import Documents, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import EmaTeacher, FrozenTeacher
from recovery.telemetry import StepRecord
from recovery.train import Plan, TrainState, train
from tests.chats import exchange
from tests.gradients import gradient_of_step
from tests.models import save_tiny, tiny_student

UNEVEN = [Sample([3 + i] * (4 + 3 * i), [False] * 2 + [True] * (2 + 3 * i)) for i in range(8)]


@pytest.mark.parametrize("adapter", [None, Adapter(rank=3)])
def test_gradient_checkpointing_gives_the_same_gradient(tmp_path: Path, adapter: Adapter | None) -> None:
    folder, rows = str(save_tiny(tmp_path)), UNEVEN[:4]
    gradients = [
        gradient_of_step(load_student(folder, adapter=adapter), rows, Labels(), CrossEntropy(), plan)
        for plan in (Plan(1, 0.0), Plan(1, 0.0, checkpointing=True))
    ]
    assert float(gradients[0].norm()) > 0
    assert torch.equal(*gradients)


def test_entropy_and_signal_shape_are_measured_at_some_steps_and_change_no_weights(tmp_path: Path) -> None:
    weights = []
    for measure_every, measured in ((1, [0, 1, 2, 3, 4]), (3, [0, 3])):
        student = load_student(str(save_tiny(tmp_path)))
        plan = Plan(5, 1e-3, measure_every=measure_every)
        records = list(train(student, FixedRows(UNEVEN, rows=4), Labels(), CrossEntropy(), plan))
        for name in ("entropy", "density", "bias", "concentration"):
            assert [r.step for r in records if name in r.metrics()] == measured
        weights.append(torch.cat([p.detach().flatten() for p in student.trainable()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_teacher_equal_to_the_student_gives_no_gradient(tmp_path: Path, bf16: bool) -> None:
    student = tiny_student(tmp_path)
    states = rollouts(student, rows=8)
    before = copy.deepcopy(student.model.state_dict())
    full = [Divergence(1.0), Divergence(0.0), Divergence(0.5)]
    # The sampled estimator compares with the rollouts' log-probs, which are float32's: under bf16 it cannot be exact.
    for objective in full if bf16 else [*full, SampledGradient()]:
        signal = TeacherSignal(FrozenTeacher(str(tmp_path)))
        state = TrainState(torch.optim.SGD(student.trainable(), lr=0.0))
        record = next(train(student, states, signal, objective, Plan(1, 0.0, bf16=bf16), state))
        assert record.kl == pytest.approx(0, abs=1e-9)
        assert record.grad_norm < 1e-5  # float32 rounding; a real disagreement gives around 1
    assert all(torch.equal(before[k], v) for k, v in student.model.state_dict().items())


def test_kl_and_entropy_are_those_of_the_rollouts_whatever_else_a_step_reads(tmp_path: Path) -> None:
    """The alarm compares them with the clean model's replies; texts beside them have another entropy."""
    save_tiny(tmp_path / "teacher", seed=1)
    signal = TeacherSignal(FrozenTeacher(str(tmp_path / "teacher")))
    records = []
    for others in ([], [FixedRows(UNEVEN, rows=4)]):
        student = tiny_student(tmp_path / "student")
        states = Mixture(rollouts(student, rows=4), *others)
        records.append(next(train(student, states, signal, Divergence(1.0), Plan(1, 0.0))))
    alone, beside = records
    assert beside.target_tokens > alone.target_tokens
    assert (beside.kl, beside.entropy) == (pytest.approx(alone.kl), pytest.approx(alone.entropy))


def test_no_gradient_is_held_between_two_steps(tmp_path: Path) -> None:
    """Rollouts and probes need the memory."""
    student = tiny_student(tmp_path)
    for _ in train(student, FixedRows(UNEVEN, rows=8), Labels(), CrossEntropy(), Plan(2, 1e-3)):
        assert all(parameter.grad is None for parameter in student.model.parameters())


def rollouts(student: Student, rows: int) -> Rollouts:
    prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(16)]
    return Rollouts(prompts, TransformersEngine(student), rows=rows, max_new_tokens=12)


def reward(sample: Sample) -> float:
    return float(sum(sample.tokens) % 7)


def test_the_sampled_estimator_refuses_data_without_rollout_logprobs(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    with pytest.raises(RecoverError, match="log-probs"):
        list(train(student, FixedRows(UNEVEN, rows=8), Labels(), SampledGradient(), Plan(1, 1e-3)))


def test_a_model_whose_pad_is_its_eos_still_learns_to_stop(tmp_path: Path) -> None:
    student = tiny_student(tmp_path, pad="<|im_end|>")
    assert student.chat.pad_id == student.chat.tokenizer.eos_token_id
    tokens, targets = student.chat.conversation(exchange("hi", "yes"))
    assert targets[-1]
    assert tokens[-1] in student.chat.eos_ids
    list(train(student, FixedRows([Sample(tokens, targets)], rows=4), Labels(), CrossEntropy(), Plan(80, 1e-2)))
    record = next(train(student, rollouts(student, rows=16), Labels(), CrossEntropy(), Plan(1, 0.0)))
    assert record.truncated == 0
    assert record.rollout_length == pytest.approx(4, abs=0.5)  # y, e, s and the EOS


@pytest.mark.parametrize("stop", [2, 3])
@pytest.mark.parametrize("kind", ["documents", "rollouts", "average"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, kind: str, stop: int) -> None:
    teacher = TeacherSignal(FrozenTeacher(str(save_tiny(tmp_path / "t", seed=2))))
    plan = Plan(6, 1e-2, warmup=2, decay="cosine")

    def start(folder: Path) -> tuple[Student, TrainState, EmaTeacher | None, Iterator[StepRecord]]:
        student = tiny_student(folder, seed=1)
        state, average = TrainState.start(student, plan), EmaTeacher(student, 0.5)
        documents = Documents([[5, 6, 7] * 9] * 4, end_id=0, window=8, rows=2)
        kinds: dict[str, tuple[States, Signal, Objective]] = {
            "documents": (documents, Labels(), CrossEntropy()),
            "rollouts": (rollouts(student, rows=8), teacher, SampledGradient(epochs=2)),
            "average": (rollouts(student, rows=8), TeacherSignal(average), Divergence()),
        }

        def steps() -> Iterator[StepRecord]:
            for record in train(student, *kinds[kind], plan, state):
                average.move()
                yield record

        return student, state, average if kind == "average" else None, steps()

    student, _, average, steps = start(tmp_path / "whole")
    list(steps)
    broken, state, broken_average, steps = start(tmp_path / "broken")
    for record in steps:
        saved = save_progress(tmp_path / "progress", broken, state, average=broken_average)
        assert saved == (kind != "rollouts" or record.step % 2 == 1)  # two epochs per draw: never between them
        if record.step == stop:
            break
    resumed, state, resumed_average, steps = start(tmp_path / "resumed")
    assert load_progress(tmp_path / "progress", resumed, state, resumed_average) is not None
    assert state.step == (stop + 1 if saved else stop)
    list(steps)
    ours, theirs = student.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)
    if average and resumed_average:
        averages = average._weights().values(), resumed_average._weights().values()
        assert all(torch.equal(a, b) for a, b in zip(*averages, strict=True))


def test_a_non_finite_step_is_skipped_and_three_in_a_row_end_the_run(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    before = copy.deepcopy(student.model.state_dict())
    poison = FixedRows([Sample([1, 2, 3], [False, True, True], logprobs=[float("nan")] * 2)], rows=2)
    steps = train(student, poison, Blend(reward), SampledGradient(), Plan(9, 1e-2))
    assert [next(steps).skipped for _ in range(2)] == [True, True]
    with pytest.raises(RecoverError, match="3 steps in a row"):
        next(steps)
    assert all(torch.equal(before[k], v) for k, v in student.model.state_dict().items())


def test_rows_without_a_target_are_ignored(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    rows = [*UNEVEN, Sample([1, 2, 3], [False] * 3)]
    plan = Plan(1, 0.0, tokens_at_once=1, clip_norm=1e9)
    ours, expected = (gradient_of_step(student, each, Labels(), CrossEntropy(), plan) for each in (rows, UNEVEN))
    torch.testing.assert_close(ours, expected)


def test_rewards_are_compared_within_their_own_group() -> None:
    first = [Sample([1, 2], [False, True], group=0, prompt="a", logprobs=[0.0]) for _ in range(2)]
    second = [Sample([1, 2], [False, True], group=0, prompt="b", logprobs=[0.0]) for _ in range(2)]
    third = [Sample([token, 2], [False, True], group=1, prompt="b", logprobs=[0.0]) for token in (4, 8)]
    scored = Blend(lambda s: float(s.prompt == "a") + s.tokens[0]).prepare([*first, *second, *third])
    assert [s.advantage for s in scored] == [0.0, 0.0, 0.0, 0.0, -2.0, 2.0]
