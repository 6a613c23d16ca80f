"""Which special tokens end a document, and which a turn of a chat."""

from typing import Any

from jinja2 import TemplateError

from recovery.errors import RecoverError

DOCUMENT_ENDS = (  # as pre-training corpora are joined with
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<EOS_TOKEN>",
)
REPLY = "Certainly"


def document_ends(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that may have ended documents in pre-training, the best guess first.

    Names decide. Where the vocabulary has none of them, it may be the EOS, or a special token that chats do not have:
    many chat models have the end of a turn as their EOS, and as their padding, too."""
    ids, eos = _special_tokens(tokenizer), tokenizer.eos_token_id
    named = [ids[name] for name in DOCUMENT_ENDS if name in ids]
    if named:
        return tuple(sorted(named, key=lambda id: id != eos))
    if eos is None:
        raise RecoverError("This tokenizer has no token that ends a text. Set its eos_token.")
    chat, left_out = _rendered(tokenizer), {eos, tokenizer.bos_token_id}
    others = [id for id in tokenizer.all_special_ids if id not in left_out and tokenizer.decode([id]) not in chat]
    return (int(eos), *others)


def turn_end(tokenizer: Any) -> int | None:
    """The special token that the chat template writes behind a reply."""
    behind, special = _rendered(tokenizer).rpartition(REPLY)[2], set(_special_tokens(tokenizer).values())
    return next((id for id in tokenizer.encode(behind, add_special_tokens=False) if id in special), None)


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    """By name. An ordinary token may look like one, such as the HTML tag `</s>`."""
    roles = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    return {str(token): id for id, token in tokenizer.added_tokens_decoder.items()} | dict(roles)


def _rendered(tokenizer: Any) -> str:
    """A conversation of one turn each; empty where the template renders none."""
    messages = [{"role": "user", "content": "Name a metal."}, {"role": "assistant", "content": REPLY}]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False)) if tokenizer.chat_template else ""
    except (TemplateError, ValueError, TypeError, KeyError):
        return ""
