"""The special tokens and chat templates of well-known chat models, on tiny models with one token per byte."""

from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.chats import exchange
from tests.models import CHATML, bytewise, tiny_model

LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA_3 = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI_4 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)
OLMO_2 = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% if not loop.last or m.role != 'assistant' %}\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
QWEN_3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
GLM_4 = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    roles: dict[str, str]  # of the tokenizer's special tokens
    template: str
    eos: list[str]  # in the generation config
    separator: str
    turn_ends: set[str]
    others: list[str] = field(default_factory=list)  # special tokens without a role
    adds_bos: bool = False

    @property
    def special(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.others]))

    def tokenizer(self) -> PreTrainedTokenizerFast:
        fast = bytewise(self.special)
        if self.adds_bos:
            bos = self.roles["bos_token"]
            pair = [(bos, self.special.index(bos))]
            fast.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=pair)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, additional_special_tokens=self.others, **self.roles)
        tokenizer.chat_template = self.template
        return tokenizer

    def save(self, folder: Path, seed: int = 0) -> Path:
        tokenizer = self.tokenizer()
        model = tiny_model(len(tokenizer), seed=seed)
        model.generation_config = GenerationConfig(eos_token_id=tokenizer.convert_tokens_to_ids(self.eos))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder


def _roles(**names: str) -> dict[str, str]:
    return {f"{role}_token": name for role, name in names.items()}


FAMILIES = {
    "smollm2": Family(
        _roles(unk="<|endoftext|>", bos="<|im_start|>", eos="<|im_end|>", pad="<|im_end|>"),
        CHATML,
        ["<|im_end|>"],
        "<|endoftext|>",
        {"<|im_end|>"},
        ["<repo_name>", "<file_sep>"],
    ),
    "qwen3": Family(
        _roles(pad="<|endoftext|>", eos="<|im_end|>"),
        QWEN_3,
        ["<|im_end|>", "<|endoftext|>"],
        "<|endoftext|>",
        {"<|im_end|>"},
        ["<|im_start|>", "<|object_ref_start|>"],
    ),
    "llama3": Family(
        _roles(bos="<|begin_of_text|>", eos="<|eot_id|>"),
        LLAMA_3,
        ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
        "<|end_of_text|>",
        {"<|eom_id|>", "<|eot_id|>"},
        ["<|end_of_text|>", "<|finetune_right_pad_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"],
        adds_bos=True,
    ),
    "gemma3": Family(
        _roles(pad="<pad>", eos="<eos>", bos="<bos>", unk="<unk>"),
        GEMMA_3,
        ["<eos>", "<end_of_turn>"],
        "<eos>",
        {"<end_of_turn>"},
        ["<mask>", "<start_of_turn>", "<end_of_turn>"],
        adds_bos=True,
    ),
    "phi4": Family(
        _roles(bos="<|endoftext|>", eos="<|im_end|>", pad="<|dummy_85|>", unk="<|endoftext|>"),
        PHI_4,
        ["<|endoftext|>", "<|im_end|>"],
        "<|endoftext|>",
        {"<|im_end|>"},
        ["<|fim_prefix|>", "<|im_start|>", "<|im_sep|>"],
    ),
    "olmo2": Family(
        _roles(bos="<|endoftext|>", eos="<|endoftext|>", unk="<|endoftext|>", pad="<|pad|>"),
        OLMO_2,
        ["<|endoftext|>"],
        "<|endoftext|>",
        {"<|endoftext|>"},
        ["<|im_start|>", "<|im_end|>", "<|endofprompt|>"],
    ),
}
UNNAMED = Family(  # no special token has a name that documents are known to end with
    _roles(unk="<unk>", bos="<|im_start|>", eos="<|im_end|>", pad="<blank>"),
    CHATML,
    ["<|im_end|>"],
    "<|im_end|>",
    {"<|im_end|>"},
)
MISTRAL_7B = Family(
    _roles(bos="<s>", eos="</s>", unk="<unk>"),
    MISTRAL,
    ["</s>"],
    "</s>",
    {"</s>"},
    ["[INST]", "[/INST]"],
    adds_bos=True,
)
GLM_4_9B = Family(  # a turn ends where the next one begins
    _roles(eos="<|endoftext|>", pad="<|endoftext|>"),
    GLM_4,
    ["<|endoftext|>", "<|user|>", "<|observation|>"],
    "<|endoftext|>",
    {"<|user|>", "<|observation|>"},
    ["[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|observation|>"],
)
CONVERSATION = [*exchange("hi", "hello"), *exchange("bye", "farewell")]
