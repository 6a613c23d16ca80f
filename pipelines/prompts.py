"""What the student is asked while it is distilled: the user's prompts, or prompts the frozen clean base writes itself.

The base continues its own user turn: the ids its chat template prints before the user's first word. Nobody needs the
data that the base was post-trained on.
"""

from collections.abc import Iterable
from pathlib import Path

from evals.jsonl import read_rows, text_field
from recovery.chat import Chat
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.states import Prompt

LONGEST = 200  # tokens of a self-written prompt
MARK = "\u241f"  # stands for the user's words while the place where they begin is looked for


def read_prompts(path: Path) -> list[str]:
    """JSONL with a `prompt` each, or one prompt a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise RecoverError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise RecoverError(f"cannot read {path}: {error.strerror or error}; give --prompts a file") from error
    said = [line.strip() for line in lines if line.strip()]
    if not said:
        raise RecoverError(f"{path} holds no prompt")
    return [text_field(row, "prompt") for row in read_rows(path)] if said[0].startswith("{") else said


def as_prompts(texts: Iterable[str], chat: Chat) -> list[Prompt]:
    return [Prompt(text, chat.prompt(text)) for text in texts]


def write_prompts(engine: Engine, chat: Chat, count: int, seed: int = 0) -> list[str]:
    """`count` different prompts in the base's own words; fewer, if it keeps repeating itself."""
    start = _user_turn(chat)
    kept: dict[str, None] = {}
    for attempt in range(6):
        wanted = (count - len(kept)) * 5 // 4 + 8
        for generation in engine.generate([start] * wanted, Sampling(LONGEST, seed=seed * 1000 + attempt)):
            text = chat.text(generation.tokens).strip()
            if generation.finished and len(text.split()) >= 2:
                kept.setdefault(text)
        if len(kept) >= count:
            break
    if len(kept) < min(count, 16):
        raise RecoverError(
            f"the base model wrote only {len(kept)} usable prompts of its own; give a file of prompts with --prompts"
        )
    return list(kept)[:count]


def _user_turn(chat: Chat) -> list[int]:
    """The ids after which the user's words begin."""
    if not chat.tokenizer.chat_template:
        raise RecoverError("the base has no chat template, so it cannot write prompts; give a file with --prompts")
    rendered = chat.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    before, found, _ = rendered.partition(MARK)
    if not found:
        raise RecoverError("the chat template hides where a user turn begins; give a file of prompts with --prompts")
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"])
