"""A model made of a table: it says what it is told to, so that tests are about the measuring."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evals.subject import Subject
from recovery.engines import Generation, Sampling
from recovery.models.chat import Chat
from recovery.models.students import Student

EOS = 1


class LetterTokenizer:
    """One token a letter; a chat is `<role>text` after `<role>text`."""

    chat_template = "letters"
    eos_token, eos_token_id = "\x01", EOS
    bos_token, bos_token_id, pad_token_id = None, None, 0
    name_or_path, model_max_length = "letters", 10**30

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False, **how: Any) -> str:
        return "".join(chr(token) for token in tokens if not (skip_special_tokens and token == EOS))

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool = True, **how: Any) -> Any:
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        if "enable_thinking" in self.chat_template and not how.get("enable_thinking", True):
            text += "<no thinking>"
        if how.get("add_generation_prompt"):
            text += "<assistant>"
        return self.encode(text) if tokenize else text


class ScriptedEngine:
    """Replies by the last user message; every token is as likely as `likelihood` says of the whole text so far."""

    def __init__(self, reply: Callable[[str], str], likelihood: Callable[[str], float] = lambda text: -1.0):
        self.reply, self.likelihood = reply, likelihood
        self.prompts: list[str] = []

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        return [self._generation("".join(map(chr, prompt)), sampling.max_new_tokens) for prompt in prompts]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        texts = ["".join(map(chr, tokens)) for tokens in sequences]
        return [[self.likelihood(text[: i + 1]) for i in range(1, len(text))] for text in texts]

    def sync(self, student: Student) -> None:
        raise NotImplementedError

    def _generation(self, prompt: str, limit: int) -> Generation:
        self.prompts.append(prompt)
        asked = prompt.rpartition("<user>")[2].removesuffix("<assistant>").removesuffix("<no thinking>")
        tokens = [*map(ord, self.reply(asked)), EOS]
        return Generation(tokens[:limit], [-1.0] * len(tokens[:limit]), len(tokens) <= limit)


def speaker(reply: Callable[[str], str] | str | Mapping[str, str], template: str = "letters", **how: Any) -> Subject:
    """A subject that says one thing to everything, or to each message its own."""
    if isinstance(reply, str):
        answer: Callable[[str], str] = lambda asked: reply  # noqa: E731
    else:
        answer = reply if callable(reply) else lambda asked: reply[asked]
    tokenizer = LetterTokenizer()
    tokenizer.chat_template = template
    return Subject(ScriptedEngine(answer, **how), Chat(tokenizer, frozenset({EOS})))
