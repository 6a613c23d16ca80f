"""From messages to tokens: one place renders chats, so that student, teacher and judge see the same ids."""

from dataclasses import dataclass
from typing import Any

from recovery.errors import RecoverError

Message = dict[str, str]


@dataclass(frozen=True)
class Chat:
    """A tokenizer with its chat template and every token that ends a reply."""

    tokenizer: Any
    eos_ids: frozenset[int]
    thinking: bool = False  # rollouts and measurements must agree on it

    @classmethod
    def of(cls, tokenizer: Any, generation_config: Any = None, *, thinking: bool = False) -> "Chat":
        ends = getattr(generation_config, "eos_token_id", None)
        ids = set(ends) if isinstance(ends, list | tuple) else {ends}
        ids.add(tokenizer.eos_token_id)
        return cls(tokenizer, frozenset(i for i in ids if i is not None), thinking)

    @property
    def pad_id(self) -> int:
        """Only ever a filler: what is padding is known by position, never by this id (pad may equal EOS)."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else next(iter(self.eos_ids), 0)

    @property
    def document_begin(self) -> int | None:
        """The BOS, where the tokenizer itself puts it before plain text: such a model never read a text without it."""
        bos = self.tokenizer.bos_token_id
        return bos if self.tokenizer.encode("a")[:1] == [bos] else None

    @property
    def before_text(self) -> int:
        """What a text that is scored to its first token is read after: lm-eval's choice, the BOS or else the EOS."""
        tokenizer = self.tokenizer
        return int(tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id)

    def prompt(self, messages: list[Message] | str) -> list[int]:
        """The ids after which the model's reply begins."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._render(messages, add_generation_prompt=True)

    def conversation(self, messages: list[Message]) -> tuple[list[int], list[bool]]:
        """The ids of a whole conversation, and which of them the assistant wrote (its EOS included).

        Found by rendering each prefix, so that it holds for any template, masks of its own or not."""
        tokens: list[int] = []
        targets: list[bool] = []
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._render(messages[:i], add_generation_prompt=True)
            after = self._render(messages[: i + 1], add_generation_prompt=False)
            if after[: len(before)] != before or before[: len(tokens)] != tokens:
                raise RecoverError(
                    "the chat template rewrites earlier turns, so this conversation has no fixed prefix to train on; "
                    "split it into single-turn conversations"
                )
            reply = self._to_last_eos(after[len(before) :])
            targets += [False] * (len(before) - len(targets)) + [True] * len(reply)
            tokens = before + reply
        if not any(targets):
            raise RecoverError("a conversation needs at least one assistant turn to learn from")
        return tokens, targets

    def text(self, tokens: list[int]) -> str:
        """What a reader sees: special tokens dropped, spaces as they are."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _render(self, messages: list[Message], *, add_generation_prompt: bool) -> list[int]:
        if not self.tokenizer.chat_template:
            raise RecoverError(
                "this model has no chat template, so it cannot be spoken to; "
                "use a chat (instruction-tuned) model, or add a chat_template to its tokenizer"
            )
        return list(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=True,
                add_generation_prompt=add_generation_prompt,
                return_dict=False,
                enable_thinking=self.thinking,  # a template that knows no thinking ignores it
            )
        )

    def _to_last_eos(self, reply: list[int]) -> list[int]:
        """Cut what the template prints after the reply's EOS (a newline, say): the model never has to write it."""
        last = max((i for i, token in enumerate(reply) if token in self.eos_ids), default=len(reply) - 1)
        return reply[: last + 1]
