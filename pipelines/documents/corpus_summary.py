"""Summarise a corpus before training: what is in it, what was left out, and the steps of mid-training on it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.documents import Corpus, count_tokens
from pipelines.settings.defaults import midtraining_steps
from pipelines.settings.resolve import resolve_settings
from recovery.models.chat_template import Chat
from recovery.models.special_tokens import document_ends
from recovery.models.students import load_chat, parameters_of

MAX_LINES = 10  # of a list


@dataclass(frozen=True)
class SpecialToken:
    id: int
    token: str

    def __str__(self) -> str:
        return f"{self.token} ({self.id})"


@dataclass(frozen=True)
class CorpusSummary:
    path: str
    base: str
    hash: str
    files: int
    documents: int
    characters: int
    tokens: int
    copies: int
    near_copies: list[dict[str, str]]  # {"left_out": file, "resembles": file}
    skipped: list[dict[str, str]]  # {"file": …, "reason": …}
    separator: SpecialToken  # the vocabulary's best guess
    separator_candidates: list[SpecialToken]
    stop_tokens: list[SpecialToken]
    steps: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(corpus: Corpus, base: str, root: Path) -> CorpusSummary:
    """The summary for mid-training `base` with the settings of the project folder `root`."""
    settings, chat = resolve_settings(parameters_of(base), root, {}).settings, load_chat(base)
    tokens = count_tokens(corpus.texts, chat.tokenizer)
    return CorpusSummary(
        path=str(corpus.path),
        base=base,
        hash=corpus.hash,
        files=corpus.files,
        documents=len(corpus.texts),
        characters=corpus.texts.characters,
        tokens=tokens,
        copies=corpus.copies,
        near_copies=[{"left_out": left_out, "resembles": other} for left_out, other in corpus.near_copies],
        skipped=[{"file": str(file), "reason": reason} for file, reason in corpus.skipped],
        separator=_named(chat, chat.separator),
        separator_candidates=[_named(chat, id) for id in document_ends(chat.tokenizer)],
        stop_tokens=[_named(chat, id) for id in sorted(chat.eos_ids)],
        steps=midtraining_steps(settings.midtrain, tokens + len(corpus.texts)),  # every document has an end token
    )


def _named(chat: Chat, id: int) -> SpecialToken:
    return SpecialToken(id, chat.tokenizer.decode([id]))


def summary_lines(summary: CorpusSummary) -> list[str]:
    lines = [
        f"{summary.documents:,} documents in {summary.files:,} files: {summary.tokens:,} tokens of {summary.base}",
        f"Left out: {summary.copies:,} copies, {len(summary.near_copies):,} near copies; "
        f"{len(summary.skipped):,} files not read",
    ]
    lines += _first([f"  {skipped['file']}: {skipped['reason']}" for skipped in summary.skipped])
    lines += _first([f"  {copy['left_out']} resembles {copy['resembles']}" for copy in summary.near_copies])
    others = [str(token) for token in summary.separator_candidates if token != summary.separator]
    measured = f", unless mid-training finds the corpus likelier after {' or '.join(others)}" * bool(others)
    lines += [
        f"A document ends with {summary.separator}{measured}; a reply with {' or '.join(map(str, summary.stop_tokens))}"
    ]
    return [*lines, f"Mid-training would take {summary.steps:,} steps"]


def _first(lines: list[str]) -> list[str]:
    rest = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"  and {rest:,} more"] if rest > 0 else lines
