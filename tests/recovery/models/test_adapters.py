import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AdaLoraConfig, IA3Config, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from pipelines import model_loading
from pipelines.model_loading import load_trained
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models import adapters
from recovery.models.adapters import WEIGHTS, Adapter, base_of, saved_rank
from recovery.models.interpolation import InterpolationError, WeightInterpolation, merge
from recovery.models.students import Student, load_causal, load_student, parameters_of, save_student
from recovery.objectives import CrossEntropy
from recovery.samples import Batch, Sample
from recovery.signals import Labels
from recovery.states import FixedRows
from recovery.teachers import AdapterOffTeacher, AdapterTeacher, FrozenTeacher, Teacher, can_switch_to
from recovery.train import Plan, train
from tests.models import change_json, save_tiny, tiny_tokenizer
from tests.recovery.models.test_model_families import tiny

ROWS = [Sample([3 + i, 40, 50 + i, 60, 70 + i], [False, False, True, True, True]) for i in range(4)]
BATCH = Batch.collate(ROWS, 0)
LOW, HIGH = Adapter(rank=3, alpha=6), Adapter(rank=5, alpha=3)  # scales 2 and 0.6


def learn(student: Student, steps: int = 3) -> Student:
    list(train(student, FixedRows(ROWS, rows=4), Labels(), CrossEntropy(), Plan(steps, 1e-2)))
    return student


def halfway(student: Student, clean: str) -> Student:
    return WeightInterpolation(student, clean).move_to(0.5)


@torch.no_grad()
def logits(student: Student) -> torch.Tensor:
    return student.head.logits(student.hidden(BATCH))


def teacher_logprobs(teacher: Teacher) -> torch.Tensor:
    return teacher.distribution(BATCH).logprobs(slice(None))


@pytest.fixture
def first(tmp_path: Path, base: str) -> Path:
    student = learn(load_student(base, adapter=LOW))
    save_student(student, tmp_path / "first", {"parent": base})
    return tmp_path / "first"


def copy_tokenizer(base: str, folder: Path) -> None:
    shutil.copytree(base, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))


