from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.objectives import Divergence, Objective, SampledGradient
from recovery.samples import Batch, Sample, micro_batches
from recovery.signals import Labels, TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import SHARED_CONTEXT, EmaTeacher, FrozenTeacher, InContext, LiveTeacher, RouterTeacher
from recovery.telemetry import flops_of_step
from recovery.train import Plan, train
from tests.chat_families import FAMILIES
from tests.gradients import UNCLIPPED, gradient_of_step
from tests.models import save_tiny

CONTEXTS = ([9, 8, 7, 6, 5, 4, 3], None, [11], [12] * 17, [70, 71])
ROWS = [
    Prompt(f"p{i}", list(range(20, 23 + 2 * i)), "odd" if i % 2 else None, context).with_reply(
        list(range(40 + i, 44 + 3 * i)), logprobs=[-5.0] * (4 + 2 * i)
    )
    for i, context in enumerate(CONTEXTS)
]


def reply_logprobs(teacher: FrozenTeacher, row: Sample) -> torch.Tensor:
    """The teacher's log-probs at the reply's tokens, read by itself and without a batch."""
    start = row.targets.index(True)
    prompt = row.tokens[:start] if row.teacher_prompt is None else row.teacher_prompt
    tokens = torch.tensor([prompt + row.tokens[start:]])
    with torch.no_grad():
        logits = teacher.model.causal(input_ids=tokens).logits[0]
    return torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]


def test_log_probs_are_those_of_the_same_reply_behind_the_teachers_prompt(teacher: FrozenTeacher) -> None:
    rows = ROWS[:]
    for seed in range(3):
        Random(seed).shuffle(rows)
        for size in (1, 60, 10_000):
            for group in micro_batches(rows, size):
                batch = Batch.collate(group, 0)
                logprobs = InContext(teacher).distribution(batch)
                expected = torch.cat([reply_logprobs(teacher, row) for row in group])
                torch.testing.assert_close(logprobs.logprobs(slice(None)), expected)


@pytest.mark.parametrize("longer", [1, SHARED_CONTEXT])
def test_a_context_that_all_rows_share_is_read_once(tmp_path: Path, teacher: FrozenTeacher, longer: int) -> None:
    other = FrozenTeacher(str(save_tiny(tmp_path / "other", seed=2)), dtype=torch.float64)
    context = [3 + i % 50 for i in range(SHARED_CONTEXT - 1 + longer)]
    rows = [replace(row, teacher_prompt=[*context, 60 + i, *[7] * i]) for i, row in enumerate(ROWS)]
    batch, read = Batch.collate(rows, 0), list[int]()
    decoder = teacher.model.causal.get_decoder()
    hook = decoder.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    logprobs = InContext(teacher).distribution(batch)
    hook.remove()
    torch.testing.assert_close(logprobs.logprobs(slice(None)), torch.cat([reply_logprobs(teacher, r) for r in rows]))
    tokens = [row.for_teacher.tokens for row in rows]
    behind = len(rows) * (max(map(len, tokens)) - 1 - len(context))  # the last token predicts nothing
    assert sum(read) == len(context) + behind
    odd = [row for row in rows if row.domain == "odd"]
    routed = InContext(RouterTeacher(teacher, {"odd": other})).distribution(Batch.collate(odd, 0))
    torch.testing.assert_close(routed.logprobs(slice(None)), torch.cat([reply_logprobs(other, row) for row in odd]))


def test_the_gradient_does_not_depend_on_the_micro_batches(student: Student, teacher: FrozenTeacher) -> None:
    signal = TeacherSignal(teacher)
    whole = gradient_of_step(student, ROWS, signal, Divergence())
    for size in (1, 50, 90):
        shuffled, plan = Random(size).sample(ROWS, len(ROWS)), replace(UNCLIPPED, tokens_at_once=size)
        torch.testing.assert_close(gradient_of_step(student, shuffled, signal, Divergence(), plan), whole)


