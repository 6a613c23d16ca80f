"""A fake subject with scripted replies and likelihoods, and results, for tests of measurements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evals.results import Item, Metric, Result
from evals.subject import Subject
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import logprobs_of_rows
from recovery.models.chat_template import Chat
from recovery.models.students import Student

EOS = 1


class LetterTokenizer:
    """One token per letter; a chat is rendered as `<role>text<role>text`."""

    chat_template = "letters"
    eos_token, eos_token_id = "\x01", EOS
    bos_token, bos_token_id, pad_token_id = None, None, 0
    name_or_path, model_max_length = "letters", 10**30

    def encode(self, text: str, add_special_tokens: bool = True, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False, **options: Any) -> str:
        return "".join(chr(token) for token in tokens if not (skip_special_tokens and token == EOS))

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool = True, **options: Any) -> Any:
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        if "enable_thinking" in self.chat_template and not options.get("enable_thinking", True):
            text += "<no thinking>"
        if options.get("add_generation_prompt"):
            text += "<assistant>"
        return self.encode(text) if tokenize else text


class ScriptedEngine:
    """Replies to the last user message; `likelihood` maps the text up to a token to its log-likelihood."""

    def __init__(self, reply: Callable[[str], str], likelihood: Callable[[str], float] = lambda text: -1.0):
        self.reply, self.likelihood = reply, likelihood
        self.prompts: list[str] = []

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        return [self._generation("".join(map(chr, prompt)), sampling.max_new_tokens) for prompt in prompts]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        texts = ["".join(map(chr, tokens)) for tokens in sequences]
        return [[self.likelihood(text[: i + 1]) for i in range(1, len(text))] for text in texts]

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        return logprobs_of_rows(self.logprobs, contexts, continuations)

    def sync(self, student: Student) -> None:
        raise NotImplementedError

    def _generation(self, prompt: str, limit: int) -> Generation:
        self.prompts.append(prompt)
        message = prompt.rpartition("<user>")[2].removesuffix("<assistant>").removesuffix("<no thinking>")
        tokens = [*map(ord, self.reply(message)), EOS]
        return Generation(tokens[:limit], [-1.0] * len(tokens[:limit]), len(tokens) <= limit)


def fake_subject(
    reply: Callable[[str], str] | str | Mapping[str, str], template: str = "letters", **options: Any
) -> Subject:
    """A subject that replies with one text to every message, or per message."""
    if isinstance(reply, str):
        answer: Callable[[str], str] = lambda message: reply  # noqa: E731
    else:
        answer = reply if callable(reply) else lambda message: reply[message]
    tokenizer = LetterTokenizer()
    tokenizer.chat_template = template
    return Subject(ScriptedEngine(answer, **options), Chat(tokenizer, frozenset({EOS}), EOS))


def result(passes: Sequence[bool], task: str = "ifeval", suite: str = "behaviour", **verdicts: Any) -> Result:
    """A result whose items have their numbers as keys, and the same verdicts."""
    name = "prompt_level_strict_acc" if task == "ifeval" else "match"
    items = [Item(str(i), "", "", passed, verdicts) for i, passed in enumerate(passes)]
    return Result(task, suite, "test", {name: Metric.from_passes(passes)}, items, {}, 0.0)


def graded(values: Sequence[float], task: str = "squad", suite: str = "behaviour", name: str = "f1") -> Result:
    """A result by F1, a likelihood or the like, where no item is exactly right."""
    items = [Item(str(i), "", "", False, {name: value}) for i, value in enumerate(values)]
    return Result(task, suite, "test", {name: Metric.from_values(values)}, items, {}, 0.0)
