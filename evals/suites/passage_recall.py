"""What a model knows of held-out passages, read without any manners: no chat template, no question, no reply to judge.

Two measures: how many bits a byte of the passage costs it, and whether it goes on with the very name or number that
stands there. The first also falls when a model merely learns the style of the documents, the second does not.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.cost_meter import metered
from evals.jsonl import read_rows, text_field
from evals.results import Item, Metric, Result, key_of
from evals.subject import Subject
from evals.token_boundaries import cut
from recovery.engines import Generation, Sampling
from recovery.errors import RecoverError

WINDOW = 1024  # tokens read at once; the next window begins anew
LEAST_LOGPROB = -100.0
WORDS_BEFORE = 3  # a name before which hardly anything stands can only be guessed
CLOZES_A_PASSAGE = 4

NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
NAMES = re.compile(r"[A-Z][\w'’-]*(?: [A-Z][\w'’-]*)*")
BEGINS_A_SENTENCE = re.compile(r"(?:^|[.!?\n\"“(*#>-])\s*$")  # there a capital says nothing


@dataclass(frozen=True)
class Cloze:
    before: str
    missing: str  # the name or number that comes next


def read_passages(path: str | Path) -> list[str]:
    """A text file, a folder of them, or JSON lines `{"text": …}`."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return [text_field(row, "text") for row in read_rows(path)]
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    try:
        texts = [file.read_text(encoding="utf-8-sig") for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise RecoverError(f"cannot read the passages in {path} as UTF-8 text ({error})") from error
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise RecoverError(f"{path} holds no text; give passages that were held back from the documents")
    return texts


def bits_per_byte(subject: Subject, passages: Sequence[str], *, data: str) -> Result:
    """Bits to write a passage down with the model's help, by its bytes: models of other tokenizers compare too."""
    subject, spent = metered(subject)
    passages = _distinct(passages)
    bits = [-value / math.log(2) for value in _logprobs(subject, passages)]
    sizes = [len(passage.encode()) for passage in passages]
    items = [
        Item(key_of(passage), passage, "", False, {"bits_per_byte": b / size})
        for passage, b, size in zip(passages, bits, sizes, strict=True)
    ]
    metrics = {"bits_per_byte": Metric.of_ratio(bits, [float(size) for size in sizes])}
    return Result("passages", "knowledge", data, metrics, items, {"window": WINDOW}, *spent())


def recall(subject: Subject, passages: Sequence[str], *, data: str) -> Result:
    """Cloze: is the name or number that comes next what the model would write, and how likely is it to?"""
    subject, spent = metered(subject)
    found = {c.before: (c, passage) for passage in _distinct(passages) for c in clozes_of(passage)}
    if not found:
        raise RecoverError(f"the passages of {data} hold no names or numbers to ask for")
    clozes = [cloze for cloze, _ in found.values()]
    starts, wanted = _split(subject, clozes)
    written = [g.tokens for g in _continue(subject, starts, wanted)]
    scored = subject.engine.logprobs([start + missing for start, missing in zip(starts, wanted, strict=True)])
    likelihoods = [_mean(row[-len(missing) :]) for row, missing in zip(scored, wanted, strict=True)]
    items, by_passage = [], defaultdict(list)
    for (cloze, passage), tokens, likelihood in zip(found.values(), written, likelihoods, strict=True):
        said = subject.chat.text(tokens)
        verdicts = {"reference": cloze.missing, "answer_logprob": likelihood}
        items.append(Item(key_of(cloze.before), cloze.before, said, _says(said, cloze.missing), verdicts))
        by_passage[passage].append(items[-1])
    metrics = {
        "recall": Metric.of_groups([[item.passed for item in alike] for alike in by_passage.values()]),
        "answer_logprob": _mean_of_passages(list(by_passage.values())),
    }
    settings = {"a_passage": CLOZES_A_PASSAGE}
    return Result("cloze", "knowledge", data, metrics, items, settings, *spent())


def _mean_of_passages(groups: list[list[Item]]) -> Metric:
    """Over all clozes; those of one passage are known together, so the passages are what counts as independent."""
    sums = [math.fsum(item.verdicts["answer_logprob"] for item in alike) for alike in groups]
    return Metric.of_ratio(sums, [float(len(alike)) for alike in groups])


def clozes_of(passage: str) -> list[Cloze]:
    """Places where a name or number is said for the first time, so that it cannot be copied from above."""
    spans = [m.span() for m in NUMBER.finditer(passage)]
    spans += [m.span() for m in NAMES.finditer(passage) if not BEGINS_A_SENTENCE.search(passage[: m.start()])]
    found: list[Cloze] = []
    for start, end in sorted(spans):
        before, missing = passage[:start], passage[start:end]
        first_time = missing not in before and len(missing) > 1
        if first_time and before[-1:].isspace() and len(before.split()) >= WORDS_BEFORE:
            found.append(Cloze(before.rstrip(" "), missing))
    return found[:CLOZES_A_PASSAGE]


def _split(subject: Subject, clozes: list[Cloze]) -> tuple[list[list[int]], list[list[int]]]:
    """Tokens before and of each missing text."""
    starts, wanted = [], []
    for cloze in clozes:
        gap = "" if cloze.before.endswith("\n") else " "
        before, missing = cut(subject.encode, cloze.before + gap, cloze.missing)
        starts.append([subject.chat.scoring_prefix, *before][-WINDOW:])
        wanted.append(missing)
    return starts, wanted


def _continue(subject: Subject, starts: list[list[int]], wanted: list[list[int]]) -> list[Generation]:
    """A few tokens more than the reference has, for it may be spelt in other tokens."""
    room = max(map(len, wanted)) + 2
    return subject.engine.generate(starts, Sampling(room, temperature=0.0))


def _says(said: str, missing: str) -> bool:
    """It begins with the missing text, as a whole word."""
    said = said.lstrip()
    return said.startswith(missing) and not said[len(missing) : len(missing) + 1].isalnum()


def _logprobs(subject: Subject, passages: list[str]) -> list[float]:
    """Of each passage as a whole, every token predicted once."""
    rows: list[list[int]] = []
    owners: list[int] = []
    for i, passage in enumerate(passages):
        tokens = subject.encode(passage)
        for start in range(0, len(tokens), WINDOW):
            rows.append([subject.chat.scoring_prefix, *tokens[start : start + WINDOW]])
            owners.append(i)
    totals = [0.0] * len(passages)
    for i, values in zip(owners, subject.engine.logprobs(rows), strict=True):
        totals[i] += math.fsum(_floored(value) for value in values)
    return totals


def _distinct(passages: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(passages))


def _floored(value: float) -> float:
    """A token ruled out altogether (or NaN) must not swallow the sum of all others."""
    return value if value > LEAST_LOGPROB else LEAST_LOGPROB


def _mean(values: list[float]) -> float:
    return math.fsum(map(_floored, values)) / len(values)