def saved(base: str, folder: Path, **options: Any) -> Path:
    """An adapter as peft itself saves it, with random weights."""
    torch.manual_seed(0)
    config = LoraConfig(**({"r": 2, "target_modules": ["q_proj", "down_proj"]} | options))
    model = get_peft_model(load_causal(base, torch.float32), config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    copy_tokenizer(base, folder)
    return folder


def test_a_saved_adapter_loads_unchanged_and_can_be_trained_further(tmp_path: Path, base: str) -> None:
    student = learn(load_student(base, adapter=LOW))
    save_student(student, tmp_path / "a", {})
    again = load_student(str(tmp_path / "a"))
    assert torch.equal(logits(again), logits(student))
    assert sum(p.numel() for p in again.trainable()) == sum(p.numel() for p in student.trainable())
    assert not load_student(str(tmp_path / "a"), frozen=True).trainable()
    assert not torch.equal(logits(learn(again)), logits(student))


def test_a_copied_adapter_has_the_base_that_was_copied_with_it(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "first" / "base")
    save_student(load_student(str(base), adapter=LOW), tmp_path / "first" / "adapter", {})
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    for folder in ("second", "first"):
        assert base_of(str(tmp_path / folder / "adapter")) == str((tmp_path / folder / "base").resolve())
    assert saved_rank(str(tmp_path / "first" / "adapter")) == LOW.rank
    assert saved_rank(str(base)) == 0


def test_a_new_adapter_is_reproducible(base: str) -> None:
    weights = [[p.clone() for p in load_student(base, adapter=Adapter(3, seed=s)).trainable()] for s in (1, 1, 2)]
    assert all(map(torch.equal, weights[0], weights[1]))
    assert not all(map(torch.equal, weights[0], weights[2]))


def test_merged_weights_are_equivalent_to_the_adapter(tmp_path: Path, first: Path) -> None:
    student = learn(load_student(str(first)))
    expected = logits(student)
    save_student(merge(student), tmp_path / "merged", {"parent": str(first)})
    again = load_student(str(tmp_path / "merged"))
    torch.testing.assert_close(logits(again), expected, atol=1e-5, rtol=1e-5)
    assert json.loads((tmp_path / "merged" / "recover.json").read_text())["kind"] == "full"
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    with pytest.raises(RecoverError, match="full weights already"):
        merge(again)


def test_a_merge_and_a_saved_adapter_keep_the_dtype(tmp_path: Path, base: str) -> None:
    load_causal(base, torch.bfloat16).save_pretrained(tmp_path / "half")
    copy_tokenizer(base, tmp_path / "half")
    student = load_student(str(tmp_path / "half"), adapter=LOW, dtype="auto")
    save_student(student, tmp_path / "a", {})
    again = load_student(str(tmp_path / "a"), dtype="auto")
    saved = {t.dtype for t in load_file(tmp_path / "a" / "adapter_model.safetensors").values()}
    assert saved == {p.dtype for p in again.trainable()}
    save_student(merge(again), tmp_path / "merged", {})
    assert {t.dtype for t in load_file(tmp_path / "merged" / "model.safetensors").values()} == {torch.bfloat16}


def test_interpolation_of_full_weights(base: str) -> None:
    student, clean = learn(load_student(base)), load_student(base, frozen=True)
    damaged = {n: p.clone() for n, p in student.model.named_parameters()}
    ends = dict(clean.model.named_parameters())
    interpolation, updates = WeightInterpolation(student, base), student.updates
    interpolation.move_to(0.25)
    for name, p in student.model.named_parameters():
        torch.testing.assert_close(p, ends[name] + 0.75 * (damaged[name] - ends[name]), atol=1e-6, rtol=1e-5)
    assert student.updates == updates + 1
    interpolation.move_to(1)
    assert all(torch.equal(p, ends[n]) for n, p in student.model.named_parameters())
    interpolation.move_to(0)
    assert all(torch.equal(p, damaged[n]) for n, p in student.model.named_parameters())


def test_interpolation_of_an_adapter_scales_it(tmp_path: Path, base: str, first: Path) -> None:
    """Half the scale of the adapter equals half the way of the merged weights."""
    student = halfway(learn(load_student(str(first))), base)
    whole = merge(learn(load_student(str(first))))
    torch.testing.assert_close(logits(student), logits(halfway(whole, base)), atol=1e-5, rtol=1e-5)
    save_student(student, tmp_path / "half", {})
    torch.testing.assert_close(
        logits(load_student(str(tmp_path / "half"), frozen=True)), logits(student), atol=1e-5, rtol=1e-5
    )
    clean = load_student(base, frozen=True)
    assert torch.equal(logits(WeightInterpolation(student, base).move_to(1.0)), logits(clean))
    copy = str(shutil.copytree(base, tmp_path / "copy"))
    assert torch.equal(logits(WeightInterpolation(student, copy).move_to(1.0)), logits(clean)), (
        "also a copy of its base"
    )


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["embed_tokens"]}, "saved modules"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embeddings"),
    ],
)
def test_an_adapter_that_is_not_plain_lora_is_neither_scaled_nor_served(
    tmp_path: Path, base: str, options: dict[str, Any], used: str
) -> None:
    student = load_student(str(saved(base, tmp_path / "adapter", **options)))
    with pytest.raises(InterpolationError, match=f"The adapter uses {used}, so scaling it does not lead to"):
        WeightInterpolation(student, base)
    with pytest.raises(RecoverError, match=f"This adapter uses {used}, which vLLM does not support"):
        adapters.check_plain_lora(student.model)


def test_an_adapter_that_peft_cannot_merge_is_exported_by_itself(tmp_path: Path, base: str) -> None:
    folder = saved(base, tmp_path / "adapter", target_modules=["o_proj"], lora_bias=True)
    with pytest.raises(RecoverError, match=r"cannot be merged into its base \(.*\)\. Export it by itself"):
        merge(load_student(str(folder)))


def test_another_method_than_lora_and_trained_tokens_are_named(tmp_path: Path, base: str) -> None:
    untied = str(save_tiny(tmp_path / "untied", tied=False))
    other = IA3Config(target_modules=["k_proj"], feedforward_modules=[])
    tokens = LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=[5, 6])
    named = [
        adapters.beyond_plain_lora(get_peft_model(load_causal(model, torch.float32), config))
        for model, config in ((base, other), (untied, tokens))
    ]
    assert named == ["another method than LoRA", "trained tokens"]


