"""Chats as tokens: rendering, so that student, teacher and evaluation use the same ids; the special tokens that end a
document or a turn; and whether two models read the same tokens."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from recovery.errors import RecoverError, first_line

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
THINK_START, THINK_END = "<think>", "</think>"
# What a prompt may end with: thinking that it begins, or leaves empty; the second form is Gemma 4's.
THINK_PREFIX = re.compile(rf"({THINK_START}(\s*{THINK_END})?|<\|channel>thought\s*<channel\|>)\s*\Z")
DATE = datetime(2024, 7, 26)  # what templates print as today's date: a run has to read the same prompts on any day
Message = dict[str, Any]  # its role and content; turns with tool calls have further fields
USER: Message = {"role": "user", "content": "Name a metal."}


def learned(message: Message) -> bool:
    """Whether a turn is to be learned: one of the assistant's without a weight of 0 and without `"train": false`."""
    return message["role"] == "assistant" and message.get("weight") != 0 and message.get("train") is not False


@dataclass(frozen=True)
class Chat:
    """A tokenizer with its chat template, the token between documents, and every token that ends a reply."""

    tokenizer: Any
    eos_ids: frozenset[int]  # all that end a turn, and the separator
    separator: int  # ends each document in pre-training
    turn_ends: frozenset[int] = frozenset()  # those that its files name, where programs stop; empty: all `eos_ids`

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, generation_config: Any = None, *, separator: int | None = None) -> "Chat":
        """Without a `separator` it is the vocabulary's best guess."""
        ends = getattr(generation_config, "eos_token_id", None)
        separator = document_ends(tokenizer)[0] if separator is None else separator
        ids = {*(ends if isinstance(ends, list | tuple) else [ends]), tokenizer.eos_token_id, turn_end(tokenizer)}
        named = frozenset(id for id in ids if id is not None and id >= 0)  # -1 stands for none in old files
        return cls(tokenizer, named | {separator}, separator, named)

    def with_separator(self, separator: int) -> "Chat":
        return replace(self, separator=separator, eos_ids=self.eos_ids | {separator})

    def reply_ends(self, of_turns: bool) -> list[int]:
        """The tokens at which a reply ends: those of turns, or the separator, too, if no file names it."""
        return sorted((of_turns and self.turn_ends) or self.eos_ids)

    @property
    def pad_id(self) -> int:
        """The filler token. Padding is known by position, never by this id; the tokenizer's own may have no row."""
        return self.separator

    @property
    def document_bos(self) -> int | None:
        """The BOS if the tokenizer puts it before plain text: such a model has never seen text without it."""
        bos = self.tokenizer.bos_token_id
        return bos if self.tokenizer.encode("a")[:1] == [bos] else None

    @property
    def document_start(self) -> int:
        """The token before a document: the BOS if the tokenizer adds one to plain text, else another document's end."""
        return self.separator if self.document_bos is None else self.document_bos

    @property
    def tokens_around_document(self) -> int:
        """The separator behind it, and the BOS before it if there is another."""
        return 1 if self.document_bos in (None, self.separator) else 2

    @property
    def scoring_prefix(self) -> int:
        """The token before a text whose first token is scored too: the BOS or else the EOS, as in lm-eval."""
        tokenizer = self.tokenizer
        return int(tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id)

    @property
    def token_rows(self) -> int:
        """How many rows embeddings need for all tokens; more are padding."""
        return 1 + max(self.tokenizer.get_vocab().values())

    def prompt(self, messages: list[Message] | str, tools: list[Any] | None = None) -> list[int]:
        """Return the ids of the messages up to the start of the model's reply. `tools` may be called in it."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._render(messages, tools, add_generation_prompt=True)

    def conversation(self, messages: list[Message], tools: list[Any] | None = None) -> tuple[list[int], list[bool]]:
        """Return the ids of a conversation, and which of them are the assistant's (including its EOS).

        A turn of which the template shows nothing, such as a call of a tool that it has no place for, is none of these,
        nor is one that is not to be learned.

        It renders each prefix, so it works with any template and needs no assistant masks. Where a template rewrites
        earlier turns, as those do that leave out earlier thoughts, only what follows them is the assistant's."""
        tokens: list[int] = []
        targets: list[bool] = []
        for i, message in enumerate(messages):
            if message["role"] != "assistant" or i == 0:  # an opening turn has no prompt: the later ones read it
                continue
            before = self._render(messages[:i], tools, add_generation_prompt=True)
            after = self._render(messages[: i + 1], tools, add_generation_prompt=False)
            if after[: len(before)] != before and (texts := self._texts_of_turn(messages, i, tools)):
                before, behind, after = (
                    self.tokenizer.encode(text, add_special_tokens=False) for text in (*texts, "".join(texts))
                )
                if after[: len(before)] != before:
                    after = before + behind  # the start of the reply made one token with its prompt
            if after[: len(before)] != before:
                raise RecoverError(
                    "The chat template rewrites earlier turns, so this conversation has no fixed prefix to train on. "
                    "Split it into single-turn conversations."
                )
            # What the template prints after the reply's EOS, such as a newline, the model never has to generate. The
            # reply itself may name that token.
            reply = after[len(before) :]
            ends = [i for i, token in enumerate(reply) if token in self.eos_ids]
            if not self._ends:
                reply += self._start_of_next(messages, i, tools, len(after))
            elif ends:
                reply = reply[: ends[-self._ends :][0] + 1]
            is_learned = learned(message) and any(t not in self.eos_ids for t in reply)
            if before[: len(tokens)] != tokens:
                if not is_learned:
                    continue
                targets = []
            targets += [False] * (len(before) - len(targets)) + [is_learned] * len(reply)
            tokens = before + reply
        if not any(targets):
            raise RecoverError("A conversation needs at least one assistant turn with text to train on. Add one.")
        return tokens, targets

    @cached_property
    def _ends(self) -> int:
        """How many tokens that end a turn the template prints behind a reply: Phi-3's has two behind the last."""
        _, reply, behind = _rendered(self.tokenizer).rpartition(REPLY)
        return sum(t in self.eos_ids for t in self.tokenizer.encode(behind, add_special_tokens=False)) if reply else 1

    def _start_of_next(self, messages: list[Message], turn: int, tools: list[Any] | None, length: int) -> list[int]:
        """The token that begins the next turn, behind `length` others, if replies end there, as GLM's do."""
        if turn + 1 < len(messages):
            start = self._render(messages[: turn + 2], tools, add_generation_prompt=False)[length : length + 1]
        else:
            end = None if messages[turn].get("tool_calls") else turn_end(self.tokenizer, self.eos_ids)
            start = [] if end is None else [end]
        return [token for token in start if token in self.eos_ids]

    def left_out(self, messages: list[Message], tools: list[Any] | None = None) -> list[str]:
        """What the template has no place for: "tools", or the "tool calls" of turns."""
        bare = [{name: turn[name] for name in turn if name != "tool_calls"} for turn in messages]
        variants = (messages, tools), (messages, None), (bare, tools)
        shown, no_tools, no_calls = (self._render(*variant, add_generation_prompt=False) for variant in variants)
        return ["tools"] * bool(tools and no_tools == shown) + ["tool calls"] * (bare != messages and no_calls == shown)

    def text(self, tokens: list[int]) -> str:
        """Decode tokens without special tokens, without the EOS of a reply, and without changing spaces."""
        tokens = tokens[:-1] if tokens and tokens[-1] in self.eos_ids else tokens
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _texts_of_turn(self, messages: list[Message], turn: int, tools: list[Any] | None) -> tuple[str, str] | None:
        """What the template prints before this turn of the assistant, and for it; None where it then prints others in
        another way. The thinking that it begins in a prompt is left out where it prints the reply without."""

        def shown(first: int, end: int, prompts: bool) -> str:
            return str(self._apply(messages[first:end], tools, tokenize=False, add_generation_prompt=prompts))

        prompt = shown(0, turn, True)
        # Mistral's templates print the system prompt before the last question alone, so not before an answer.
        for first in (0, 1) if messages[0]["role"] == "system" and turn > 1 else (0,):
            try:
                before, after = shown(first, turn, True), shown(first, turn + 1, False)
            except Exception:  # of any kind, as below
                return None
            for whole in (lambda text: text, partial(THINK_PREFIX.sub, "")):
                if after.startswith(whole(before)):
                    return whole(prompt), after.removeprefix(whole(before))
        return None

    def _render(self, messages: list[Message], tools: list[Any] | None, *, add_generation_prompt: bool) -> list[int]:
        if not self.tokenizer.chat_template:
            raise RecoverError(
                "This model has no chat template. "
                "Use a chat (instruction-tuned) model, or add a chat_template to its tokenizer."
            )
        try:
            tokens = self._apply(messages, tools, tokenize=True, add_generation_prompt=add_generation_prompt)
        except Exception as error:  # of any kind: a template computes, and checks roles
            if [message.get("role") for message in messages] == ["user"]:
                raise RecoverError(
                    f"The chat template cannot render a question ({first_line(error)}). Mend it (chat_template.jinja, "
                    "or chat_template in tokenizer_config.json), or copy that of the model's base."
                ) from error
            roles = ", ".join(str(message.get("role")) for message in messages) or "none"
            raise RecoverError(
                f"The chat template cannot render a conversation with the turns {roles} ({first_line(error)}). "
                "Leave it out, or change its turns."
            ) from error
        return list(tokens)

    def _apply(self, messages: list[Message], tools: list[Any] | None, **options: Any) -> Any:
        # Templates without a thinking mode ignore that it is off, in rollouts and evaluations alike.
        return apply_template(self.tokenizer, messages, tools=tools, enable_thinking=False, **options)


