"""`HarnessModel`: a `Subject` as an lm-eval model, which returns replies and likelihoods.

Import this module inside functions: lm-eval takes seconds to import.
"""

import math
from collections import defaultdict
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
    resolve_max_length,
)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from evals.subject import Subject
from recovery.engines import Sampling

MAX_NEW_TOKENS = 256  # lm-eval's default for tasks without a limit
UNLIMITED = 10**6  # for configs without a maximum length


class HarnessModel(TemplateLM):
    """Equivalent to lm-eval's `hf` model, token for token: same prompts, greedy replies and likelihoods."""

    def __init__(self, subject: Subject, *, chat: bool = True, greedy: bool = True):
        """Without `greedy` it is not computed whether a continuation is the greedy one: multiple choice ignores it."""
        super().__init__()
        self.subject, self.chat, self.greedy = subject, chat, greedy
        self.tokenizer = subject.chat.tokenizer

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        return self.subject.chat.scoring_prefix

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.subject.prompt_text(chat_history, add_generation_prompt=add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Tokenize; a rendered chat already contains its special tokens, so none are added by default."""
        add_special_tokens = not self.chat if add_special_tokens is None else add_special_tokens
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        replies = [""] * len(requests)
        groups: dict[tuple[int, float], list[int]] = defaultdict(list)  # requests by their generation settings
        options = [normalize_gen_kwargs(request.args[1], MAX_NEW_TOKENS) for request in requests]
        for i, option in enumerate(options):
            temperature = option.get("temperature", 1.0) if option.get("do_sample") else 0.0
            groups[option["max_gen_toks"], temperature].append(i)
        for (max_new_tokens, temperature), indices in groups.items():
            prompts = [self.tok_encode(requests[i].args[0]) for i in indices]
            answers = self.subject.complete(prompts, max_new_tokens, temperature=temperature)
            for i, answer in zip(indices, answers, strict=True):
                stops = handle_stop_sequences(options[i]["until"], eos=self.tokenizer.eos_token)
                replies[i] = postprocess_generated_text(answer.text, stops, None)
        return replies

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Score texts in windows that do not overlap; every token is predicted once."""
        length = self._window()
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        windows = [get_rolling_token_windows(text, self.prefix_token_id, length, 1) for text in texts]
        return [math.fsum(self._sums([make_disjoint_window(pair) for pair in pairs])) for pairs in windows]

    def _window(self) -> int:
        """The smaller maximum length of the model's config (as in lm-eval) and the tokenizer.

        The tokenizer's may be unset (an astronomical number) or exceed the positions that the model learned."""
        engine: Any = self.subject.engine
        student = getattr(getattr(engine, "engine", engine), "student", None)  # the engine may be metered
        max_positions = resolve_max_length(student and student.causal.config, default=UNLIMITED)
        return min(int(self.tokenizer.model_max_length), max_positions)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        pairs = [(context, continuation) for _, context, continuation in requests]
        are_greedy = self._greedy(pairs) if self.greedy else [False] * len(pairs)
        return list(zip(self._sums(pairs), are_greedy, strict=True))

    def _sums(self, pairs: list[tuple[list[int], list[int]]]) -> list[float]:
        """Log-likelihoods of the continuations."""
        scores = self.subject.engine.logprobs([context + continuation for context, continuation in pairs])
        return [
            sum(row[-len(continuation) :]) if continuation else 0.0
            for row, (_, continuation) in zip(scores, pairs, strict=True)
        ]

    def _greedy(self, pairs: list[tuple[list[int], list[int]]]) -> list[bool]:
        """Whether greedy decoding gives the continuation. One reply per context is enough for all its continuations."""
        longest: dict[tuple[int, ...], int] = defaultdict(int)
        for context, continuation in pairs:
            longest[tuple(context)] = max(longest[tuple(context)], len(continuation))
        replies: dict[tuple[int, ...], list[int]] = {}
        for length in sorted(set(longest.values()) - {0}):
            contexts = [context for context, needed in longest.items() if needed == length]
            generations = self.subject.engine.generate([list(c) for c in contexts], Sampling(length, temperature=0.0))
            replies |= {context: g.tokens for context, g in zip(contexts, generations, strict=True)}
        return [replies.get(tuple(context), [])[: len(after)] == after for context, after in pairs]
