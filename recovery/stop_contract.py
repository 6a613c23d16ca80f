"""How a model ends a turn: which token its files name, what it does, and what is wrong between them.

A reply ends where the model writes a token at which the program that runs it stops. The chat template writes that token
behind every turn, the generation config names those at which to stop, and training must have taught the model to write
it. Where the three disagree, replies run on until the limit of tokens.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch

from recovery.engines import Generation
from recovery.models.chat_template import document_ends, turn_end
from recovery.models.students import Student, generation_ends, load_chat
from recovery.samples import Batch, Sample
from recovery.telemetry import repetition

UNLEARNED = 0.5  # a model that gives the end less than this share of the base's probability has lost it
MIN_ENDS = 4  # replies of the base that end, from which its probability is told
WHERE_THE_BASE_ENDS = "P(end) where the base's replies end"
SHOWN_FROM = 0.01  # a smaller probability of one token is left out of the table


@dataclass(frozen=True)
class StopFiles:
    """The tokens that end a turn, by each file that names some."""

    tokenizer: int | None
    generation: tuple[int, ...]
    template: int | None
    pad: int | None
    tokens: Any  # the tokenizer, for names

    @classmethod
    def of(cls, reference: str, base: "StopFiles | None" = None) -> "StopFiles":
        """With a base, replies may also end where the base's generation config stops."""
        tokenizer = load_chat(reference).tokenizer
        ends = generation_ends(reference)
        end = turn_end(tokenizer, {*ends, *(base.generation if base else ())})
        return cls(tokenizer.eos_token_id, ends, end, tokenizer.pad_token_id, tokenizer)

    @property
    def stops(self) -> tuple[int, ...]:
        """At which a reply should end."""
        return tuple(sorted({id for id in (self.template, *self.generation) if id is not None}))

    @property
    def stops_and_separators(self) -> tuple[int, ...]:
        separators = () if self.tokenizer is None else document_ends(self.tokens)
        return tuple(sorted({*self.stops, *separators}))

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("template", "generation", "tokenizer", "pad")}

    def name(self, *ids: int | None) -> str:
        return ", ".join(self._name(id) for id in ids if id is not None) or "none"

    def _name(self, id: int) -> str:
        token = self.tokens.convert_ids_to_tokens(id)
        return f"{id} (not in the vocabulary)" if token is None else f"{token} ({id})"

    def known(self, *ids: int) -> list[int]:
        """In order, those that are in the vocabulary."""
        return sorted(id for id in set(ids) if id < len(self.tokens))

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("chat template, behind a reply", self.name(self.template)),
            ("generation config, stops at", self.name(*self.generation)),
            ("tokenizer, EOS", self.name(self.tokenizer)),
            ("tokenizer, padding", self.name(self.pad)),
        ]


@dataclass(frozen=True)
class ReplyEnds:
    """What a model does: how often its replies end and repeat themselves, and how likely the end is in its place."""

    count: int
    limit: int  # of tokens
    finished: float  # with a token at which the generation config stops
    repetition: float
    probability: float | None = None  # of all ids that end a turn, where the base's own replies end
    own_probability: float | None = None  # the same where its own replies end
    other: int | None = None  # another token that ends replies, such as the separator of documents,
    ended_by_other: float = 0.0  # and the share of them that it ends
    by_token: Mapping[int, float] = field(default_factory=dict)  # of stops and separators, where the base's replies end

    @classmethod
    def of(
        cls,
        replies: Sequence[Generation],
        limit: int,
        files: StopFiles,
        by_token: Mapping[int, float] | None = None,
        own_probability: float | None = None,
    ) -> "ReplyEnds":
        ends = [reply.tokens[-1] for reply in replies if reply.finished]
        others = Counter(end for end in ends if end not in files.generation)
        other, ended_by_other = others.most_common(1)[0] if others else (None, 0)
        return cls(
            count=len(replies),
            limit=limit,
            finished=sum(end in files.generation for end in ends) / len(replies),
            other=other,
            ended_by_other=ended_by_other / len(replies),
            repetition=fmean(repetition(reply.tokens) for reply in replies),
            probability=None if by_token is None else sum(by_token.get(id, 0.0) for id in files.stops),
            own_probability=own_probability,
            by_token=by_token or {},
        )

    def rows(self, files: StopFiles) -> list[tuple[str, str]]:
        probability = "too few end" if self.probability is None else f"{self.probability:.2f}"
        likely = sorted(
            (id for id, value in self.by_token.items() if value >= SHOWN_FROM), key=lambda id: -self.by_token[id]
        )
        if len(likely) > 1 or not set(likely) <= set(files.stops):
            probability += f" ({', '.join(f'{files.name(id)} {self.by_token[id]:.2f}' for id in likely)})"
        return [
            (f"replies that end within {self.limit:,} tokens", f"{round(self.finished * self.count)} of {self.count}"),
            ("share of repeated text", f"{self.repetition:.2f}"),
            (WHERE_THE_BASE_ENDS, probability),
        ]


@dataclass(frozen=True)
class Fault:
    what: str
    cure: str
    repairable: bool = True  # by `recover repair`

    def __str__(self) -> str:
        return f"{self.what}. {self.cure}"


def probability_of_ending(
    student: Student, exchanges: Sequence[tuple[Sequence[int], Generation]], stops: Sequence[int]
) -> float | None:
    """The mean probability of the `stops` together behind finished replies; None where too few are finished."""
    by_token = probabilities_of_ending(student, exchanges, stops)
    return None if by_token is None else sum(by_token.values())


