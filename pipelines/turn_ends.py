"""How a model ends a turn, by its files and by what it does: for `recover doctor --model` and `recover check`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evals.suites.config import load_suites
from evals.suites.suite_measurement import ifeval_prompts
from pipelines.log import log
from pipelines.model_loading import load_frozen, open_engine
from recovery.engines import Generation, Sampling
from recovery.models.students import Student
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


@dataclass(frozen=True)
class TurnEnds:
    """What the files of a model say, what it does, and its base beside it where there is one."""

    files: StopFiles
    does: ReplyEnds
    base_files: StopFiles | None
    base_does: ReplyEnds | None
    faults: list[Fault]

    def lines(self) -> list[str]:
        rows = self.files.rows() + self.does.rows()
        base = (
            [] if self.base_files is None or self.base_does is None else self.base_files.rows() + self.base_does.rows()
        )
        width = max(len(name) for name, _ in rows)
        value_width = max(len(value) for _, value in [*rows, ("", "model")])
        header = f"{'':<{width}}  {'model':<{value_width}}  {'base' if base else ''}".rstrip()
        lines = [header] if base else []
        for i, (name, value) in enumerate(rows):
            lines.append(f"{name:<{width}}  {value:<{value_width}}  {base[i][1] if base else ''}".rstrip())
        return [*lines, *map(str, self.faults)] if self.faults else [*lines, "Its turns end where they should."]

    def as_json(self) -> dict[str, Any]:
        def of(files: StopFiles | None, does: ReplyEnds | None) -> dict[str, Any] | None:
            return None if files is None or does is None else files.as_json() | asdict(does)

        return {
            "model": of(self.files, self.does),
            "base": of(self.base_files, self.base_does),
            "faults": [asdict(fault) for fault in self.faults],
        }


def examine_turn_ends(model: str, base: str | None = None) -> TurnEnds:
    """Read the files of both, let both reply to the same prompts, and name what is wrong."""
    files, base_files = StopFiles.of(model), StopFiles.of(base) if base else None
    chosen = ifeval_prompts(load_suites(base or model), limit=PROMPTS)
    texts = [prompt.text for prompt in chosen[0]] if chosen else []
    base_does, replies = None, list[Generation]()
    if base and base_files:
        log.info(f"Sampling {len(texts)} replies of the base, to see how they end")
        student = load_frozen(base)
        prompts = [student.chat.prompt(text) for text in texts]
        replies = _replies(student, prompts)
        ending = probability_of_ending(student, list(zip(prompts, replies, strict=True)), base_files.stops)
        base_does = ReplyEnds.of(replies, LIMIT, ending)
        del student
    log.info(f"Sampling {len(texts)} replies of the model, to see how they end")
    student = load_frozen(model)
    prompts = [student.chat.prompt(text) for text in texts]
    own = _replies(student, prompts)
    exchanges = list(zip(prompts, replies, strict=True)) if base else []
    does = ReplyEnds.of(own, LIMIT, probability_of_ending(student, exchanges, files.stops) if exchanges else None)
    unlearned = measured_fault(does, files, base_does, base_files)
    return TurnEnds(
        files, does, base_files, base_does, file_faults(files, base_files) + ([unlearned] if unlearned else [])
    )


def _replies(student: Student, prompts: Sequence[list[int]]) -> list[Generation]:
    with open_engine(student, "transformers") as engine:  # vLLM would take longer to start than this
        return engine.generate(prompts, Sampling(LIMIT, seed=0))