def test_the_teacher_reads_the_whole_reply_also_where_its_beginning_is_no_target() -> None:
    row = replace(Prompt("a", [1, 2], None, [3, 4, 5]).with_reply([6, 7, 8]), targets=[False, False, False, True, True])
    assert row.for_teacher.tokens == [3, 4, 5, 6, 7, 8]
    assert row.for_teacher.targets == [False] * 4 + [True] * 2
    unlearned = replace(row, targets=[False] * 5)
    assert unlearned.for_teacher.tokens == row.for_teacher.tokens


LENGTHS = st.tuples(st.integers(1, 30), st.one_of(st.none(), st.integers(1, 60)), st.integers(1, 20))


@given(st.lists(LENGTHS, min_size=1, max_size=12), st.integers(1, 200))
def test_the_longer_of_both_rows_bounds_a_micro_batch(lengths: list[tuple[int, int | None, int]], size: int) -> None:
    rows = [
        Prompt(str(i), [1] * prompt, None, None if shown is None else [2] * shown).with_reply([3 + i] * reply)
        for i, (prompt, shown, reply) in enumerate(lengths)
    ]
    groups = list(micro_batches(rows, size))
    assert sorted(row.prompt or "" for group in groups for row in group) == sorted(str(i) for i in range(len(rows)))
    for group in groups:
        read = [row.for_teacher for row in group]
        longest = max(len(row.tokens) for row in [*group, *read])
        assert len(group) == 1 or longest * len(group) <= size
        student, teacher = Batch.collate(group, 0), Batch.collate(read, 0)
        assert student.target_rows.tolist() == teacher.target_rows.tolist()
        assert student.target_tokens.tolist() == teacher.target_tokens.tolist()


def test_the_context_is_counted(student: Student, teacher: FrozenTeacher) -> None:
    bare = [replace(row, teacher_prompt=None) for row in ROWS]
    longer, shorter = (flops_of_step(student, TeacherSignal(teacher), rows, rolled_out=False) for rows in (ROWS, bare))
    added = sum(len(row.for_teacher.tokens) - len(row.tokens) for row in ROWS)
    assert added != 0
    assert longer - shorter == pytest.approx(2.0 * student.parameters * added)


@pytest.mark.parametrize("adapter", [None, Adapter(rank=3)])
def test_the_average_moves_by_its_share_and_shares_what_is_not_trained(tmp_path: Path, adapter: Adapter | None) -> None:
    student = load_student(str(save_tiny(tmp_path)), adapter=adapter)
    teacher = EmaTeacher(student, decay=0.9)
    before = [p.detach().clone() for p in student.trainable()]
    with torch.no_grad():
        for p in student.trainable():
            p.add_(1.0)
    teacher.move()
    averages = list(teacher._weights().values())
    assert len(averages) == len(before)
    for average, start in zip(averages, before, strict=True):
        torch.testing.assert_close(average, start + 0.1)
        assert not average.requires_grad
    frozen = {id(p) for p in student.model.parameters() if not p.requires_grad}
    assert {id(p) for p in teacher._average.model.parameters()} >= frozen


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", [LiveTeacher, EmaTeacher])
def test_a_self_teacher_leaves_the_students_gradient_intact(tmp_path: Path, kind: type, bf16: bool) -> None:
    """A self-teacher that has not moved is a frozen copy of the student."""
    folder = str(save_tiny(tmp_path, seed=4))
    gradients = []
    for own in (True, False):
        student = load_student(folder)
        signal = TeacherSignal(kind(student) if own else FrozenTeacher(folder))
        plan = Plan(1, 0.0, bf16=bf16, tokens_at_once=40)
        gradients.append(gradient_of_step(student, ROWS, signal, Divergence(), plan))
    assert gradients[0].norm() > 1e-3
    assert torch.equal(*gradients)


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_a_decay_outside_its_range_is_refused(student: Student, decay: float) -> None:
    with pytest.raises(RecoverError, match="at least 0 and below 1"):
        EmaTeacher(student, decay)


DOMAINS = ["old", None, "old", "unknown", None]
ROUTED = [
    Sample(
        list(range(5 + i, 12 + i + i % 3)),
        [False, False] + [True] * (5 + i % 3),
        logprobs=[-6.0] * (5 + i % 3),
        domain=domain,
    )
    for i, domain in enumerate(DOMAINS)
]
OLD, NEW = ([i for i, d in enumerate(DOMAINS) if (d == "old") is old] for old in (True, False))


