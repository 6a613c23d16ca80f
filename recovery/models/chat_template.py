"""Chat rendering: turns messages into tokens, so that student, teacher and evaluation use the same ids."""

from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError

from recovery.errors import RecoverError, first_line
from recovery.models.special_tokens import document_ends, turn_end

Message = dict[str, Any]  # its role and content; turns with tool calls have further fields


@dataclass(frozen=True)
class Chat:
    """A tokenizer with its chat template, the token between documents, and every token that ends a reply."""

    tokenizer: Any
    eos_ids: frozenset[int]  # all that end a turn, and the separator
    separator: int  # ends each document in pre-training
    thinking: bool = False  # must be the same for rollouts and evaluations

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, generation_config: Any = None, *, separator: int | None = None, thinking: bool = False
    ) -> "Chat":
        """Without a `separator` it is the vocabulary's best guess."""
        ends = getattr(generation_config, "eos_token_id", None)
        separator = document_ends(tokenizer)[0] if separator is None else separator
        ids = {*(ends if isinstance(ends, list | tuple) else [ends]), tokenizer.eos_token_id, turn_end(tokenizer)}
        return cls(tokenizer, frozenset(i for i in ids if i is not None) | {separator}, separator, thinking)

    def with_separator(self, separator: int) -> "Chat":
        return replace(self, separator=separator, eos_ids=self.eos_ids | {separator})

    @property
    def pad_id(self) -> int:
        """The filler token. Padding is known by position, never by this id, which may equal the EOS."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else next(iter(self.eos_ids), 0)

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

        It renders each prefix, so it works with any template and needs no assistant masks."""
        tokens: list[int] = []
        targets: list[bool] = []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._render(messages[:i], tools, add_generation_prompt=True)
            after = self._render(messages[: i + 1], tools, add_generation_prompt=False)
            if after[: len(before)] != before or before[: len(tokens)] != tokens:
                raise RecoverError(
                    "The chat template rewrites earlier turns, so this conversation has no fixed prefix to train on. "
                    "Split it into single-turn conversations."
                )
            reply = self._to_first_eos(after[len(before) :])
            targets += [False] * (len(before) - len(targets)) + [True] * len(reply)
            tokens = before + reply
        if not any(targets):
            raise RecoverError("A conversation needs at least one assistant turn to train on. Add one.")
        return tokens, targets

    def text(self, tokens: list[int]) -> str:
        """Decode tokens without special tokens, without the EOS of a reply, and without changing spaces."""
        tokens = tokens[:-1] if tokens and tokens[-1] in self.eos_ids else tokens
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _render(self, messages: list[Message], tools: list[Any] | None, *, add_generation_prompt: bool) -> list[int]:
        if not self.tokenizer.chat_template:
            raise RecoverError(
                "This model has no chat template. "
                "Use a chat (instruction-tuned) model, or add a chat_template to its tokenizer."
            )
        try:
            tokens = self.tokenizer.apply_chat_template(
                messages,
                tools=tools,
                tokenize=True,
                add_generation_prompt=add_generation_prompt,
                return_dict=False,
                enable_thinking=self.thinking,  # ignored by templates without a thinking mode
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:  # such as roles that do not alternate
            roles = ", ".join(str(message.get("role")) for message in messages) or "none"
            raise RecoverError(
                f"The chat template cannot render a conversation with the turns {roles} ({first_line(error)}). "
                "Leave it out, or change its turns."
            ) from error
        return list(tokens)

    def _to_first_eos(self, reply: list[int]) -> list[int]:
        """Cut what the template prints after the reply's EOS, such as a newline: the model never has to generate it."""
        first = next((i for i, token in enumerate(reply) if token in self.eos_ids), len(reply) - 1)
        return reply[: first + 1]
