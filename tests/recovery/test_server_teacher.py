from pathlib import Path

import pytest
import torch

from recovery.engines import servers
from recovery.engines.served_model import Probe
from recovery.errors import RecoverError
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy, Divergence, Objective, SampledGradient, loss_of_chunk
from recovery.samples import Batch, Sample
from recovery.server_teacher import ServerTeacher
from recovery.signals import TeacherSignal
from recovery.teachers import FrozenTeacher, InContext, Teacher
from recovery.telemetry import report_tokens
from tests.gradients import gradient_of_step
from tests.models import save_tiny
from tests.recovery.engines.small_server import SmallServer, serving

ROWS = [
    Sample(list(range(5 + i, 12 + 2 * i)), [False, False] + [True] * (5 + i), logprobs=[-6.0] * (5 + i))
    for i in range(4)
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("teacher"), seed=1))


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return load_student(str(save_tiny(tmp_path / "student", seed=3)))


@pytest.fixture
def server(reference: str) -> SmallServer:
    return SmallServer(load_student(reference, frozen=True))


def connect(student: Student, named: str, reference: str, **options: int) -> ServerTeacher:
    own = Probe(student.chat).logprobs(load_student(reference, frozen=True))
    return ServerTeacher(student, named, reference, own, **options)


@pytest.fixture(autouse=True)
def patient_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PAUSES", (0.0, 0.1))


def gradient(student: Student, teacher: Teacher, objective: Objective) -> torch.Tensor:
    return gradient_of_step(student, ROWS, TeacherSignal(teacher), objective)


@pytest.mark.parametrize("objective", [
    Divergence(), Divergence(0.0), Divergence(0.5), Divergence(clip=0.05), CrossEntropy(anchor=0.1),
    SampledGradient(1e9),
])  # fmt: skip
def test_the_gradient_nears_that_of_the_whole_distribution_the_more_is_listed(
    objective: Objective, student: Student, server: SmallServer, reference: str
) -> None:
    whole = gradient(student, FrozenTeacher(reference), objective)
    with serving(server) as named:
        few, most = (
            (gradient(student, connect(student, named, reference, listed=n), objective) - whole).norm() / whole.norm()
            for n in (8, 258)  # of 259
        )
    assert most < 1e-3
    assert most < few < 1


def test_the_sampled_and_the_likeliest_tokens_are_listed(student: Student, server: SmallServer, reference: str) -> None:
    batch = Batch.collate(ROWS, 0)
    whole = FrozenTeacher(reference).distribution(batch).logprobs(slice(None))
    with serving(server) as named:
        listed = connect(student, named, reference, listed=6).distribution(batch)
    torch.testing.assert_close(listed.values, whole.gather(-1, listed.tokens), atol=1e-5, rtol=1e-5)
    assert torch.equal(listed.tokens[:, 0], batch.target_tokens)
    with pytest.raises(ValueError, match="Only the sampled tokens"):
        listed.at_tokens(listed.values, batch.target_tokens + 1, slice(None))
    tokens, values = listed.likeliest(slice(None), 3)
    torch.testing.assert_close(values, whole.topk(3).values, atol=1e-5, rtol=1e-5)
    assert torch.equal(tokens, whole.topk(3).indices)
    with pytest.raises(RecoverError, match="Load this teacher on this machine"):
        listed.logprobs(slice(None))


def test_the_entropy_is_that_of_all_tokens_not_of_the_listed(
    student: Student, server: SmallServer, reference: str
) -> None:
    batch, teacher = Batch.collate(ROWS, 0), FrozenTeacher(reference)
    logits = student.head.logits(student.hidden(batch))
    with serving(server) as named:
        served = connect(student, named, reference, listed=4)
        entropies = [
            loss_of_chunk(Divergence(), TeacherSignal(one).compute(batch), batch, 1.0)(logits, slice(None)).metrics
            for one in (served, teacher)
        ]
    torch.testing.assert_close(entropies[0]["entropy"], entropies[1]["entropy"])


def test_a_served_teacher_in_context_reads_its_prompt(student: Student, server: SmallServer, reference: str) -> None:
    row = Sample([5, 6, 7, 8, 9], [False, False, True, True, True], teacher_prompt=[40, 41, 42, 5, 6], prompt_length=2)
    batch = Batch.collate([row], 0)
    local = InContext(FrozenTeacher(reference)).distribution(batch).logprobs(slice(None))
    with serving(server) as named:
        remote = InContext(connect(student, named, reference)).distribution(batch)
    torch.testing.assert_close(remote.values, local.gather(-1, remote.tokens), atol=1e-5, rtol=1e-5)


def test_rollouts_are_reported_with_the_teachers_choices(student: Student, server: SmallServer, reference: str) -> None:
    with serving(server) as named:
        ((token, *_),) = report_tokens(student, connect(student, named, reference), ROWS[:1])
    ((own, *_),) = report_tokens(student, FrozenTeacher(reference), ROWS[:1])
    assert [text for text, _ in token.teacher] == [text for text, _ in own.teacher]
    assert 0 < token.kl <= own.kl + 1e-5


def test_a_server_that_comes_back_with_another_model_is_refused(
    student: Student, server: SmallServer, reference: str, tmp_path: Path
) -> None:
    with serving(server) as named:
        teacher = connect(student, named, reference)
        server.fail_at = {server.completions + 2}
        server.student = load_student(str(save_tiny(tmp_path / "other", seed=8)), frozen=True)
        with pytest.raises(RecoverError, match="another model than the teacher"):
            teacher.distribution(Batch.collate(ROWS, 0))