def test_a_head_of_its_own_moves_to_a_tied_one_and_not_the_other_way_round(tmp_path: Path, base: str) -> None:
    tied, untied = load_causal(base, torch.float32), load_causal(base, torch.float32)
    untied.config.tie_word_embeddings = False
    untied.lm_head.weight = torch.nn.Parameter(untied.lm_head.weight.detach() + 0.1)
    untied.save_pretrained(tmp_path / "untied")
    copy_tokenizer(base, tmp_path / "untied")
    student = load_student(str(tmp_path / "untied"))
    assert not torch.equal(student.causal.lm_head.weight, tied.lm_head.weight)
    WeightInterpolation(student, base).move_to(1.0)
    assert torch.equal(student.causal.lm_head.weight, tied.lm_head.weight)
    with pytest.raises(InterpolationError, match="different shapes"):
        WeightInterpolation(load_student(base), str(tmp_path / "untied"))


def test_adapters_off_is_refused_if_the_base_is_not_clean(tmp_path: Path, base: str, first: Path) -> None:
    with pytest.raises(RecoverError, match="own weights are being trained"):
        AdapterOffTeacher(load_student(base))
    save_student(merge(load_student(str(first))), tmp_path / "merged", {"parent": str(first)})
    student = load_student(str(tmp_path / "merged"), adapter=LOW)
    with pytest.raises(RecoverError, match="trained from"):
        AdapterOffTeacher(student)
    with pytest.raises(RecoverError, match=r"sits on .*merged"):
        AdapterOffTeacher(student, base)
    AdapterOffTeacher(student, str(tmp_path / "merged"))  # named explicitly


def test_an_adapter_teacher_and_one_with_the_adapter_off_share_the_students_base(
    tmp_path: Path, base: str, first: Path
) -> None:
    student = learn(load_student(base, adapter=HIGH), steps=1)
    weights = sum(p.numel() for p in student.causal.parameters())
    learning, before = student.trainable(), logits(student)
    teacher = AdapterTeacher(student, str(first))
    torch.testing.assert_close(teacher_logprobs(teacher), teacher_logprobs(FrozenTeacher(str(first))))
    torch.testing.assert_close(teacher_logprobs(AdapterOffTeacher(student)), teacher_logprobs(FrozenTeacher(base)))
    assert [id(p) for p in student.trainable()] == [id(p) for p in learning]
    assert torch.equal(logits(student), before)
    added = sum(t.numel() for t in load_file(first / "adapter_model.safetensors").values())
    assert sum(p.numel() for p in student.causal.parameters()) == weights + added
    save_student(learn(student), tmp_path / "taught", {})
    assert not list((tmp_path / "taught").glob("teacher*"))
    assert torch.equal(logits(load_student(str(tmp_path / "taught"), frozen=True)), logits(student))
    torch.testing.assert_close(teacher_logprobs(teacher), teacher_logprobs(FrozenTeacher(str(first))))


def test_an_adapter_on_another_base_is_neither_moved_there_nor_a_teacher(tmp_path: Path, first: Path) -> None:
    other = str(save_tiny(tmp_path / "other", seed=5))
    with pytest.raises(RecoverError, match="sits on"):
        WeightInterpolation(load_student(str(first)), other)
    student = load_student(other, adapter=LOW)
    with pytest.raises(RecoverError, match="cannot share"):
        AdapterTeacher(student, str(first))
    with pytest.raises(RecoverError, match="holds no adapter"):
        AdapterTeacher(student, other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"init_lora_weights": "pissa_niter_4"}, "begun with pissa_niter_4"),
        ({"target_modules": ["q_proj"], "modules_to_save": ["down_proj"]}, "cannot be loaded"),
    ],
)
def test_an_adapter_teacher_that_cannot_share_the_base_leaves_it_as_it_is(
    tmp_path: Path, base: str, options: dict[str, Any], sentence: str
) -> None:
    folder, student = saved(base, tmp_path / "tuned", **options), load_student(base, adapter=HIGH)
    before = logits(student)
    with pytest.raises(RecoverError, match=sentence):
        AdapterTeacher(student, str(folder))
    assert torch.equal(logits(student), before)


