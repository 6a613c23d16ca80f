"""How a model ends a turn, by its files and by what it does: for `recover doctor --model` and `recover check`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evals.suites.config import load_suites
from evals.suites.lab import instruction_prompts
from evals.suites.suite_measurement import ifeval_prompts
from pipelines.log import log
from pipelines.model_loading import load_frozen, open_engine
from pipelines.project.project import weights_id
from pipelines.storage import ContentCache
from recovery.engines import Generation, Sampling
from recovery.models.adapters import base_of
from recovery.models.chat_template import check_same_vocabulary
from recovery.models.students import Student, config_of, load_chat
from recovery.models.weight_files import tensor_files
from recovery.stop_contract import (
    WHERE_THE_BASE_ENDS,
    Fault,
    ReplyEnds,
    StopFiles,
    ends_its_own,
    file_faults,
    measured_fault,
    probabilities_of_ending,
    probability_of_ending,
)

PROMPTS = 24
LIMIT = 256  # tokens of a reply


@dataclass(frozen=True)
class BaseReplies:
    """Replies of a base, behind which the probability of an end is read in the models that came from it."""

    exchanges: list[tuple[list[int], Generation]]
    ends: ReplyEnds

    @classmethod
    def of(cls, base: str, cache: ContentCache | None = None) -> "BaseReplies":
        files, chat = StopFiles.of(base), load_chat(base)
        prompts = [chat.prompt(text) for text in _texts(base)]

        def sample() -> tuple[list[list[Any]] | None, list[dict[str, Any]]]:
            log.info(f"Sampling {len(prompts)} replies of the base, to see how they end")
            student = load_frozen(base)
            replies = _sample(student, prompts)
            exchanges = list(zip(prompts, replies, strict=True))
            by_token = probabilities_of_ending(student, exchanges, files.stops_and_separators)
            pairs = None if by_token is None else [[id, value] for id, value in by_token.items()]
            return pairs, [asdict(reply) for reply in replies]

        inputs = [weights_id(base), LIMIT, list(files.stops_and_separators), prompts]
        pairs, stored = cache.get_or_write("reply-ends", inputs, sample) if cache else sample()
        replies = [Generation(**reply) for reply in stored]
        ends = ReplyEnds.of(replies, LIMIT, files, None if pairs is None else dict(pairs))
        return cls(list(zip(prompts, replies, strict=True)), ends)

    def ends_its_own(self, model: Student, base: str) -> bool:
        prompts, files = [model.chat.prompt(text) for text in _texts(base)], StopFiles.of(model.path)
        return ends_its_own(_ends(model, prompts, files, None), self.ends)

    def ending(self, model: Student) -> float | None:
        return probability_of_ending(model, self.exchanges, StopFiles.of(model.path).stops)


@dataclass(frozen=True)
class TurnEnds:
    """What the files of a model say, what it does, and its base beside it where there is one."""

    files: StopFiles
    does: ReplyEnds | None  # None without a chat template
    base_files: StopFiles | None
    base_does: ReplyEnds | None  # None, too, where there is no base, or one of both has no chat template
    faults: list[Fault]

    @property
    def fault(self) -> Fault | None:
        """The first that `recover repair` mends."""
        return next((fault for fault in self.faults if fault.repairable), None)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        rows = self.files.rows() + (self.does.rows(self.files) if self.does else [])
        base = self.base_files.rows() if self.base_files else []
        base += self.base_does.rows(self.base_files) if self.base_files and self.base_does else []
        if not self.base_does:  # there are no replies of a base
            rows = [row for row in rows if row[0] != WHERE_THE_BASE_ENDS]
        beside = [value for _, value in base] + [""] * (len(rows) - len(base))
        return [(name, value, other) for (name, value), other in zip(rows, beside, strict=True)]

    def lines(self) -> list[str]:
        table = [("", "model", "base" if self.base_files else ""), *self.rows]
        width, value_width = (max(len(row[i]) for row in table) for i in (0, 1))
        lines = [f"{name:<{width}}  {value:<{value_width}}  {other}".rstrip() for name, value, other in table]
        return [*lines, *(map(str, self.faults) if self.faults else ["The turns of the model end where they should."])]

    def as_json(self) -> dict[str, Any]:
        def of(files: StopFiles | None, does: ReplyEnds | None) -> dict[str, Any] | None:
            return None if files is None else files.as_json() | (asdict(does) if does else {})

        return {
            "model": of(self.files, self.does),
            "base": of(self.base_files, self.base_does),
            "rows": self.rows,
            "faults": [asdict(fault) for fault in self.faults],
        }


def examine_turn_ends(model: str, base: str | None = None, cache: ContentCache | None = None) -> TurnEnds:
    """Read the files of both, let both reply to the same prompts, and name what is wrong."""
    config_of(model)  # raises where there is no model
    base_files = StopFiles.of(base) if base else None
    files = StopFiles.of(model, base_files)
    if base:
        check_same_vocabulary(load_chat(model), load_chat(base), is_base=True)
    if not files.tokens.chat_template:  # it cannot be asked anything
        return TurnEnds(files, None, base_files, None, file_faults(files, base_files))
    tensor_files(base_of(model) or model)  # raises if they are missing, before the base replies
    replies = BaseReplies.of(base, cache) if base and base_files and base_files.tokens.chat_template else None
    student = load_frozen(model)
    prompts = [student.chat.prompt(text) for text in _texts(base or model)]
    log.info(f"Sampling {len(prompts)} replies of the model, to see how they end")
    by_token = probabilities_of_ending(student, replies.exchanges, files.stops_and_separators) if replies else None
    does = _ends(student, prompts, files, by_token)
    base_does = replies.ends if replies else None
    unlearned = measured_fault(does, files, base_does, base_files)
    faults = file_faults(files, base_files) + ([unlearned] if unlearned else [])
    return TurnEnds(files, does, base_files, base_does, faults)


def _ends(
    model: Student, prompts: list[list[int]], files: StopFiles, by_token: Mapping[int, float] | None
) -> ReplyEnds:
    replies = _sample(model, prompts)
    own = probability_of_ending(model, list(zip(prompts, replies, strict=True)), files.stops)
    return ReplyEnds.of(replies, LIMIT, files, by_token, own)


def _texts(base: str) -> list[str]:
    of_suite = ifeval_prompts(load_suites(base), limit=PROMPTS)
    prompts = of_suite[0] if of_suite else instruction_prompts(PROMPTS, natural=True)
    return [prompt.text for prompt in prompts]


def _sample(student: Student, prompts: list[list[int]]) -> list[Generation]:
    with open_engine(student, "transformers") as engine:  # vLLM would take longer to start than this
        return engine.generate(prompts, Sampling(LIMIT, seed=0))
