import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from evals.harness import HarnessModel
from evals.subject import Subject
from recovery.engines import Sampling, transformers
from recovery.engines.decoding import bytes_per_token
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.families import set_training
from recovery.models.students import Student, load_student, window_of
from recovery.samples import Batch, Sample
from tests.models import tiny_student, tiny_tokenizer

SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


QWEN3 = ("qwen3", {})
GPT2 = ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4})
BLOOM = ("bloom", {"n_layer": 2, "n_head": 4})  # positions through the mask
GEMMA2 = ("gemma2", {"sliding_window": 16, "final_logit_softcapping": 0.5})
LFM2 = ("lfm2", {"layer_types": ["conv", "full_attention"]})  # caches states besides keys and values
EXPERTS = ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16})
GPT1 = ("openai-gpt", {"n_embd": 32, "n_layer": 2, "n_head": 4})  # has no cache, as RWKV
DOGE = ("doge", {})  # a mask of its own for each head
PHIMOE = ("phimoe", {"num_local_experts": 4, "head_dim": None})
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 1e4}
# These rescale positions behind the first 16.
PHI3 = (
    "phi3",
    {"max_position_embeddings": 64, "original_max_position_embeddings": 16, "rope_parameters": LONGROPE},
)
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
LLAMA = ("llama", {"max_position_embeddings": 16, "rope_parameters": DYNAMIC})


