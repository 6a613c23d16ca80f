"""What a run was given besides its settings: the job it belongs to, its data and its teacher."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class RunInputs:
    """Stored as JSON in the column `runs.inputs`; a field that does not apply is None."""

    job: str | None = None  # the job that started the run; `recover resume` finds it by this
    stage: str | None = None  # of that job: midtrained, recovered, or what is measured
    corpus: str | None = None  # content hash of the documents
    questions: str | None = None  # file of closed-book questions
    passages: str | None = None  # file of sampled passages, where there are no questions
    teacher: str | None = None  # as shown to people
    lift: dict[str, Any] | None = None  # what its context gives the teacher: accuracy with and without it, or the KL
    separator: int | None = None  # the token that ends each document
    mix: dict[str, float] | None = None  # the shares in effect: answers, texts, earlier
    passages_taught: dict[str, Any] | None = None  # in context: passages, questions and openings among the prompts
    paraphrases: dict[str, Any] | None = None  # how many paraphrases were written, kept and rejected

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Self:
        return cls(**(values or {}))

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}