@pytest.fixture
def later(tmp_path: Path) -> FrozenTeacher:
    return FrozenTeacher(str(save_tiny(tmp_path / "later", seed=2)), dtype=torch.float64)


@pytest.fixture
def router(teacher: FrozenTeacher, later: FrozenTeacher) -> RouterTeacher:
    return RouterTeacher(teacher, {"old": later})


@pytest.mark.parametrize("objective", [Divergence(), Divergence(beta=0.5), SampledGradient(1e9)])
def test_the_gradient_combines_each_teacher_on_its_rows(
    objective: Objective, student: Student, router: RouterTeacher, teacher: FrozenTeacher, later: FrozenTeacher
) -> None:
    groups = list(micro_batches(ROUTED, 10_000, TeacherSignal(router).domains))
    assert len(groups) == 2 < len(set(DOMAINS)), "domains without a teacher of their own share a batch"
    mixed = gradient_of_step(student, ROUTED, TeacherSignal(router), objective)
    total, summed = sum(row.target_count for row in ROUTED), torch.zeros_like(mixed)
    for own, domain in ((later, OLD), (teacher, NEW)):
        rows = [ROUTED[i] for i in domain]
        share = sum(row.target_count for row in rows) / total
        summed += share * gradient_of_step(student, rows, TeacherSignal(own), objective)
    assert mixed.norm() > 1e-4
    torch.testing.assert_close(mixed, summed, atol=1e-6, rtol=1e-4)


def test_each_teachers_pass_is_counted_once(student: Student, router: RouterTeacher, teacher: FrozenTeacher) -> None:
    costs = [flops_of_step(student, TeacherSignal(t), ROUTED, rolled_out=False) for t in (router, teacher)]
    assert costs[0] == costs[1]  # both teachers have one size
    assert costs[0] > flops_of_step(student, Labels(), ROUTED, rolled_out=False)


def test_a_training_binds_its_teachers(tmp_path: Path) -> None:
    """From Python nobody else does: heads may be padded to different sizes, or tokenizers differ."""
    student = load_student(str(save_tiny(tmp_path / "student")))
    padded = FrozenTeacher(str(save_tiny(tmp_path / "padded", seed=1, padding=5)))
    prompt = Prompt("hi", student.chat.prompt("hi"))
    states = Rollouts([prompt], TransformersEngine(student), rows=2, max_new_tokens=4)
    for teacher in (padded, InContext(padded), RouterTeacher(padded, {})):
        [step] = train(student, states, TeacherSignal(teacher), Divergence(), Plan(steps=1, learning_rate=1e-3))
        assert step.kl > 0
    other = FrozenTeacher(str(FAMILIES["qwen3"].save(tmp_path / "other")))
    with pytest.raises(RecoverError, match="different tokenizers"):
        next(train(student, states, TeacherSignal(other), Divergence(), Plan(steps=1, learning_rate=1e-3)))


@pytest.mark.parametrize("padding", [(20, 0, 10), (20, 10, 0), (0, 20, 10), (10, 10, 20), (10, 20, 10), (20, 10, 10)])
def test_models_use_the_fewest_vocabulary_rows(tmp_path: Path, padding: tuple[int, int, int]) -> None:
    folders = [str(save_tiny(tmp_path / str(i), seed=i, padding=rows)) for i, rows in enumerate(padding)]
    student, pair = load_student(folders[0]), [FrozenTeacher(folder) for folder in folders[1:]]
    for teacher in pair:
        teacher.bind_student(student)
    router, fewest = RouterTeacher(pair[0], {"old": pair[1]}), 259 + min(padding)
    assert student.head.weight.shape[0] == fewest
    assert router.distribution(Batch.collate(ROUTED[:1], 0)).logprobs(slice(None)).shape[-1] == fewest
    assert gradient_of_step(student, ROUTED, TeacherSignal(router), Divergence()).isfinite().all()