def test_weights_that_no_layer_takes_are_refused(base: str, first: Path) -> None:
    """As those of single experts, where a model has all of a layer in one tensor."""
    weights = load_file(first / WEIGHTS)
    unused = {
        name.replace("down_proj", "experts.0.w1"): w.clone() for name, w in weights.items() if "down_proj" in name
    }
    save_file(weights | unused, first / WEIGHTS, {"format": "pt"})
    for load in (load_student, lambda folder: AdapterTeacher(load_student(base, adapter=HIGH), folder)):
        with pytest.raises(RecoverError, match=rf"^No layer takes the weights .*experts.* \({len(unused)} such in all"):
            load(str(first))


def test_an_adalora_that_has_given_up_ranks_is_loaded(base: str, tmp_path: Path) -> None:
    config = AdaLoraConfig(target_modules=["q_proj"], init_r=4, target_r=2, total_step=10, task_type="CAUSAL_LM")
    model = get_peft_model(load_causal(base, torch.float32), config)
    names = [name.removeprefix("base_model.model.") for name, _ in model.named_parameters() if "lora_E" in name]
    config.rank_pattern = {name: [True, False, True, False] for name in names}
    model.save_pretrained(tmp_path / "adalora")
    copy_tokenizer(base, tmp_path / "adalora")
    student = load_student(str(tmp_path / "adalora"))
    ranks = [len(weight) for name, weight in student.model.named_parameters() if "lora_E" in name]
    assert ranks == [2] * len(names)
    assert saved_rank(str(tmp_path / "adalora")) == config.r


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"alora_invocation_tokens": [1, 2]}, "activated LoRA"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer replication"),
        ({"peft_type": "POLY"}, "Poly"),
    ],
)
def test_adapters_of_kinds_that_are_not_supported_are_named(first: Path, options: dict[str, Any], kind: str) -> None:
    change_json(first / "adapter_config.json", **options)
    with pytest.raises(RecoverError, match=f"uses {kind}, which is not supported"):
        load_student(str(first))


def test_an_adapter_teacher_has_no_dropout(base: str, first: Path) -> None:
    change_json(first / "adapter_config.json", lora_dropout=0.5)
    student = load_student(base, adapter=HIGH)
    teacher = AdapterTeacher(student, str(first))
    student.model.train()
    torch.testing.assert_close(teacher_logprobs(teacher), teacher_logprobs(teacher), rtol=0, atol=0)
    torch.testing.assert_close(
        teacher_logprobs(teacher), teacher_logprobs(FrozenTeacher(str(first))), rtol=1e-4, atol=1e-5
    )


def test_an_adapter_finds_its_base_anywhere_and_after_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path / "project" / "base")
    monkeypatch.chdir(tmp_path / "project")
    student = learn(load_student("base", adapter=LOW), steps=1)
    save_student(student, Path("adapter"), {})
    monkeypatch.chdir(tmp_path)
    assert torch.equal(logits(load_student("project/adapter")), logits(student))
    shutil.move(tmp_path / "project", tmp_path / "elsewhere")
    assert torch.equal(logits(load_student("elsewhere/adapter")), logits(student))
    assert parameters_of("elsewhere/adapter") == parameters_of("elsewhere/base")
    shutil.move(tmp_path / "elsewhere" / "base", tmp_path / "away")
    with pytest.raises(RecoverError, match=r"base of the adapter .* is missing"):
        load_student("elsewhere/adapter")


