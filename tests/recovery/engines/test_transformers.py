from pathlib import Path

import pytest
import torch

from recovery.engines import Sampling, transformers
from recovery.engines.decoding import FixedDecoder
from recovery.engines.transformers import TransformersEngine
from recovery.models.adapters import Adapter
from recovery.models.students import load_student, save_student
from tests.models import save_tiny, tiny_student
from tests.recovery.engines.agreement import assert_samples_follow_the_model

PROMPTS = ["hi", "a much longer question than that", "ok?", "x"]


@pytest.mark.parametrize(("saved", "eos"), [("full", [2]), ("adapter", [2, 60])])
@pytest.mark.parametrize("of_turns", [False, True])
def test_every_eos_ends_a_reply_and_the_separator_unless_it_is_one_of_turns_alone(
    tmp_path: Path, of_turns: bool, eos: list[int], saved: str
) -> None:
    base = str(save_tiny(tmp_path / "base", eos=eos))
    save_student(load_student(base, adapter=Adapter(2) if saved == "adapter" else None), tmp_path / "saved", {})
    student = load_student(str(tmp_path / "saved"))
    assert student.has_adapter == (saved == "adapter")
    all_ends, prompt = {*eos, student.chat.separator}, student.chat.prompt("hi")
    ends = set(eos) if of_turns else all_ends
    assert student.chat.eos_ids == all_ends
    engine = TransformersEngine(student)
    generations = engine.generate([prompt] * 200, Sampling(200, seed=0, of_turns=of_turns))
    for g in generations:
        assert g.finished == (g.tokens[-1] in ends)
        assert not set(g.tokens[:-1]) & ends
    assert {g.tokens[-1] for g in generations if g.finished} == ends
    for g in (next(g for g in generations if g.tokens[-1] == end) for end in ends):
        assert g.logprobs == pytest.approx(engine.logprobs([prompt + g.tokens])[0][-len(g.tokens) :], abs=1e-4)
        assert student.chat.text(g.tokens) == student.chat.text(g.tokens[:-1])  # letters are stop tokens here, too
    assert all(len(g.tokens) == 200 for g in generations if not g.finished)


def test_sampling_follows_the_models_distribution(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    assert_samples_follow_the_model(student, TransformersEngine(student))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_fixed_decoder_samples_the_same_as_the_growing_one(tmp_path: Path, attention: str) -> None:
    student = load_student(str(save_tiny(tmp_path, eos=[2, 60])))
    student.causal.set_attn_implementation(attention)  # eager attention adds its mask, so it gets no boolean one
    prompts = [student.chat.prompt(p) for p in PROMPTS * 20]
    sampling = Sampling(60, seed=5)
    growing, fixed = (TransformersEngine(student, fixed=value).generate(prompts, sampling) for value in (False, True))
    assert len({len(g.tokens) for g in growing}) > 10  # rows finished at many lengths
    assert [(g.tokens, g.finished) for g in fixed] == [(g.tokens, g.finished) for g in growing]
    assert TransformersEngine(student).generate(prompts, Sampling(60, seed=6)) != growing
    for ours, theirs in zip(fixed, growing, strict=True):
        torch.testing.assert_close(torch.tensor(ours.logprobs), torch.tensor(theirs.logprobs), atol=1e-5, rtol=1e-4)


def test_the_memory_of_the_fixed_decoder_is_known_in_advance(tmp_path: Path) -> None:
    model = tiny_student(tmp_path).model
    tokens, mask = torch.ones(3, 5, dtype=torch.long), torch.ones(3, 5, dtype=torch.long)
    cache = model(tokens, use_cache=True).past_key_values
    expected = FixedDecoder.required_bytes(cache, mask, new_tokens=7)
    fixed = FixedDecoder.from_prefill(model, cache, mask, new_tokens=7).cache
    used = sum(states.nbytes for layer in fixed.layers for states in (layer.keys, layer.values))
    assert expected == used
    assert cache.layers == []  # no layer is stored twice


def batches_of(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """Return a list that collects the prompts of each batch from now on."""
    batches: list[list[list[int]]] = []
    generate = engine._generate_batch
    monkeypatch.setattr(
        engine, "_generate_batch", lambda prompts, *rest: batches.append(prompts) or generate(prompts, *rest)
    )
    return batches


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("budget", [0, 60, 200, 1000])  # in tokens; the longest prompt and its reply take more than 60
def test_memory_bounds_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool, budget: int) -> None:
    student = load_student(str(save_tiny(tmp_path, eos=[2, 60])))
    prompts = [student.chat.prompt(p) for p in PROMPTS * 3]
    whole = TransformersEngine(student).generate(prompts, Sampling(20, temperature=0))
    token_bytes = 2 * 2 * 1 * 16 * 4  # layers, keys and values, heads, width, float32
    monkeypatch.setattr(transformers, "_memory_budget", lambda device: budget * token_bytes)
    engine = TransformersEngine(student, fixed=fixed)
    batches = batches_of(engine, monkeypatch)
    assert [g.tokens for g in engine.generate(prompts, Sampling(20, temperature=0))] == [g.tokens for g in whole]
    assert sorted(p for batch in batches for p in batch) == sorted(prompts)
    areas = [len(batch) * (max(map(len, batch)) + 20) for batch in batches]
    assert all(area <= budget or len(batch) == 1 for area, batch in zip(areas, batches, strict=True))
    for area, batch, after in zip(areas, batches, batches[1:], strict=False):
        assert area + max(map(len, batch)) + 20 > budget or len(after[0]) > max(
            map(len, batch)
        )  # no prompt was left that would fit


def test_the_memory_of_a_machine_does_not_limit_small_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TransformersEngine(tiny_student(tmp_path))
    batches = batches_of(engine, monkeypatch)
    engine.generate([[5, 6, 7]] * 300, Sampling(2))
    assert list(map(len, batches)) == [256, 44]
    assert engine.generate([], Sampling(2)) == []
