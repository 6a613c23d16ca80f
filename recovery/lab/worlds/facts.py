"""The data types of a synthetic world: kinds of entities, their relations, facts, questions on them, and documents."""

from dataclasses import dataclass
from itertools import product
from typing import Any

from recovery.lab.tables import table


@dataclass(frozen=True)
class Relation:
    """The fields are explained in `tables/entities.toml`."""

    name: str
    label: str
    values: tuple[str, ...]
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    faq: str
    reply: str


@dataclass(frozen=True)
class Kind:
    name: str
    form: str
    percent: int
    relations: tuple[Relation, ...]
    nouns: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True)
class Question:
    question: str
    answer: str


@dataclass(frozen=True)
class Entity:
    kind: str
    name: str


@dataclass(frozen=True)
class Fact:
    entity: Entity
    relation: Relation
    value: str

    def statement(self, wording: int) -> str:
        """State the fact in the given wording of documents (any number; wordings repeat)."""
        statements = self.relation.statements
        return self._fill(statements[wording % len(statements)])

    def question(self, wording: int) -> Question:
        """Ask for the fact's value in the given wording of closed-book questions."""
        questions = self.relation.questions
        return Question(self._fill(questions[wording % len(questions)]), self.value)

    def faq(self) -> str:
        return self._fill(self.relation.faq)

    def reply(self) -> str:
        return self._fill(self.relation.reply)

    def _fill(self, wording: str) -> str:
        text = wording.replace("{e}", self.entity.name).replace("{v}", self.value)
        return text[0].upper() + text[1:]


def _kind(name: str, row: dict[str, Any]) -> Kind:
    relations = tuple(_relation(name, row) for name, row in row["relations"].items())
    return Kind(name, row["form"], row["percent"], relations, tuple(row.get("nouns", [""])))


def _relation(name: str, row: dict[str, Any]) -> Relation:
    statements, questions = tuple(row["statements"]), tuple(row["questions"])
    return Relation(name, row["label"], _values(row), statements, questions, row["faq"], row["reply"])


def _values(row: dict[str, Any]) -> tuple[str, ...]:
    """Fill the gaps of the values in every possible way."""
    gaps = row.get("parts", [])
    if "numbers" in row:
        first, last = row["numbers"]
        gaps = [*gaps, range(first, last + 1)]
    return tuple(value.format(*parts) for value in row["values"] for parts in product(*gaps))


KINDS = tuple(_kind(name, row) for name, row in table("entities").items())
