"""What the clean base writes for a job: prompts, answers to them, and unprompted texts.

Beside the documents, answers keep instruction following, so that it need not be restored afterwards, and texts keep
knowledge from pre-training, without its data. All of it is cached by content, so a resumed job reads what it wrote
before.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from pipelines.log import log
from pipelines.model_loading import OpenSubject, open_subject
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from pipelines.storage import ContentCache, content_hash
from pipelines.synthetic.prompts import CannotWrite, as_prompts, cached_prompts, garbled
from recovery.engines import Engine, Generation, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.samples import Sample
from recovery.states import FixedRows

DISTILL_SEED = 50  # added to the seed of what is distilled on: the student has read the mix
FIRST_TOKENS = 16  # first tokens sampled for each text: a chat model begins most texts with a turn of a chat
ATTEMPTS = 6
MIN_WORDS = 8  # of a text
SENTENCE_END = re.compile(r"[.!?。！？]|\n")
ROLES = ("system", "user", "assistant", "tool")  # a text that begins with one is a chat without its first token
MIN_TEXTS = 16  # with fewer texts, the base is considered unable to write them


@dataclass(frozen=True)
class GeneratedTexts:
    """Unprompted texts of the base, and the hash of all that decides them."""

    texts: list[str]
    hash: str


@dataclass(frozen=True)
class BaseOutputs:
    project: Project
    settings: Settings
    seed: int
    separator: int | None = None  # between documents, where it was measured

    def prompts(self, more_seed: int = 0) -> list[str]:
        """Those that the base answers for the mix; with DISTILL_SEED those for the student's rollouts."""
        cache, weights = self.project.cache, self.project.base_weights_id
        return cached_prompts(cache, weights, self.settings.distill.prompts, self.seed + more_seed, self.open_base)

    def answers(self, *, is_default: bool) -> list[Sample]:
        """The base's sampled answers to its own prompts; nothing where only the defaults ask for them and the base
        cannot."""
        alternative = " Or mid-train without the base's answers: --set midtrain.mix.answers=0."
        try:
            prompts = self.prompts()
            alternative = ""
            return sample_answers(
                self.open_base,
                load_chat(self.project.base),
                prompts,
                self.project.cache,
                self.project.base_weights_id,
                max_new_tokens=self.settings.distill.max_new_tokens,
                seed=self.seed,
                keep_cut=self.settings.midtrain.soft_labels,
            )
        except CannotWrite as error:
            self._leave_out(RecoverError(f"{error}{alternative}") if alternative else error, is_default)
            return []

    def texts(self, *, is_default: bool) -> list[GeneratedTexts]:
        """What the base writes unprompted; nothing where only the defaults ask for it and the base cannot."""
        midtrain = self.settings.midtrain
        count, window, separator = midtrain.generated_texts, midtrain.window, self.separator
        inputs = [version("recover"), count, window, self.project.base_weights_id, self.seed]
        if separator is not None:
            inputs.append(separator)

        def write() -> list[str]:
            log.info(f"The clean base writes {count:,} unprompted texts")
            with self.open_base() as base:
                chat = base.chat if separator is None else base.chat.with_separator(separator)
                return generate_texts(base.engine, chat, count, window, self.seed)

        try:
            texts = self.project.cache.get_or_write("texts", inputs, write)
        except CannotWrite as error:
            self._leave_out(error, is_default)
            return []
        log.info(f"  {len(texts):,} texts written by the base are read, too")
        return [GeneratedTexts(texts, content_hash(inputs))]

    @property
    def open_base(self) -> OpenSubject:
        return partial(open_subject, self.project.base, self.settings.engine)

    def _leave_out(self, error: RecoverError, is_default: bool) -> None:
        """What the base cannot write is left out where only the defaults ask for it; else it is an error."""
        if not is_default:
            raise error
        log.warning(f"Going on without: {error}")


