"""Engine and teacher on a real vLLM server, in float32 on both sides."""

from collections.abc import Iterator

import pytest
import torch

from recovery.engines import Sampling
from recovery.engines.http import HttpEngine
from recovery.engines.served_model import Probe
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.objectives import Divergence
from recovery.samples import Batch, Sample
from recovery.server_teacher import ServerTeacher
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train
from tests.recovery.engines.agreement import assert_log_probs_agree
from tests.vllm_server import VllmServer, running

pytestmark = pytest.mark.vllm
CLOSE = 1e-3
TEXTS = ["Name a colour.", "Which river is the longest?", "Say hello in three words.", "Count to five."]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = VllmServer(str(BASE), tmp_path_factory.mktemp("server") / "lab.log", rank=8)
    with running(server):
        yield server.address


def rollouts(student: Student, engine: HttpEngine) -> Rollouts:
    return Rollouts([Prompt(t, student.chat.prompt(t)) for t in TEXTS], engine, rows=4, max_new_tokens=12)


def assert_agrees(student: Student, engine: HttpEngine) -> None:
    prompts = [student.chat.prompt(text) for text in TEXTS]
    assert_log_probs_agree(student, engine, prompts, Sampling(16, seed=5), within=CLOSE)


def test_an_adapter_agrees_before_and_after_updates(lab: str) -> None:
    student = load_student(str(BASE), adapter=Adapter(rank=4))
    engine = HttpEngine(student, lab)
    assert_agrees(student, engine)
    own = Probe(student.chat).logprobs(student)
    teacher = ServerTeacher(student, lab, str(BASE), own)  # the base, on the server that also has the adapter
    steps = list(train(student, rollouts(student, engine), TeacherSignal(teacher), Divergence(), Plan(3, 1e-2)))
    assert steps[0].kl == pytest.approx(0, abs=1e-4)
    engine.sync(student)
    assert Probe(student.chat).logprobs(student) != pytest.approx(own, abs=0.01)
    assert_agrees(student, engine)
    engine.close()


def test_the_teacher_lists_what_the_same_model_here_has(lab: str) -> None:
    student, reference = load_student(str(BASE), adapter=Adapter(rank=4)), FrozenTeacher(str(BASE))
    tokens = student.chat.prompt(TEXTS[1])
    batch = Batch.collate([Sample(tokens, [False, False] + [True] * (len(tokens) - 2))], 0)
    whole = reference.distribution(batch).logprobs(slice(None))
    listed = ServerTeacher(student, lab, str(BASE), Probe(student.chat).logprobs(student)).distribution(batch)
    torch.testing.assert_close(listed.values, whole.gather(-1, listed.tokens), atol=CLOSE, rtol=0)
    torch.testing.assert_close(listed.likeliest(slice(None), 3)[1], whole.topk(3).values, atol=CLOSE, rtol=0)


def test_an_adapter_that_the_server_cannot_load_is_refused_with_the_command(lab: str) -> None:
    student = load_student(str(BASE), adapter=Adapter(rank=32))
    with pytest.raises(RecoverError, match=r"loads no adapter .*rank 32.* --max-lora-rank 32"):
        HttpEngine(student, lab)
