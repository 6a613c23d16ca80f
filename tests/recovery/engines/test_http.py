from pathlib import Path
from typing import Any

import pytest
import torch

from recovery.engines import Generation, Sampling, servers
from recovery.engines.http import HttpEngine
from recovery.engines.servers import Server, Servers, Unavailable, parse_addresses
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from tests.models import save_tiny
from tests.recovery.engines.agreement import assert_log_probs_agree
from tests.recovery.engines.small_server import SmallServer, serving

TEXTS = ["hi", "a longer question than that", "ok?", "x", "and this"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("base"), eos=[2, 60]))


@pytest.fixture
def student(base: str) -> Student:
    return load_student(base, adapter=Adapter(rank=2, alpha=16))


@pytest.fixture
def server(base: str) -> SmallServer:
    return SmallServer(load_student(base, frozen=True))


@pytest.fixture(autouse=True)
def patient_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PAUSES", (0.0, 0.1))
    monkeypatch.setattr(servers, "TIMEOUT", 30.0)


def prompts(student: Student) -> list[list[int]]:
    return [student.chat.prompt(text) for text in TEXTS]


def change(student: Student, scale: float = 0.1) -> None:
    """What an optimiser step does, but larger."""
    torch.manual_seed(student.updates)
    for parameter in student.trainable():
        parameter.data += scale * torch.randn_like(parameter)
    student.updates += 1


def assert_agrees(student: Student, engine: HttpEngine) -> list[Generation]:
    return assert_log_probs_agree(student, engine, prompts(student), Sampling(12, seed=3))


def test_log_probs_agree_before_and_after_updates_of_an_adapter(student: Student, server: SmallServer) -> None:
    with serving(server) as named:
        engine = HttpEngine(student, named)
        before = assert_agrees(student, engine)
        for _ in range(2):
            change(student)
            engine.sync(student)
            assert assert_agrees(student, engine) != before
        assert len(server.adapters) == 1  # those before are unloaded
        engine.close()
        assert not server.adapters


def test_full_weights_that_are_trained_are_refused_and_frozen_ones_served(base: str, server: SmallServer) -> None:
    with serving(server) as named:
        with pytest.raises(RecoverError, match=r"generate for adapters.*lora_rank"):
            HttpEngine(load_student(base), named)
        student = load_student(base, frozen=True)
        assert_agrees(student, HttpEngine(student, named))
        student.model.get_decoder().norm.weight.data *= 2
        with pytest.raises(RecoverError, match=r"serves another model than .* Start it with that model: vllm serve"):
            HttpEngine(student, named)


def test_servers_share_the_rows_and_one_that_is_gone_leaves_its_own_to_the_others(
    base: str, student: Student, server: SmallServer
) -> None:
    second, sampling = SmallServer(load_student(base, frozen=True)), Sampling(12, seed=3)
    with serving(server) as one:
        alone = HttpEngine(student, one).generate(prompts(student), sampling)
        with serving(second) as two:
            engine, counts = HttpEngine(student, f"{two},{one}"), (server.completions, second.completions)
            assert engine.generate(prompts(student), sampling) == alone
            assert server.completions > counts[0]
            assert second.completions > counts[1]
        assert engine.generate(prompts(student), sampling) == alone


def test_tokens_that_the_teacher_lacks_are_the_students_own(student: Student, server: SmallServer) -> None:
    with serving(server) as named:
        expected = HttpEngine(student, named).generate(prompts(student), Sampling(12, seed=3))
        student.vocabulary = 1
        assert HttpEngine(student, named).generate(prompts(student), Sampling(12, seed=3)) == expected


@pytest.mark.parametrize("of_turns", [False, True])
def test_a_turn_goes_on_behind_the_separator(of_turns: bool, student: Student, server: SmallServer) -> None:
    sampling, separator = Sampling(60, seed=8, of_turns=of_turns), student.chat.separator
    with serving(server) as named:
        replies = HttpEngine(student, named).generate(prompts(student), sampling)
    assert any(separator in reply.tokens[:-1] for reply in replies) == of_turns
    assert any(reply.tokens[-1] == separator and reply.finished for reply in replies) != of_turns


@pytest.mark.parametrize("loses_adapters", [False, True])
def test_a_call_is_repeated_when_a_server_fails(loses_adapters: bool, student: Student, server: SmallServer) -> None:
    change(student)
    with serving(server) as named:
        engine = HttpEngine(student, named)
        expected = engine.generate(prompts(student), Sampling(12, seed=3))
        server.loses_adapters = loses_adapters
        server.fail_at = {server.completions + 3}
        assert engine.generate(prompts(student), Sampling(12, seed=3)) == expected
        assert server.paths.count("/v1/load_lora_adapter") == 2  # proven anew before the second attempt


