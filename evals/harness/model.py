"""A `Subject` as lm-eval sees a model: text in, replies and likelihoods out.

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

MAX_NEW_TOKENS = 256  # lm-eval's own, for tasks that name no limit
UNLIMITED = 10**6  # tokenizers that know no limit give astronomical ones, some configs none


class HarnessModel(TemplateLM):
    """Token for token what lm-eval's `hf` model does: same prompts, same greedy replies, same likelihoods."""

    def __init__(self, subject: Subject, *, chat: bool = True):
        super().__init__()
        self.subject, self.chat = subject, chat
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
        """A rendered chat carries its special tokens already; plain text gets what the tokenizer gives it."""
        special = not self.chat if add_special_tokens is None else add_special_tokens
        return list(self.tokenizer.encode(string, add_special_tokens=special))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        replies = [""] * len(requests)
        alike: dict[tuple[int, float], list[int]] = defaultdict(list)
        wanted = [normalize_gen_kwargs(request.args[1], MAX_NEW_TOKENS) for request in requests]
        for i, how in enumerate(wanted):
            temperature = how.get("temperature", 1.0) if how.get("do_sample") else 0.0
            alike[how["max_gen_toks"], temperature].append(i)
        for (max_new_tokens, temperature), indices in alike.items():
            prompts = [self.tok_encode(requests[i].args[0]) for i in indices]
            answers = self.subject.complete(prompts, max_new_tokens, temperature=temperature)
            for i, answer in zip(indices, answers, strict=True):
                stops = handle_stop_sequences(wanted[i]["until"], eos=self.tokenizer.eos_token)
                replies[i] = postprocess_generated_text(answer.text, stops, None)
        return replies

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """A window at a time, each token predicted once."""
        length = self._window()
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        windows = [get_rolling_token_windows(text, self.prefix_token_id, length, 1) for text in texts]
        return [math.fsum(self._sums([make_disjoint_window(pair) for pair in pairs])) for pairs in windows]

    def _window(self) -> int:
        """By the model's config, as lm-eval has it, or by its tokenizer, which may know nothing or of more positions
        than were learned: the smaller of both."""
        engine: Any = self.subject.engine
        student = getattr(getattr(engine, "engine", engine), "student", None)  # it may stand under a meter
        learned = resolve_max_length(student and student.causal.config, default=UNLIMITED)
        return min(int(self.tokenizer.model_max_length), learned)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        pairs = [(context, continuation) for _, context, continuation in requests]
        return list(zip(self._sums(pairs), self._greedy(pairs), strict=True))

    def _sums(self, pairs: list[tuple[list[int], list[int]]]) -> list[float]:
        scored = self.subject.engine.logprobs([context + continuation for context, continuation in pairs])
        return [sum(row[-len(after) :]) if after else 0.0 for row, (_, after) in zip(scored, pairs, strict=True)]

    def _greedy(self, pairs: list[tuple[list[int], list[int]]]) -> list[bool]:
        """Would greedy decoding write this continuation? One reply a context answers it for all its continuations."""
        longest: dict[tuple[int, ...], int] = defaultdict(int)
        for context, after in pairs:
            longest[tuple(context)] = max(longest[tuple(context)], len(after))
        replies: dict[tuple[int, ...], list[int]] = {}
        for length in sorted(set(longest.values()) - {0}):
            contexts = [context for context, wanted in longest.items() if wanted == length]
            generated = self.subject.engine.generate([list(c) for c in contexts], Sampling(length, temperature=0.0))
            replies |= {context: g.tokens for context, g in zip(contexts, generated, strict=True)}
        return [replies.get(tuple(context), [])[: len(after)] == after for context, after in pairs]
