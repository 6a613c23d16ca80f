"""`Subject`, the model under evaluation: an engine with the model's chat template, decoding greedily by default."""

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.engines import Engine, Sampling, continue_loop
from recovery.models.chat_template import Chat, Message

THINK_START, THINK_END = "<think>", "</think>"


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
    temperature: float = 0.0  # 0: greedy
    seed: int = 0  # of sampled replies

    @property
    def thinking(self) -> bool:
        return self.chat.thinking

    def encode(self, text: str) -> list[int]:
        """Tokenize plain text without special tokens."""
        return list(self.chat.tokenizer.encode(text, add_special_tokens=False))

    def prompt_text(self, messages: list[Message] | str, *, add_generation_prompt: bool = True) -> str:
        """Render a prompt through the chat template as text, for harnesses that pass prompts as strings."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        rendered = self.chat.tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=self.thinking,
        )
        return str(rendered)

    def answer(self, prompts: Sequence[list[Message] | str], max_new_tokens: int) -> list[Answer]:
        """Answer each prompt through the chat template."""
        prompt_ids = [self.chat.prompt(prompt) for prompt in prompts]
        return self.complete(prompt_ids, max_new_tokens, temperature=self.temperature)

    def complete(self, prompts: Sequence[list[int]], max_new_tokens: int, *, temperature: float = 0.0) -> list[Answer]:
        """Continue prompts that are already tokenized.

        Greedy replies that loop are ended early and filled up: most would go on like that to the limit."""
        end_loops = self.end_loops and temperature == 0
        sampling = Sampling(max_new_tokens, temperature, self.seed, end_loops, with_logprobs=False)
        generations = self.engine.generate(prompts, sampling)
        answers = []
        for generation in generations:
            is_cut = end_loops and not generation.finished
            tokens = continue_loop(generation.tokens, max_new_tokens) if is_cut else generation.tokens
            answers.append(Answer(strip_thinking(self.chat.text(tokens)), generation.finished))
        return answers


def strip_thinking(text: str) -> str:
    """Return the text after the thinking; empty if the thinking never ended."""
    if THINK_END in text:
        return text.rpartition(THINK_END)[2].lstrip()
    return "" if text.lstrip().startswith(THINK_START) else text