@torch.no_grad()
def probabilities_of_ending(
    student: Student, exchanges: Sequence[tuple[Sequence[int], Generation]], tokens: Sequence[int]
) -> dict[int, float] | None:
    """The mean probability of each of the tokens behind finished replies; None where too few are finished."""
    ended = [(prompt, reply.tokens) for prompt, reply in exchanges if reply.finished and len(reply.tokens) > 1]
    if len(ended) < MIN_ENDS:
        return None
    known = [id for id in tokens if id < len(student.head.weight)]
    probabilities = []
    for prompt, reply in ended:
        row = [*prompt, *reply]
        sample = Sample(row, [False] * (len(row) - 1) + [True])
        states = student.hidden(Batch.collate([sample], student.chat.pad_id, student.device))
        chances = torch.softmax(student.head.logits(states)[0], dim=-1)
        probabilities.append(chances[known].tolist())
    return dict(zip(known, map(fmean, zip(*probabilities, strict=True)), strict=True))


def file_faults(files: StopFiles, base: StopFiles | None = None) -> list[Fault]:
    faults = []
    if files.template is None and (base is None or base.template is not None):
        of_base = f", where that of its base has {base.name(base.template)}" if base else ""
        what = f"The chat template writes no token behind a reply{of_base}, so no training on chats teaches an end"
        cure = "Copy the base's chat template" if base else "Add the end of a turn to the chat template"
        faults.append(Fault(what, cure))
    end = missing_end(files, base)
    if end is not None:
        stops = f"{files.name(*files.generation)} only" if files.generation else "no token"
        what = f"Turns end with {files.name(end)}, and the generation config stops at {stops}, so replies run on"
        cure = f"Set eos_token_id in generation_config.json to {files.known(end, *files.generation)}"
        faults.append(Fault(what, cure))
    return faults


def missing_end(files: StopFiles, base: StopFiles | None = None) -> int | None:
    """The token that ends turns, by the chat template or else the base's, if generation does not stop there."""
    end = files.template if files.template is not None else base.template if base else None
    return None if end in files.generation else end


def has_lost_ends(model: float | None, base: float | None) -> bool:
    """By the probabilities of both to end where replies of the base do, as far as these could be told."""
    return model is not None and base is not None and model < UNLEARNED * base


def ends_its_own(model: ReplyEnds, base: ReplyEnds) -> bool:
    """Whether it is as sure of the end of its own replies as the base is of the end of its. A model that writes more
    than its base, or has another end of a turn, need not end where replies of the base do."""
    is_sure = model.own_probability is not None and not has_lost_ends(model.own_probability, base.probability)
    return is_sure and model.finished > UNLEARNED * base.finished


def measured_fault(
    model: ReplyEnds, files: StopFiles, base: ReplyEnds | None, base_files: StopFiles | None
) -> Fault | None:
    """Whether the model has unlearned the end, or never learned it, and the likeliest reason.

    Nothing is told where the files are at fault: prompts may be broken then, and that fault comes first. Nor where
    replies of the base are too long to show an end."""
    if file_faults(files, base_files):
        return None
    enough = UNLEARNED if base is None else max(UNLEARNED * base.finished, base.ended_by_other / UNLEARNED)
    if model.other is not None and model.ended_by_other > enough and not _has_new_end(files, base_files):
        ends = f"{model.ended_by_other:.2f} of its replies end with {files.name(model.other)}"
        what = f"{ends}, at which the generation config does not stop, so replies run on"
        stops = files.known(model.other, *files.generation)
        until = f"until then set eos_token_id in generation_config.json to {stops}"
        cure = f"`recover repair` teaches it {files.name(files.template)} again; {until}"
        return Fault(what, cure)
    if base is None:
        if model.finished > 0:
            return None
        what = f"None of {model.count} replies ended within {model.limit:,} tokens"
        of_base = "Its base has no chat template: name the chat model" if base_files else "Name the model"
        cure = f"{of_base} that it came from with --base, to tell a lost end from long replies"
        return Fault(what, cure, repairable=False)
    if has_lost_ends(model.probability, base.probability) and not ends_its_own(model, base):
        ends = f"the model ends with probability {model.probability:.2f}, the base with {base.probability:.2f}"
        cure = "`recover repair` brings it back by a few steps on the base's answers, which end"
        if _has_new_end(files, base_files):
            cure = "Train that token, or go back to the base's chat template, as `recover repair` does"
        return Fault(f"Where replies of its base end, {ends}: {_reason(files, base_files)}", cure)
    if base.probability is not None and model.finished < UNLEARNED * base.finished:
        what = f"{model.finished:.2f} of its replies end, of its base's {base.finished:.2f}, although it knows where"
        cure = "They are longer than its base's, or repeat themselves: see what else it has lost with `recover check`"
        return Fault(what, cure, repairable=False)
    return None


def _has_new_end(files: StopFiles, base: StopFiles | None) -> bool:
    return base is not None and files.template is not None and files.template >= len(base.tokens)


def _reason(files: StopFiles, base: StopFiles | None) -> str:
    end = files.template
    if _has_new_end(files, base):
        return f"its end of a turn, {files.name(end)}, is a token that the base lacks, and training has not taught it"
    if end == files.pad:
        return f"its end of a turn, {files.name(end)}, is also the padding, which many trainers leave out of the loss"
    return "its training has overwritten the end of a turn"