def apply_template(tokenizer: Any, messages: list[Message], *, tokenize: bool, **options: Any) -> Any:
    return tokenizer.apply_chat_template(
        messages, tokenize=tokenize, return_dict=False, strftime_now=DATE.strftime, **options
    )


def prints_date(tokenizer: Any) -> bool:
    """Whether the chat template prints today's date, which a server takes from its own clock."""
    return "strftime_now" in str(tokenizer.chat_template)


def document_ends(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that may have ended documents in pre-training, the best guess first.

    Names decide. Where the vocabulary has none of them, it may be the EOS, or a special token that chats do not have:
    many chat models have the end of a turn as their EOS, and as their padding, too."""
    ids, eos = _special_tokens(tokenizer, marked=True), tokenizer.eos_token_id
    named = [ids[name] for name in DOCUMENT_ENDS if name in ids]
    if named:
        return tuple(sorted(named, key=lambda id: id != eos))
    if eos is None:
        raise RecoverError("This tokenizer has no token that ends a text. Set its eos_token.")
    chat, left_out = _rendered(tokenizer), {eos, tokenizer.bos_token_id}
    others = [id for id in tokenizer.all_special_ids if id not in left_out and tokenizer.decode([id]) not in chat]
    return (int(eos), *others)


def turn_end(tokenizer: Any, stops: Collection[int] = ()) -> int | None:
    """The special token that the chat template writes behind a reply. White space is none, though it may be added.

    Where it writes none, it may be the token that begins the user's next turn, if that is one of `stops`."""
    behind, special = _rendered(tokenizer).rpartition(REPLY)[2], set(_special_tokens(tokenizer).values())
    ids = [id for id in tokenizer.encode(behind, add_special_tokens=False) if id in special]
    end = next((id for id in ids if tokenizer.decode([id]).strip()), None)
    if end is not None or not stops:
        return end
    behind = _rendered(tokenizer, USER).rpartition(REPLY)[2]
    return next((id for id in tokenizer.encode(behind, add_special_tokens=False)[:1] if id in stops), None)


def _special_tokens(tokenizer: Any, *, marked: bool = False) -> dict[str, int]:
    """By name: all that are added to the vocabulary or have a role, or those that are `marked` as special. An ordinary
    token may look like one, such as the HTML tag `</s>`, which Gemma's tokenizers add as a text."""
    roles = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    added = tokenizer.added_tokens_decoder.items()
    return {str(token): id for id, token in added if token.special or not marked} | dict(roles)


def _rendered(tokenizer: Any, *more: Message) -> str:
    """A conversation of one turn each, and `more`; empty where the template renders none."""
    messages = [USER, {"role": "assistant", "content": REPLY}, *more]
    try:
        return str(apply_template(tokenizer, messages, tokenize=False)) if tokenizer.chat_template else ""
    except Exception:  # of any kind, as above
        return ""


def added_tokens(student: Chat, teacher: Chat) -> int:
    """How many tokens the student has behind all of the teacher's."""
    rows = teacher.token_rows
    return sum(id >= rows for id in student.tokenizer.get_vocab().values())


def check_tokens(rows: Iterable[Sequence[int]], vocabulary: int, student: Chat) -> None:
    """Raise if a row that a teacher is to read holds a token that only the student has."""
    last = max((token for row in rows for token in row), default=0)
    if last >= vocabulary:
        raise RecoverError(
            f"The teacher has no token {student.tokenizer.convert_ids_to_tokens(last)!r}, which the student has. Leave "
            "out prompts and replies with it, or name a teacher that has it."
        )


def check_same_tokenizer(student: Chat, teacher: Chat) -> None:
    """Raise unless both map the same chat to the same ids; otherwise their distributions are not comparable."""
    check_same_vocabulary(student, teacher)
    if not same_chat_template(student, teacher):
        raise RecoverError(
            "Teacher and student render the same chat to different tokens (their chat templates differ). "
            "Give the student the teacher's chat template."
        )


def check_same_vocabulary(student: Chat, teacher: Chat, *, is_base: bool = False) -> None:
    """Raise unless all of the teacher's tokens, or the base's, have the same ids in the student's tokenizer.

    The student may have more tokens behind them, and new names for special ones, as after a fine-tune that uses
    reserved tokens."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    size = 1 + max(theirs.values())
    common = {token: id for token, id in ours.items() if id < size}
    special, its_special = (set(_special_tokens(chat.tokenizer).values()) for chat in (student, teacher))
    renamed = special & its_special
    differing = [
        token
        for token, id in common.items() ^ theirs.items()
        if id not in renamed or (token in ours and token in theirs)  # which has moved
    ]
    if differing:
        who = "The model and its base" if is_base else "Teacher and student"
        cure = (
            "Name the model that it came from with --base" if is_base else "Choose a teacher of the same model family"
        )
        raise RecoverError(
            f"{who} have different tokenizers (token {min(differing)!r} differs, {len(theirs)} against {len(ours)} "
            f"tokens). {cure}."
        )


def same_chat_template(first: Chat, second: Chat) -> bool:
    """Whether both render a short chat to the same tokens, and end a reply with the same one."""
    prompts = [chat.prompt("Hello?") for chat in (first, second)]
    return prompts[0] == prompts[1] and turn_end(first.tokenizer) == turn_end(second.tokenizer)