def tiny(family: str, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {name: value for name, value in (SIZES | options).items() if value is not None}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()


INKLING = {  # scales its states before the output layer
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "sliding_window_size": 16,
    "rel_extent": 16,
    "mlp_layer_types": ["dense", "dense"],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "options", "supported"),
    [
        ("qwen3", {}, True),
        ("cohere", {"logit_scale": 0.25}, True),
        ("granite", {"logits_scaling": 4.0}, True),
        ("hyperclovax", {"logits_scaling": 0.25}, True),
        ("gemma2", {"final_logit_softcapping": 0.5}, True),
        ("recurrent_gemma", {"logits_soft_cap": 0.5}, True),
        ("xlstm", {"output_logit_soft_cap": 0.5}, True),
        ("mamba", {}, True),  # float32 states with bfloat16 weights
        ("inkling_text", INKLING, False),
        ("inkling_text", INKLING | {"logits_mup_width_multiplier": 1.0}, True),
        ("inkling_text", INKLING | {"logits_mup_width_multiplier": 1.0, "unpadded_vocab_size": 250}, False),
    ],
)
def test_a_family_is_supported_if_the_head_computes_its_logits(
    family: str, options: dict[str, Any], supported: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    tiny(family, **options).to(dtype).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with contextlib.nullcontext() if supported else pytest.raises(RecoverError, match="another family"):
        load_student(str(tmp_path), dtype="auto", frozen=True)


def test_attention_is_capped_where_the_family_caps_it(tmp_path: Path) -> None:
    options = {"sliding_window": 16, "attn_logit_softcapping": 0.1}
    model = tiny("gemma2", **options, attn_implementation="eager")
    for weights in (p for name, p in model.named_parameters() if "q_proj" in name or "k_proj" in name):
        torch.nn.init.normal_(weights)  # so that scores are beyond the cap
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    tokens, student = torch.randint(3, 64, (2, 12)), load_student(str(tmp_path), frozen=True)
    with torch.no_grad():
        torch.testing.assert_close(student.causal(tokens).logits, model(tokens).logits)
        student.causal.set_attn_implementation("sdpa")
        assert not torch.allclose(student.causal(tokens).logits, model(tokens).logits, atol=1e-3)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen3", {"attention_dropout": 0.5}),
        ("bloom", {"n_layer": 2, "n_head": 4, "hidden_dropout": 0.5, "attention_dropout": 0.5}),
        ("seed_oss", {"residual_dropout": 0.5}),
        ("starcoder2", {"residual_dropout": 0.5, "embedding_dropout": 0.5}),
        ("falcon", {"hidden_dropout": 0.5, "head_dim": None}),
        ("mixtral", {"num_local_experts": 4, "router_jitter_noise": 0.1, "head_dim": None}),
        ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32, "num_hidden_layers": 8, "layerdrop": 0.5}),
    ],
)
def test_dropout_is_disabled_in_training(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(family, **options)
    tokens = torch.randint(3, 64, (2, 5))
    with torch.no_grad():
        assert not torch.equal(model.train()(tokens).logits, model(tokens).logits)
        Student(model, tiny_student(tmp_path).chat, family)
        assert torch.equal(model.train()(tokens).logits, model.eval()(tokens).logits)


def test_what_is_no_noise_stays_as_it_is(tmp_path: Path) -> None:
    """PhiMoE's router_jitter_noise is a threshold that decides the weights of its experts."""
    family, options = PHIMOE
    model = tiny(family, **options)
    tokens = torch.randint(3, 64, (2, 5))
    with torch.no_grad():
        before = model(tokens).logits
        Student(model, tiny_student(tmp_path).chat, family)
        assert torch.equal(model(tokens).logits, before)


@pytest.mark.parametrize(("family", "options"), [PHIMOE, EXPERTS])
def test_the_experts_of_a_training_are_those_of_its_rollouts(family: str, options: dict[str, Any]) -> None:
    model = tiny(family, **options)
    tokens = torch.randint(3, 64, (4, 12))
    with torch.no_grad():
        before = model(tokens).logits
        set_training(model)
        assert torch.equal(model(tokens).logits, before)
    assert model.training


@pytest.mark.parametrize(("family", "options"), [QWEN3, GPT2, BLOOM, GEMMA2, LFM2, EXPERTS, DOGE])
def test_rollout_logprobs_equal_those_of_a_forward_pass(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model, chat = tiny(family, **options), tiny_student(tmp_path).chat
    engine = TransformersEngine(Student(model, chat, family))
    prompts = [chat.prompt(text) for text in ("hi", "a much longer question than that", "ok?", "hi")]
    for prompt, g in zip(prompts, engine.generate(prompts, Sampling(40, seed=3)), strict=True):
        tokens = torch.tensor([prompt + g.tokens])
        with torch.no_grad():
            log_p = torch.log_softmax(model(tokens).logits[0, :-1].float(), -1)
        alone = log_p.gather(-1, tokens[0, 1:, None]).squeeze(-1)
        torch.testing.assert_close(torch.tensor(g.logprobs), alone[len(prompt) - 1 :], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.tensor(engine.logprobs([tokens[0].tolist()])[0]), alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("family", "options"), [("minimax", {"num_local_experts": 2}), ("deepseek_v4", {}), GPT1])
def test_a_family_is_refused_if_its_cache_cannot_generate_in_batches(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    engine = TransformersEngine(Student(tiny(family, **options), tiny_student(tmp_path).chat, family))
    with pytest.raises(RecoverError, match=f"cannot generate with models of the family {family} here"):
        engine.generate([[5, 6, 7]], Sampling(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("family", "options"), [QWEN3, GPT2, BLOOM, GEMMA2, LFM2, EXPERTS, DOGE, PHIMOE])
def test_a_family_is_checked_once_in_any_precision(
    family: str, options: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    student = Student(tiny(family, **options).to(dtype), tiny_student(tmp_path).chat, family)
    TransformersEngine(student).generate([[5, 6, 7]], Sampling(2))
    assert student.causal in transformers.agreeing


@pytest.mark.parametrize(
    ("family", "options"),
    [QWEN3, GEMMA2, LFM2, DOGE, ("mamba", {}), ("falcon_mamba", {}), ("minimax", {"num_local_experts": 2})],
)
def test_a_shared_context_changes_no_states(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    student = Student(tiny(family, **options), tiny_student(tmp_path).chat, family)
    rows = [Sample.behind([*range(3, 3 + n)], [30, 31 + n, 32]) for n in (9, 10, 12)]
    batch = Batch.collate(rows, 0)
    with torch.no_grad():
        torch.testing.assert_close(student.hidden(replace(batch, shared=8)), student.hidden(batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "options"),
    [QWEN3, GPT2, BLOOM, GEMMA2, LFM2, ("mamba", {}), ("recurrent_gemma", {}), EXPERTS, ("rwkv", {}), GPT1],
)
def test_continuations_of_shared_contexts_score_as_texts_of_their_own(
    family: str, options: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    engine = TransformersEngine(Student(tiny(family, **options).to(dtype), tiny_student(tmp_path).chat, family))
    contexts = [engine.student.chat.prompt(text) for text in ("hi", "a much longer question than that", "ok?", "ha")]
    pairs = [(context, [*range(40, 40 + n)]) for context in contexts for n in (1, 3, 7)] + [(contexts[0], [9, 8])]
    scores = engine.continuation_logprobs(*zip(*pairs, strict=True))
    for (context, continuation), row in zip(pairs, scores, strict=True):
        alone = engine.logprobs([context + continuation])[0][-len(continuation) :]
        tolerance = 1e-4 if dtype == torch.float32 else 0.2
        torch.testing.assert_close(torch.tensor(row), torch.tensor(alone), atol=tolerance, rtol=tolerance)
    assert engine.continuation_logprobs([], []) == []


@pytest.mark.parametrize(("family", "options"), [QWEN3, GPT2, GEMMA2, LFM2])
def test_the_cache_size_is_measured_from_one_token(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(family, **options)
    engine = TransformersEngine(Student(model, tiny_student(tmp_path).chat, family))
    with torch.no_grad():
        _, of_one_token = engine._prefill_batch([[7]])
        cache = model(torch.ones(3, 10, dtype=torch.long), use_cache=True).past_key_values
    states = [getattr(layer, kind, None) for layer in cache.layers for kind in ("keys", "values")]
    assert bytes_per_token(of_one_token) * 3 * 10 == sum(s.nbytes for s in states if s is not None) > 0


@pytest.mark.parametrize(("family", "options"), [(GPT2[0], GPT2[1] | {"n_positions": 16}), PHI3, LLAMA])
def test_texts_and_replies_end_with_the_learned_positions(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(family, **options, eos_token_id=None)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    engine = TransformersEngine(load_student(str(tmp_path), frozen=True))
    row = [3 + i for i in range(17)]  # the last token is not read
    expected = model(torch.tensor([row[:-1]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(torch.tensor(engine.logprobs([row])[0]), expected[range(16), row[1:]])
    [reply] = engine.generate([[5] * 12], Sampling(40, temperature=0.0))
    assert reply.finished or len(reply.tokens) == 5
    alone, beside = engine.generate([[5, 6]], Sampling(10)), engine.generate([[5, 6], [5] * 12], Sampling(10))
    assert beside[0] == alone[0]
    with pytest.raises(RecoverError, match="17 tokens is longer than the 16"):
        engine.generate([[5] * 17], Sampling(4))
    with pytest.raises(RecoverError, match="18 tokens is longer than the 16"):
        engine.logprobs([[5] * 18])
    torch.testing.assert_close(
        torch.tensor(engine.continuation_logprobs([row[:9]], [row[9:]])[0]), expected[range(8, 16), row[9:]]
    )
    with pytest.raises(RecoverError, match="18 tokens is longer than the 16"):
        engine.continuation_logprobs([[5] * 12], [[5] * 6])
    assert window_of(str(tmp_path)) == 16
    assert HarnessModel(Subject(engine, engine.student.chat))._window() == 16
