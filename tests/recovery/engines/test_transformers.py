from pathlib import Path

import pytest
import torch

from recovery.engines import Sampling, transformers
from recovery.engines.decoding import FixedDecoder
from recovery.engines.transformers import TransformersEngine
from recovery.models.adapters import Adapter
from recovery.models.students import load_student, save_student
from tests.models import save_tiny, tiny_student

PROMPTS = ["hi", "a much longer question than that", "ok?", "x"]


def test_logprobs_are_those_of_one_plain_forward_pass(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    engine = TransformersEngine(student)
    prompts = [student.chat.prompt(p) for p in PROMPTS]
    for prompt, g in zip(prompts, engine.generate(prompts, Sampling(20, seed=3)), strict=True):
        tokens = torch.tensor([prompt + g.tokens])
        log_p = torch.log_softmax(student.model(tokens).logits[0, :-1].float(), -1)
        alone = log_p.gather(-1, tokens[0, 1:, None]).squeeze(-1)
        torch.testing.assert_close(torch.tensor(g.logprobs), alone[len(prompt) - 1 :].detach(), atol=1e-4, rtol=1e-4)
        again = engine.logprobs([prompt + g.tokens])[0]
        torch.testing.assert_close(torch.tensor(again), alone.detach(), atol=1e-4, rtol=1e-4)


def test_greedy_answers_do_not_depend_on_the_company(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    engine = TransformersEngine(student)
    prompts = [student.chat.prompt(p) for p in PROMPTS]
    together = engine.generate(prompts, Sampling(15, temperature=0))
    alone = [engine.generate([p], Sampling(15, temperature=0))[0] for p in prompts]
    assert [g.tokens for g in together] == [g.tokens for g in alone]


def test_the_same_seed_writes_the_same(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    engine = TransformersEngine(student)
    prompts = [student.chat.prompt(p) for p in PROMPTS]
    once, twice, other = (engine.generate(prompts, Sampling(10, seed=s)) for s in (1, 1, 2))
    assert once == twice
    assert once != other


@pytest.mark.parametrize("stored", ["full", "adapter"])
@pytest.mark.parametrize("eos", [[2], [2, 60]])
def test_every_eos_ends_a_reply(tmp_path: Path, eos: list[int], stored: str) -> None:
    base = str(save_tiny(tmp_path / "base", eos=eos))
    save_student(load_student(base, adapter=Adapter(2) if stored == "adapter" else None), tmp_path / "saved", {})
    student = load_student(str(tmp_path / "saved"))
    assert student.has_adapter == (stored == "adapter")
    assert student.chat.eos_ids == frozenset(eos)
    written = TransformersEngine(student).generate([student.chat.prompt("hi")] * 200, Sampling(200, seed=0))
    for g in written:
        assert g.finished == (g.tokens[-1] in eos)
        assert not set(g.tokens[:-1]) & set(eos)
    assert any(g.finished for g in written)
    assert {g.tokens[-1] for g in written if g.finished} == set(eos)
    assert all(len(g.tokens) == 200 for g in written if not g.finished)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_tensors_that_stay_where_they_are_write_the_same(tmp_path: Path, attention: str) -> None:
    student = load_student(str(save_tiny(tmp_path, eos=[2, 60])))
    student.causal.set_attn_implementation(attention)  # one that adds its mask is not given one of booleans
    prompts = [student.chat.prompt(p) for p in PROMPTS * 20]
    sampling = Sampling(60, seed=5)
    growing, fixed = (TransformersEngine(student, fixed=each).generate(prompts, sampling) for each in (False, True))
    assert len({len(g.tokens) for g in growing}) > 10  # rows left at many lengths
    assert [(g.tokens, g.finished) for g in fixed] == [(g.tokens, g.finished) for g in growing]
    for one, other in zip(fixed, growing, strict=True):
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-5, rtol=1e-4)


def test_what_the_tensors_that_stay_will_take_is_known_before(tmp_path: Path) -> None:
    model = tiny_student(tmp_path).model
    tokens, mask = torch.ones(3, 5, dtype=torch.long), torch.ones(3, 5, dtype=torch.long)
    cache = model(tokens, use_cache=True).past_key_values
    expected = FixedDecoder.required_bytes(cache, mask, new_tokens=7)
    made = FixedDecoder.from_prefill(model, cache, mask, new_tokens=7).cache
    taken = sum(states.nbytes for layer in made.layers for states in (layer.keys, layer.values))
    assert expected == taken
    assert cache.layers == []  # nothing is kept twice


def batches_of(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """The prompts of each batch that it writes from now on."""
    seen: list[list[list[int]]] = []
    plain = engine._generate_batch
    monkeypatch.setattr(engine, "_generate_batch", lambda prompts, *rest: seen.append(prompts) or plain(prompts, *rest))
    return seen


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("room", [0, 60, 200, 1000])  # in tokens; the longest prompt and its reply take more than 60
def test_a_batch_takes_no_more_rows_than_find_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool, room: int
) -> None:
    student = load_student(str(save_tiny(tmp_path, eos=[2, 60])))
    prompts = [student.chat.prompt(p) for p in PROMPTS * 5]
    whole = TransformersEngine(student).generate(prompts, Sampling(20, temperature=0))
    a_token = 2 * 2 * 1 * 16 * 4  # layers, keys and values, heads, width, float32
    monkeypatch.setattr(transformers, "_memory_budget", lambda device: room * a_token)
    engine = TransformersEngine(student, fixed=fixed)
    seen = batches_of(engine, monkeypatch)
    assert [g.tokens for g in engine.generate(prompts, Sampling(20, temperature=0))] == [g.tokens for g in whole]
    assert sorted(p for batch in seen for p in batch) == sorted(prompts)
    areas = [len(batch) * (max(map(len, batch)) + 20) for batch in seen]
    assert all(area <= room or len(batch) == 1 for area, batch in zip(areas, seen, strict=True))
    for area, batch, after in zip(areas, seen, seen[1:], strict=False):
        assert area + max(map(len, batch)) + 20 > room or len(after[0]) > max(map(len, batch))  # none that found room


def test_a_machines_own_room_cuts_no_batch_of_small_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TransformersEngine(tiny_student(tmp_path))
    seen = batches_of(engine, monkeypatch)
    engine.generate([[5, 6, 7]] * 300, Sampling(2))
    assert list(map(len, seen)) == [256, 44]
    assert engine.generate([], Sampling(2)) == []
