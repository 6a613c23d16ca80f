"""Synthetic worlds: invented people, products, places, teams and rules, with facts about them."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from recovery.lab import words
from recovery.lab.worlds.documents import write_documents
from recovery.lab.worlds.facts import KINDS, Document, Entity, Fact, Kind, Question, Relation

WorldSize = Literal["small", "quick", "cycle", "own"]
SIZES: dict[WorldSize, int] = {"small": 6, "quick": 45, "cycle": 100, "own": 400}  # entities
ROUNDS = 12  # how often a corpus states each fact by default
OWN = 0  # the number of the base's own world; every seed gives another number


@dataclass(frozen=True)
class World:
    number: int
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    def documents(self, rounds: int = ROUNDS, seed: int = 0) -> list[Document]:
        """Return a corpus that states every fact `rounds` times, each time in another wording and context."""
        return write_documents(self.number, self.facts, rounds, seed)

    def questions(self) -> list[Question]:
        """Return one closed-book question per fact."""
        rng = Random(f"questions/{self.number}")
        return [fact.question(rng.randrange(len(fact.relation.questions))) for fact in self.facts]

    def write(self, folder: Path | str, rounds: int = ROUNDS, seed: int = 0) -> Path:
        """Write the corpus to `docs/` and the questions to `questions.jsonl` beside it; return the path of `docs/`."""
        docs = Path(folder) / "docs"
        docs.mkdir(parents=True, exist_ok=True)
        for document in self.documents(rounds, seed):
            (docs / document.name).write_text(document.text, encoding="utf-8")
        lines = [json.dumps({"question": q.question, "answer": q.answer}) for q in self.questions()]
        (docs.parent / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return docs


def make_world(seed: int, size: WorldSize = "cycle") -> World:
    """Make the world of a seed. No two worlds share a name, including the base's own world."""
    if seed < 0:
        raise ValueError("The seed of a world must not be negative.")
    return _world(OWN + 1 + seed, size)


def own_world() -> World:
    """Make the world that the shipped base was trained on."""
    return _world(OWN, "own")


def _world(number: int, size: WorldSize) -> World:
    rng = Random(f"world/{number}")
    entities = _entities(number, SIZES[size], rng)
    by_kind = {kind.name: [entity for entity in entities if entity.kind == kind.name] for kind in KINDS}
    facts = []
    for kind in KINDS:
        for relation in kind.relations:
            facts += _facts(by_kind[kind.name], relation, by_kind, rng)
    return World(number, tuple(entities), tuple(facts))


def _entities(number: int, count: int, rng: Random) -> list[Entity]:
    entities: list[Entity] = []
    for kind in KINDS:
        for _ in range(round(count * kind.percent / 100)):
            i = len(entities)
            entities.append(Entity(kind.name, _name(number, i, kind, rng)))
    return entities


def _name(number: int, i: int, kind: Kind, rng: Random) -> str:
    first = words.first_name(number * words.PER_WORLD + i)
    return kind.form.format(w=words.world_word(number, i), f=first, n=rng.choice(kind.nouns))


def _facts(entities: list[Entity], relation: Relation, by_kind: dict[str, list[Entity]], rng: Random) -> list[Fact]:
    """Deal the values like cards instead of drawing them, so that guessing the commonest value gains little."""
    values = list(relation.values)
    if values[0].startswith("@"):
        values = [entity.name for entity in by_kind[values[0][1:]]]
    deck: list[str] = []
    facts = []
    for entity in entities:
        if not deck:
            deck = rng.sample(values, len(values))
        facts.append(Fact(entity, relation, deck.pop()))
    return facts