def test_rows_that_were_answered_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REQUESTS_AT_ONCE", 1)  # in the order of the rows
    monkeypatch.setattr(servers, "PAUSES", (0.0,))
    asked: list[int] = []

    def double(server: Server, row: int) -> int:
        asked.append(row)
        if asked.count(3) == 1 and row == 3:
            raise Unavailable("it fails once")
        return 2 * row

    assert Servers("http://127.0.0.1:1", lambda server: None).run(double, 5, "rows") == [0, 2, 4, 6, 8]
    assert [asked.count(row) for row in range(4)] == [1, 1, 1, 2]


@pytest.mark.parametrize("kind", ["gone", "stalled", "broken"])
def test_no_rows_are_returned_when_no_server_recovers(kind: str, student: Student, server: SmallServer) -> None:
    with serving(server) as named:
        engine = HttpEngine(student, named)
        engine._servers.servers[0].timeout = 0.2  # from now on: a busy machine may take longer to begin
        server.stall_seconds = 0.5 if kind == "stalled" else 0.0
        server.fail_at = set(range(1000)) if kind == "broken" else set()
        if kind != "gone":
            with pytest.raises(RecoverError, match=r"No answer from http://127.* Start the server again"):
                engine.generate(prompts(student), Sampling(12))
    if kind == "gone":
        with pytest.raises(RecoverError, match=r"No answer from .*recover resume"):
            engine.generate(prompts(student), Sampling(12))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": [5000]}, "a token that the student lacks"),
        ({"token_ids": [5, 6], "finish_reason": "stop"}, "ends replies at other tokens"),
        ({"token_ids": [5, 6], "finish_reason": "length"}, "leaves out token ids"),
        ({"token_ids": None}, "leaves out token ids"),
        ({"token_ids": [5, 6, 7]}, "leaves out token ids or their log-probs"),
        ({"logprobs": {"token_logprobs": None}}, "leaves out token ids or their log-probs"),
        ({"prompt_token_ids": [1, 2]}, "another model or prompt"),
        ({"prompt_logprobs": [None, {}]}, "leaves out log-probs"),
    ],
)
def test_bad_answers_are_refused(changes: dict[str, Any], message: str, student: Student, server: SmallServer) -> None:
    with serving(server) as named:
        engine = HttpEngine(student, named)
        server.changes = {"logprobs": {"token_logprobs": [-1.0] * (1 + (message[:4] == "ends"))}} | changes
        with pytest.raises(RecoverError, match=message):
            engine.logprobs([[5, 6, 7]]) if "prompt_logprobs" in changes else engine.generate([[5, 6]], Sampling(4))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 9, "eos": [2, 60]}, r"another model than the one below the student's adapter .* --max-lora-rank 8"),
        ({"adds_bos": True}, "tokenizer is another"),
        ({"template": "{{ messages[0].content }}"}, "chat template is another"),
        (None, "does not serve the student's weights"),
    ],
)
def test_a_server_with_other_weights_is_refused(
    other: dict[str, Any] | None, message: str, student: Student, server: SmallServer, tmp_path: Path
) -> None:
    change(student)
    if other:
        server.student = load_student(str(save_tiny(tmp_path, **other)), frozen=True)
    else:
        server.loads_adapters = False
    with serving(server) as named, pytest.raises(RecoverError, match=message):
        HttpEngine(student, named)


def test_a_stale_adapter_is_noticed(student: Student, server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    change(student)
    with serving(server) as named:
        engine = HttpEngine(student, named)
        (stale,) = server.adapters.values()
        monkeypatch.setattr("tests.recovery.engines.small_server.load_student", lambda *_, **__: stale)
        change(student, 0.01)
        engine.sync(student)
        with pytest.raises(RecoverError, match="does not serve the student's weights"):
            engine.generate(prompts(student), Sampling(4))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("http://user:password@host:1", "must not hold a key"),
        ("http://host:port", "is no address"),
        ("http://host:99999", "is no address"),
        ("http://host:1/path", "is no address"),
        ("http://one:1,two:2", "is no address"),
        ("http://one:1,http://one:1/v1", "one address twice"),
    ],
)
def test_other_addresses_are_refused(named: str, message: str) -> None:
    with pytest.raises(RecoverError, match=message) as refused:
        parse_addresses(named)
    assert "password@" not in str(refused.value)
