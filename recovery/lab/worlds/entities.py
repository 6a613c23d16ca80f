"""The data types of a synthetic world: entities, facts about them, questions on the facts, and documents."""

from dataclasses import dataclass

from recovery.lab.worlds.relations import Relation


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
