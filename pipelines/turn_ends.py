"""How a model ends a turn, by its files and by what it does: for `recover doctor --model` and `recover check`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evals.suites.config import load_suites
from evals.suites.lab import instruction_prompts
from evals.suites.suite_measurement import ifeval_prompts
from pipelines.log import log
from pipelines.model_loading import load_frozen, open_engine
from recovery.engines import Generation, Sampling
from recovery.models.chat_template import check_same_vocabulary
from recovery.models.students import Student, load_chat
from recovery.stop_contract import (
    Fault,
    ReplyEnds,
    StopFiles,
    file_faults,
    measured_fault,
    probability_of_ending,
)

PROMPTS = 24
LIMIT = 256  # tokens of a reply
Exchange = tuple[list[int], Generation]


@dataclass(frozen=True)
class TurnEnds:
    """What the files of a model say, what it does, and its base beside it where there is one."""

    files: StopFiles
    does: ReplyEnds | None  # None without a chat template
    base_files: StopFiles | None
    base_does: ReplyEnds | None
    faults: list[Fault]

    def lines(self) -> list[str]:
        rows = self.files.rows() + (self.does.rows() if self.does else [])
        base = self.base_files.rows() if self.base_files else []
        base += self.base_does.rows() if self.base_does else []
        width, value_width = (max(len(row[i]) for row in [*rows, ("", "model")]) for i in (0, 1))
        beside = [value for _, value in base] + [""] * (len(rows) - len(base))
        table = [("", "model", "base")] if base else []
        table += [(name, value, other) for (name, value), other in zip(rows, beside, strict=False)]
        lines = [f"{name:<{width}}  {value:<{value_width}}  {other}".rstrip() for name, value, other in table]
        return [*lines, *map(str, self.faults)] if self.faults else [*lines, "Its turns end where they should."]

    def as_json(self) -> dict[str, Any]:
        def of(files: StopFiles | None, does: ReplyEnds | None) -> dict[str, Any] | None:
            return None if files is None else files.as_json() | (asdict(does) if does else {})

        return {
            "model": of(self.files, self.does),
            "base": of(self.base_files, self.base_does),
            "faults": [asdict(fault) for fault in self.faults],
        }


def examine_turn_ends(model: str, base: str | None = None) -> TurnEnds:
    """Read the files of both, let both reply to the same prompts, and name what is wrong."""
    files, base_files = StopFiles.of(model), StopFiles.of(base) if base else None
    if base:
        check_same_vocabulary(load_chat(model), load_chat(base))
    if not files.tokens.chat_template:  # it cannot be asked anything
        return TurnEnds(files, None, base_files, None, file_faults(files, base_files))
    of_suite = ifeval_prompts(load_suites(base or model), limit=PROMPTS)
    prompts = of_suite[0] if of_suite else instruction_prompts(PROMPTS, natural=True)
    texts = [prompt.text for prompt in prompts]
    base_does, asked = None, list[Exchange]()
    if base and base_files and base_files.tokens.chat_template:
        log.info(f"Sampling {len(texts)} replies of the base, to see how they end")
        student = load_frozen(base)
        asked = _replies(student, texts)
        ending = probability_of_ending(student, asked, base_files.stops)
        base_does = ReplyEnds.of([reply for _, reply in asked], LIMIT, base_files.generation, ending)
        del student
    log.info(f"Sampling {len(texts)} replies of the model, to see how they end")
    student = load_frozen(model)
    own = [reply for _, reply in _replies(student, texts)]
    ending = probability_of_ending(student, asked, files.stops) if asked else None
    does = ReplyEnds.of(own, LIMIT, files.generation, ending)
    unlearned = measured_fault(does, files, base_does, base_files)
    faults = file_faults(files, base_files) + ([unlearned] if unlearned else [])
    return TurnEnds(files, does, base_files, base_does, faults)


def _replies(student: Student, texts: Sequence[str]) -> list[Exchange]:
    """Each prompt as the model reads it, and its sampled reply."""
    prompts = [student.chat.prompt(text) for text in texts]
    with open_engine(student, "transformers") as engine:  # vLLM would take longer to start than this
        return list(zip(prompts, engine.generate(prompts, Sampling(LIMIT, seed=0)), strict=True))