def test_an_adapter_locates_the_built_in_base_in_the_current_installation(tmp_path: Path) -> None:
    config = {"base_model_name_or_path": "/gone/lib/python3.11/site-packages/recovery/lab/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    assert adapters.base_of(str(tmp_path)) == str(BASE)


def test_saving_makes_no_request_to_the_hub(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    student = load_student(base, adapter=LOW)
    student.model.peft_config["default"].base_model_name_or_path = "org/name"
    requests: list[str] = []
    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda name, *_: requests.append(name))
    (tmp_path / "a").mkdir()
    adapters.save(student.model, tmp_path / "a")
    assert requests == []
    assert all("lora_" in name for name in load_file(tmp_path / "a" / "adapter_model.safetensors"))


def test_an_adapter_loaded_by_transformers_itself_is_refused(first: Path) -> None:
    """transformers loads an adapter by its hub id together with its base."""
    with pytest.raises(RecoverError, match="is an adapter on the hub"):
        load_causal(str(first), torch.float32)


def test_an_adapter_that_changes_the_output_head_is_refused(tmp_path: Path) -> None:
    base = str(save_tiny(tmp_path / "base", tied=False))
    wide = str(saved(base, tmp_path / "wide", target_modules=["q_proj", "lm_head"]))
    with pytest.raises(RecoverError, match="changes the output head"):
        load_student(wide)
    with pytest.raises(RecoverError, match="changes the output head"):
        AdapterTeacher(load_student(base, adapter=LOW), wide)


def test_merging_an_adapter_of_tied_embeddings_leaves_the_head(tmp_path: Path) -> None:
    base = str(save_tiny(tmp_path / "base", tied=True))
    folder = str(saved(base, tmp_path / "tuned", target_modules=["q_proj", "embed_tokens"]))
    before = logits(load_student(folder))
    save_student(merge(load_student(folder)), tmp_path / "merged", {})
    torch.testing.assert_close(logits(load_student(str(tmp_path / "merged"))), before)


def test_an_adapter_that_trains_biases_is_not_switched_off(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=259, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    base = str(tmp_path / "base")
    Qwen2ForCausalLM(config).save_pretrained(base)
    tiny_tokenizer().save_pretrained(base)
    plain, biases = (
        load_student(str(saved(base, tmp_path / bias, target_modules=["q_proj"], bias=bias)))
        for bias in ("none", "all")
    )
    assert can_switch_to(plain, base)
    assert not can_switch_to(biases, base)
    with pytest.raises(RecoverError, match="biases"):
        AdapterOffTeacher(biases, base)
    for student, teacher in ((plain, biases), (biases, plain)):
        with pytest.raises(RecoverError, match="trains biases or tokens of the base"):
            AdapterTeacher(student, teacher.path)


def test_weights_beside_an_adapter_train_in_float32(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_loading, "SMALL_MODEL_PARAMETERS", 0)
    for options, dtype in (({}, torch.bfloat16), ({"modules_to_save": ["input_layernorm"]}, torch.float32)):
        student = load_trained(str(saved(base, tmp_path / dtype.__repr__(), **options)), None, bf16=True)
        assert {p.dtype for p in student.trainable()} == {torch.float32}
        assert student.causal.get_input_embeddings().weight.dtype == dtype


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder: (folder / "adapter_config.json").write_text("{"), "adapter_config.json is not valid JSON"),
        (lambda folder: (folder / "recover.json").write_text("{"), "recover.json is not valid JSON"),
        (lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"), "Pickled weights are not loaded"),
        (lambda folder: change_json(folder / "adapter_config.json", peft_type="NEW"), "cannot be loaded"),
        (lambda folder: change_json(folder / "adapter_config.json", target_modules=["qkv"]), "cannot be loaded"),
        (lambda folder: change_json(folder / "adapter_config.json", r="x"), "cannot be loaded"),
        (lambda folder: (folder / "adapter_config.json").write_text("[1]"), "must hold a JSON object"),
        (lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:99]), "cannot be loaded"),
        (lambda folder: change_json(folder / "adapter_config.json", base_model_name_or_path=None), "names no base"),
        (lambda folder: rename_weights(folder, "self_attn", "attention"), "lacks weights of layers of"),
        (lambda folder: change_json(folder / "adapter_config.json", init_lora_weights="pissa"), "begun with pissa"),
    ],
)
def test_a_broken_adapter_is_one_sentence(
    tmp_path: Path, base: str, change: Callable[[Path], object], sentence: str
) -> None:
    folder = saved(base, tmp_path / "tuned")
    change(folder)
    with pytest.raises(RecoverError, match=sentence):
        load_student(str(folder))


def rename_weights(folder: Path, old: str, new: str) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file({name.replace(old, new): tensor for name, tensor in weights.items()}, folder / WEIGHTS)


def test_an_adapter_on_a_quantised_base_says_what_to_name_instead(tmp_path: Path, base: str) -> None:
    folder = saved(base, tmp_path / "tuned")
    change_json(Path(base) / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(RecoverError, match=r"names a quantised base .* into .*adapter_config.json"):
        load_student(str(folder))


@pytest.mark.parametrize("family", ["falcon_h1", "falcon_mamba"])
def test_layers_whose_kernels_read_their_weights_have_no_adapter(tmp_path: Path, family: str) -> None:
    tiny(family).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    kinds = adapters.layer_kinds(load_student(str(tmp_path), adapter=LOW).model)
    assert "in_proj" in kinds
    assert "out_proj" not in kinds