def sample_answers(
    open_base: OpenSubject,
    chat: Chat,
    texts: Sequence[str],
    cache: ContentCache,
    base_weights: str,
    *,
    max_new_tokens: int,
    seed: int = 0,
    keep_cut: bool = False,
) -> list[Sample]:
    """Sample the base's answers to the prompt texts; return those that ended within the limit, or all (`keep_cut`).

    Only the answer's tokens are targets, and they are soft: where a teacher is available, its distribution is the
    target. For soft labels a cut answer is as good as any: it shows how to go on, and without cut answers a base that
    seldom ends within the limit would only be shown its shortest answers.

    They are cached by all inputs, `base_weights` being a hash; the base is loaded only where they are missing."""
    prompts = as_prompts(texts, chat)

    def generate() -> list[list[int]]:
        with open_base() as base:
            generations = base.engine.generate([p.tokens for p in prompts], Sampling(max_new_tokens, seed=seed))
        return [g.tokens if g.finished or keep_cut else [] for g in generations]

    ends = [[end] for end in chat.reply_ends(of_turns=True)]
    inputs = [base_weights, max_new_tokens, seed, *["with cut answers"] * keep_cut, *texts]
    answers = cache.get_or_write("answers", inputs, generate)
    pairs = [
        (prompt, answer)
        for prompt, answer in zip(prompts, answers, strict=True)
        if answer and (keep_cut or answer[-1:] in ends)
    ]
    samples = [prompt.with_reply(answer, soft_labels=True) for prompt, answer in pairs]
    if not samples:
        raise CannotWrite(
            f"None of the base's answers ended within {max_new_tokens} tokens, so there are no answers for the mix. "
            "Allow longer answers (distill.max_new_tokens), or mid-train without them: --set midtrain.mix.answers=0."
        )
    return samples


def answer_rows(answers: Sequence[Sample], share: float, tokens: int, *, seed: int = 0) -> FixedRows:
    """So many rows a step, on average, that `share` of all target tokens are of answers; `tokens` are of others."""
    mean_targets = sum(answer.target_count for answer in answers) / len(answers)
    return FixedRows(answers, rows=share / (1 - share) * tokens / mean_targets, seed=seed)


def generate_texts(engine: Engine, chat: Chat, count: int, max_tokens: int, seed: int) -> list[str]:
    """Sample different texts from the start of a document, and drop chats. Fewer than `count` if the model repeats
    itself or writes too many chats."""
    start, tokenizer = [chat.document_start], chat.tokenizer
    # Special and added tokens, which documents do not contain. Gemma's line breaks are added tokens as well.
    added = {id for id in tokenizer.get_added_vocab().values() if tokenizer.decode([id]).strip()}
    chat_tokens = {*tokenizer.all_special_ids, *added}
    texts: dict[str, None] = {}  # in order, without duplicates
    for attempt in range(ATTEMPTS):
        attempt_seed = 2 * (seed * ATTEMPTS + attempt)
        samples = (count - len(texts)) * FIRST_TOKENS
        first = engine.generate([start] * samples, Sampling(1, seed=attempt_seed))
        openings = [g.tokens for g in first if g.tokens and g.tokens[0] not in chat_tokens][: count - len(texts)]
        generations = engine.generate(
            [start + tokens for tokens in openings], Sampling(max_tokens, seed=attempt_seed + 1)
        )
        decoded = (_text(chat, tokens, g, chat_tokens) for tokens, g in zip(openings, generations, strict=True))
        texts |= dict.fromkeys(text for text in decoded if _is_document(text))
        if len(texts) >= count:
            break
    if len(texts) < min(count, MIN_TEXTS):
        raise CannotWrite(
            f"The base wrote only {len(texts)} unprompted texts that are not chats, too few to train on. Train without "
            "them: --set midtrain.mix.texts=0, or in a distillation --set distill.texts=0."
        )
    return list(texts)


def _text(chat: Chat, opening: list[int], generation: Generation, chat_tokens: set[int]) -> str:
    """The text up to its end, or up to its last full sentence if it was cut off; "" if it turned into a chat."""
    tokens = opening + generation.tokens
    end = next((i for i, token in enumerate(tokens) if token in chat.eos_ids), None)
    if chat_tokens.intersection(tokens[:end]):
        return ""
    text = chat.text(tokens[:end]).strip()
    if end is not None or generation.finished:
        return text
    sentence_ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: sentence_ends[-1]].strip() if sentence_ends else ""


def _is_document(text: str) -> bool:
    words = text.split()
    return len(words) >= MIN_WORDS and words[0] not in ROLES and not garbled(text)
