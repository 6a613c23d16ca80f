"""A prompt as data has it: one text, or the turns of a conversation, with what else its row says.

    {"prompt": "Name a river."}
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    {"prompt": "What is 2 + 2?", "answer": "4"}

Assistant turns at the end are the reply, and no part of the prompt. All formats of `pipelines.documents.conversations`
are read; tool calls, and a row's `tools`, reach the chat template.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from evals.jsonl import Row
from evals.suites.custom_checks import ReplyCheck, reply_check
from pipelines.documents.conversations import said, tools_of, turns_of
from recovery.context_templates import with_context
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, Message
from recovery.states import Prompt


@dataclass(frozen=True)
class ChatPrompt:
    messages: list[Message]
    reply: list[Message] = field(default_factory=list)  # the assistant's turns that follow
    row: Row = ("", {})  # where it is from, and its fields
    context: str | None = None  # what only the teacher reads

    @classmethod
    def of(cls, text: str) -> "ChatPrompt":
        return cls([{"role": "user", "content": text}], row=("", {"prompt": text}))

    @property
    def text(self) -> str:
        if len(self.messages) == 1:
            return str(self.messages[0]["content"])
        return "\n\n".join(f"{message['role']}: {said(message)}" for message in self.messages)

    @property
    def user_text(self) -> str:
        """What the user says, without system prompts, which many conversations share."""
        return "\n\n".join(message["content"] for message in self.messages if message["role"] == "user")

    @property
    def tools(self) -> list[Any] | None:
        return tools_of(self.row[1])

    @property
    def domain(self) -> str | None:
        domain = self.row[1].get("domain")
        return domain if isinstance(domain, str) else None

    @property
    def check(self) -> ReplyCheck | None:
        return reply_check(self.row, self.text)

    def tokenized(self, chat: Chat, template: str = "") -> Prompt:
        """The prompt for the student; with a context, also the one for the teacher."""
        teacher_prompt = None
        if self.context is not None:
            teacher_prompt = chat.prompt(with_context(self.messages, template, self.context), self.tools)
        return Prompt(self.text, chat.prompt(self.messages, self.tools), None, teacher_prompt)

    def as_conversation(self, chat: Chat) -> tuple[list[int], list[bool]]:
        """With its reply: the tokens, and which of them are the assistant's."""
        return chat.conversation([*self.messages, *self.reply], self.tools)


def parse_prompt(row: Row) -> ChatPrompt:
    location, fields = row
    try:
        messages, _ = turns_of(fields), tools_of(fields)
    except ValueError as error:
        raise RecoverError(f"{location} has {error}") from error
    end = len(messages)
    while end and messages[end - 1]["role"] == "assistant":
        end -= 1
    if not messages:
        raise RecoverError(f'{location} has no "prompt" or "question", and no "messages" of a user. Add one.')
    if not any(message["role"] == "user" for message in messages[:end]) or messages[end - 1]["role"] == "system":
        raise RecoverError(
            f"{location} has a conversation without a user's turn to reply to. Add one, or drop the line."
        )
    reply = [] if fields.get("label") is False else messages[end:]  # labelled as wrong
    return ChatPrompt(messages[:end], reply, row)


def with_context_of(prompt: ChatPrompt, fields: Sequence[str], recipe: str) -> ChatPrompt:
    """The prompt with the first of these fields of its row as its context; the reply of a conversation is an answer."""
    location, values = prompt.row
    context = next((values[name] for name in fields if values.get(name) is not None), None)
    if context is None and "answer" in fields and prompt.reply:
        context = "\n\n".join(map(said, prompt.reply))
    if isinstance(context, int | float) and not isinstance(context, bool):
        context = str(context)
    if not isinstance(context, str) or not context.strip():
        names = " or ".join(f'"{name}"' for name in fields)
        raise RecoverError(f"{location} has no {names}, which the recipe {recipe} shows its teacher. Add it as a text.")
    return replace(prompt, context=context)


def shuffled_contexts(prompts: Sequence[ChatPrompt], seed: int) -> list[ChatPrompt]:
    """The prompts of each context with another context; prompts without one stay as they are."""
    others = other_contexts([prompt.context for prompt in prompts if prompt.context is not None], seed)
    return [p if p.context is None else replace(p, context=others[p.context]) for p in prompts]


def other_contexts(contexts: Iterable[str], seed: int) -> dict[str, str]:
    """Another context for each; raises where there is one alone."""
    distinct = list(dict.fromkeys(contexts))
    if len(distinct) < 2:
        raise RecoverError(
            "There is one context alone, so there is no other to shuffle it with (distill.shuffle_contexts). Give "
            "different ones."
        )
    Random(f"{seed}/contexts").shuffle(distinct)
    return dict(zip(distinct, [*distinct[1:], *distinct[:1]], strict=True))  # one cycle through all of them: none stays


def share_of_checks(prompts: Sequence[ChatPrompt], decode: Callable[[list[int]], str]) -> Callable[[Any], float]:
    """The share of the checks of its prompt that a rollout passes; `decode` turns tokens into text."""
    checks = {prompt.text: check for prompt in prompts if (check := prompt.check)}

    def share(sample: Any) -> float:
        reply = sample.tokens[-sample.target_count :] if sample.target_count else []
        return checks[sample.prompt].share(decode(reply), not sample.truncated) if sample.prompt in checks else 0.0

    return share
