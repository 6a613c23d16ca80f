import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.fine_tunes import FineTune, inspect_fine_tune
from recovery.models.interpolation import WeightInterpolation
from recovery.models.students import load_causal, load_student
from recovery.recipes import objective_of, recipe, signal_of
from recovery.samples import Batch, Sample
from recovery.states import Prompt, Rollouts
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train
from tests.models import CHATML, change_json, save_tiny, tiny_tokenizer

ADDED = ["<zebra>", "<quagga>", "<pad>"]


def fine_tune(base: str, folder: Path, *, tokens: tuple[str, ...] = (), template: str = CHATML) -> str:
    """The base with slightly other weights, and perhaps more tokens or another template."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    if tokens:
        tokenizer.add_tokens(list(tokens))
        tokenizer.pad_token = tokens[-1]
        model.resize_token_embeddings(len(tokenizer))
    tokenizer.chat_template = template
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_the_files_say_what_a_fine_tune_is(base: str, tmp_path: Path) -> None:
    assert inspect_fine_tune(base, base).same_weights
    assert inspect_fine_tune(fine_tune(base, tmp_path / "plain"), base) == FineTune()
    changed = fine_tune(base, tmp_path / "template", template=CHATML.replace("<|im_start|>assistant\n", "Answer: "))
    about = inspect_fine_tune(changed, base)
    assert about == FineTune(other_template=True)
    assert "chat template is not that of" in about.notes("base")[0]
    added = inspect_fine_tune(fine_tune(base, tmp_path / "added", tokens=tuple(ADDED)), base)
    assert added == FineTune(added_tokens=3)
    assert "3 tokens that base lacks" in added.notes("base")[0]


def test_weights_that_differ_in_one_matrix_are_not_those_of_the_base(base: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "changed"))
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        save_file(weights | {name: weight + 0.01}, folder / "model.safetensors", {"format": "pt"})
        assert not inspect_fine_tune(str(folder), base).same_weights, name


def test_a_trained_head_beside_a_tied_base_and_rows_of_new_tokens_are_no_weights_of_the_base(
    base: str, tmp_path: Path
) -> None:
    untied, weights = Path(fine_tune(base, tmp_path)), load_file(Path(base) / "model.safetensors")
    head, embedding = "lm_head.weight", weights["model.embed_tokens.weight"]
    change_json(untied / "config.json", tie_word_embeddings=False)
    for trained, own in ((0.0, True), (0.1, False)):
        save_file(weights | {head: embedding + trained}, untied / "model.safetensors", {"format": "pt"})
        assert inspect_fine_tune(str(untied), base).same_weights == own
    assert not inspect_fine_tune(with_rows(base, tmp_path / "rows", 264), base).same_weights


def with_rows(base: str, folder: Path, rows: int) -> str:
    model = AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(rows)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return str(folder)


def test_rows_of_padding_may_be_missing_and_those_of_tokens_not(base: str, tmp_path: Path) -> None:
    assert inspect_fine_tune(base, with_rows(base, tmp_path / "padded", 264)).same_weights
    with pytest.raises(RecoverError, match=r"has embeddings for 250 tokens, but .* has 259 tokens"):
        inspect_fine_tune(with_rows(base, tmp_path / "shrunk", 250), base)


def test_a_padding_token_without_an_embedding_pads_nothing(base: str, tmp_path: Path) -> None:
    """Trained with packing, such a token is never read."""
    folder = fine_tune(base, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    student = load_student(folder)
    assert student.chat.tokenizer.pad_token_id == 259, "where the embeddings end"
    prompts = [student.chat.prompt(text) for text in ("Hi", "A longer prompt")]
    assert len(TransformersEngine(student).generate(prompts, Sampling(4))) == 2


def adapter(base: str, folder: Path, **options: Any) -> str:
    model = AutoModelForCausalLM.from_pretrained(base)
    if tokens := options.pop("tokens", 0):
        model.resize_token_embeddings(tokens)
    get_peft_model(model, LoraConfig(**({"r": 2, "target_modules": ["q_proj"]} | options))).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target_modules": ["q_proj", "lm_head"]}, "changes the output head"),
        ({"trainable_token_indices": [5]}, "changes the output head"),
        ({"trainable_token_indices": {"lm_head": [5]}}, "changes the output head"),
        ({"tokens": 264}, r"does not fit .* \(model\.embed_tokens\.weight has another shape\)\. If it added tokens"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_is_refused_by_its_files(
    base: str, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    plain = adapter(base, tmp_path / "plain")
    assert inspect_fine_tune(plain, base) == FineTune(same_weights=True), "nothing was trained"
    weights = load_file(Path(plain) / "adapter_model.safetensors")
    last = next(name for name in weights if ".lora_B" in name)
    save_file(weights | {last: weights[last] + 0.1}, Path(plain) / "adapter_model.safetensors", {"format": "pt"})
    assert inspect_fine_tune(plain, base) == FineTune()
    with pytest.raises(RecoverError, match=sentence):
        inspect_fine_tune(adapter(base, tmp_path / "other", **options), base)


def test_an_adapter_may_train_tokens_that_the_head_does_not_share(tmp_path: Path) -> None:
    base = str(save_tiny(tmp_path / "base", tied=False))
    tokens = adapter(base, tmp_path / "tokens", trainable_token_indices=[5])
    assert inspect_fine_tune(tokens, base) == FineTune()
    load_student(tokens)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("peft_type", "LATER", r"cannot be read .* or install a newer peft\.$"),
        ("base_model_name_or_path", "outputs/sft/merged", r"The base of .* is missing \(its config names 'outputs/sft"),
        ("base_model_name_or_path", "models/llama", r"from 'models/llama' .* It is the base of the adapter: .*_config"),
    ],
)
def test_an_adapter_of_an_unknown_kind_or_on_a_base_that_is_gone_is_one_sentence(
    base: str, tmp_path: Path, name: str, value: str, sentence: str
) -> None:
    folder = adapter(base, tmp_path)
    change_json(tmp_path / "adapter_config.json", **{name: value})
    with pytest.raises(RecoverError, match=sentence):
        inspect_fine_tune(folder, base)


def test_limits_beside_the_weights_may_be_infinite_scalars(base: str, tmp_path: Path) -> None:
    """As those of clipped layers that were never calibrated."""
    folders = [Path(fine_tune(base, tmp_path / name)) for name in ("tuned", "base")]
    for folder in folders:
        weights = load_file(folder / "model.safetensors")
        limits = {"a.input_max": torch.tensor(torch.inf), "a.input_min": torch.tensor(-torch.inf)}
        save_file(weights | limits, folder / "model.safetensors", {"format": "pt"})
    assert inspect_fine_tune(str(folders[0]), str(folders[1])) == FineTune()


def test_the_index_of_former_shards_does_not_count_beside_one_file(base: str, tmp_path: Path) -> None:
    folder = Path(fine_tune(base, tmp_path))
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"model.norm.weight": "model-1-of-2"}}')
    assert inspect_fine_tune(str(folder), base) == FineTune()


@pytest.mark.parametrize("index", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_a_broken_index_of_the_weights_is_named(base: str, tmp_path: Path, index: str) -> None:
    folder = Path(fine_tune(base, tmp_path))
    (folder / "model.safetensors").rename(folder / "model-1-of-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    sentence = r"The file .*index\.json does not say which file holds which weights .* Copy or download it again"
    with pytest.raises(RecoverError, match=sentence):
        inspect_fine_tune(str(folder), base)
    with pytest.raises(RecoverError, match=sentence):
        load_causal(str(folder), torch.float32)


@pytest.mark.parametrize("values", [{"num_hidden_layers": 3}, {"hidden_size": "large"}])
def test_a_config_that_is_not_valid_is_named(base: str, tmp_path: Path, values: dict[str, Any]) -> None:
    folder = fine_tune(base, tmp_path)
    change_json(tmp_path / "config.json", **values)
    with pytest.raises(RecoverError, match=rf"The config\.json of .* is not valid \(.*{next(iter(values))}.*\)\. Copy"):
        inspect_fine_tune(folder, base)


def test_a_base_without_a_chat_is_named(base: str, tmp_path: Path) -> None:
    plain = fine_tune(base, tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    with pytest.raises(RecoverError, match=r"The base .*plain has no chat template"):
        inspect_fine_tune(fine_tune(base, tmp_path / "tuned"), plain)


def test_a_learned_prompt_is_refused(base: str, tmp_path: Path) -> None:
    config = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path)
    with pytest.raises(RecoverError, match="learned a prompt instead of weights"):
        inspect_fine_tune(str(tmp_path), base)


@pytest.mark.parametrize("name", ["opd", "offpolicy-kl"])
def test_the_common_tokens_are_distilled_where_the_student_has_more(base: str, tmp_path: Path, name: str) -> None:
    student = load_student(fine_tune(base, tmp_path / "added", tokens=tuple(ADDED)))
    teacher = FrozenTeacher(base)
    teacher.bind_student(student)
    assert student.vocabulary == 259
    with torch.no_grad():  # so that rollouts have added tokens
        student.causal.get_input_embeddings().weight[259:] *= 30
    chosen = recipe(name)
    prompts = [Prompt(text, student.chat.prompt(text)) for text in ("Hi", "A longer prompt", "Who?")]
    states = Rollouts(prompts, TransformersEngine(student), rows=6, max_new_tokens=12)
    samples = states.draw(student, 0)
    assert all(token < 259 for sample in samples for token in sample.tokens)
    steps = list(train(student, states, signal_of(chosen, teacher), objective_of(chosen), Plan(2, 1e-4)))
    assert all(step.kl is not None and step.kl >= 0 for step in steps)


def test_a_row_with_a_token_that_the_teacher_lacks_is_refused_and_padding_is_not(base: str, tmp_path: Path) -> None:
    student = load_student(fine_tune(base, tmp_path / "added", tokens=tuple(ADDED)))
    teacher = FrozenTeacher(base)
    teacher.bind_student(student)
    known = [Sample([5, 6, 7], [False, True, True]), Sample([5, 6, 7, 8, 9], [False, True, True, True, True])]
    padded, alone = (teacher.distribution(Batch.collate(known, pad)) for pad in (261, 0))
    assert torch.equal(padded.hidden, alone.hidden)
    prompt = Sample([5, 259, 7], [False, False, True])
    with pytest.raises(RecoverError, match=r"The teacher has no token '<zebra>'.* Leave out prompts and replies"):
        teacher.distribution(Batch.collate([*known, prompt], student.chat.pad_id))


def test_texts_with_an_added_token_are_scored_also_once_a_teacher_is_bound(base: str, tmp_path: Path) -> None:
    student = load_student(fine_tune(base, tmp_path / "added", tokens=tuple(ADDED)))
    engine, text = TransformersEngine(student), [5, 6, 259, 7]
    before = engine.logprobs([text]), engine.continuation_logprobs([[5, 6]], [[259, 7]])
    FrozenTeacher(base).bind_student(student)
    assert (engine.logprobs([text]), engine.continuation_logprobs([[5, 6]], [[259, 7]])) == before


@pytest.mark.parametrize(
    ("padding", "tuned_rows"),
    [(0, 262), (13, 272), (13, 262)],  # of the tokens of both, as many as the base has, or those of its own tokens
)
def test_interpolation_leaves_the_rows_of_added_tokens(tmp_path: Path, padding: int, tuned_rows: int) -> None:
    base = str(save_tiny(tmp_path / "base", padding=padding))
    model, tokenizer = load_causal(base, torch.float32), AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(ADDED)
    model.resize_token_embeddings(tuned_rows, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight.add_(0.5)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "tuned")
    student = load_student(str(tmp_path / "tuned"))
    before = student.causal.get_input_embeddings().weight.detach().clone()
    WeightInterpolation(student, base).move_to(1.0)
    after = student.causal.get_input_embeddings().weight
    assert torch.equal(after[259:], before[259:])
    assert torch.equal(after[:259], load_student(base).causal.get_input_embeddings().weight[:259])


def test_files_may_name_weights_otherwise_than_modules(tmp_path: Path) -> None:
    """As Gemma 3 and the first GPT-2 have them."""
    tuned, base = tmp_path / "tuned", tmp_path / "base"
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=259))
    for folder in (tuned, base):
        model.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    weights = load_file(base / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor.clone() for name, tensor in weights.items()}
    save_file(bare, base / "model.safetensors", metadata={"format": "pt"})
    moved = {name: tensor + 0.01 * torch.randn_like(tensor) for name, tensor in weights.items()}
    save_file(moved, tuned / "model.safetensors", metadata={"format": "pt"})
    assert not inspect_fine_tune(str(tuned), str(base)).same_weights
    adapter = get_peft_model(load_causal(str(base), torch.float32), LoraConfig(r=2, target_modules=["c_attn"]))
    adapter.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer().save_pretrained(tmp_path / "adapter")
    assert inspect_fine_tune(str(tmp_path / "adapter"), str(base)).added_tokens == 0
