"""The model under evaluation: an engine with the model's chat template. A `MeteredEngine` counts what it costs."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from evals.results import Tokens
from recovery.engines import Engine, Generation, Sampling, continue_loop
from recovery.models.chat_template import THINK_END, THINK_START, Chat, Message, apply_template
from recovery.models.students import Student

THINK_TOKENS = 16  # more than the last ones of a prompt that begins the thinking
MIN_LOGPROB = -100.0  # floor for impossible tokens (or NaN), which would otherwise dominate a sum


@dataclass(frozen=True)
class Answer:
    text: str  # the text to score, without thinking
    finished: bool  # the model ended it itself: not cut off by the token limit


@dataclass(frozen=True)
class Subject:
    """The model under evaluation."""

    engine: Engine
    chat: Chat
    end_loops: bool = True  # end greedy replies that repeat themselves, and fill them up with what they repeat

    def encode(self, text: str) -> list[int]:
        """Tokenize plain text as training does: without special tokens, and the name of one is text."""
        return list(self.chat.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def prompt_text(self, messages: list[Message] | str, *, add_generation_prompt: bool = True) -> str:
        """Render a prompt through the chat template as text, for harnesses that pass prompts as strings."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        rendered = apply_template(
            self.chat.tokenizer,
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=False,
        )
        return str(rendered)

    def answer(self, prompts: Sequence[list[Message] | str], max_new_tokens: int) -> list[Answer]:
        """Answer each prompt through the chat template."""
        prompt_ids = [self.chat.prompt(prompt) for prompt in prompts]
        return self.complete(prompt_ids, max_new_tokens, of_turns=True)

    def complete(
        self, prompts: Sequence[list[int]], max_new_tokens: int, *, temperature: float = 0.0, of_turns: bool = False
    ) -> list[Answer]:
        """Continue prompts that are already tokenized. Turns end where programs that run the model stop.

        Greedy replies that loop are ended early and filled up: most would go on like that to the limit."""
        end_loops = self.end_loops and temperature == 0
        sampling = Sampling(max_new_tokens, temperature, end_loops=end_loops, of_turns=of_turns, with_logprobs=False)
        generations = self.engine.generate(prompts, sampling)
        answers = []
        for prompt, generation in zip(prompts, generations, strict=True):
            is_cut = end_loops and not generation.finished
            tokens = continue_loop(generation.tokens, max_new_tokens) if is_cut else generation.tokens
            answers.append(Answer(self.reply_text(prompt, tokens), generation.finished))
        return answers

    def reply_text(self, prompt: list[int], reply: list[int]) -> str:
        """The text of a reply without its thinking, which some templates begin at the end of the prompt."""
        before = self.chat.tokenizer.decode(prompt[-THINK_TOKENS:]).rstrip()
        return strip_thinking(self.chat.text(reply), is_open=before.endswith(THINK_START))


def strip_thinking(text: str, *, is_open: bool = False) -> str:
    """Return the text after the thinking; empty if the thinking never ended. If `is_open`, the prompt began it."""
    if THINK_END in text:
        return text.rpartition(THINK_END)[2].lstrip()
    return "" if is_open or text.lstrip().startswith(THINK_START) else text


def sum_logprobs(values: Iterable[float]) -> float:
    return math.fsum(value if value > MIN_LOGPROB else MIN_LOGPROB for value in values)


def encode_pair(encode: Callable[[str], list[int]], context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Return the tokens of `context` and the tokens that add `continuation` to it.

    Both are encoded together, because the space between them usually belongs to the continuation's first token.
    The tokens that this shares with the context alone are the context; the continuation always has one at least."""
    together, alone = encode(context + continuation), encode(context.removesuffix(" "))
    shared = next((i for i, (a, b) in enumerate(zip(together, alone, strict=False)) if a != b), len(alone))
    shared = min(shared, len(together) - 1)
    return together[:shared], together[shared:]


class MeteredEngine:
    """An engine that counts the tokens that pass through it, and the time since it was created."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.read = self.written = 0
        self._start_time = time.perf_counter()

    def cost(self) -> tuple[float, Tokens]:
        """Seconds and tokens so far: the last two fields of a `Result`."""
        return time.perf_counter() - self._start_time, Tokens(self.read, self.written)

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        generations = self.engine.generate(prompts, sampling)
        self.read += sum(map(len, prompts))
        self.written += sum(len(generation.tokens) for generation in generations)
        return generations

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.read += sum(map(len, sequences))
        return self.engine.logprobs(sequences)

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        self.read += sum(map(len, {tuple(context) for context in contexts})) + sum(map(len, continuations))
        return self.engine.continuation_logprobs(contexts, continuations)

    def sync(self, student: Student) -> None:
        self.engine.sync(student)


def with_cost_meter(subject: Subject) -> tuple[Subject, Callable[[], tuple[float, Tokens]]]:
    """Return the same subject with a metered engine, and a function that returns the cost so far."""
    engine = MeteredEngine(subject.engine)
    return replace(subject, engine=engine), engine.cost
