"""A world: invented people, products, places, teams and rules, and what is true of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from recovery.lab.worlds import names
from recovery.lab.worlds.relations import KINDS, Kind, Relation

SIZES = {"quick": 45, "cycle": 100, "own": 400}
ROUNDS = 12  # how often a corpus states each fact, unless told otherwise
OWN = 0  # the number of the base's own world; every seed gives another


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

    def say(self, wording: int) -> str:
        says = self.relation.says
        return self._fill(says[wording % len(says)])

    def asked(self, wording: int) -> Question:
        asks = self.relation.asks
        return Question(self._fill(asks[wording % len(asks)]), self.value)

    def faq(self) -> str:
        return self._fill(self.relation.faq)

    def reply(self) -> str:
        return self._fill(self.relation.reply)

    def _fill(self, wording: str) -> str:
        text = wording.replace("{e}", self.entity.name).replace("{v}", self.value)
        return text[0].upper() + text[1:]


@dataclass(frozen=True)
class World:
    number: int
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    def documents(self, rounds: int = ROUNDS, seed: int = 0) -> list[Document]:
        """What somebody there wrote down: `rounds` times every fact, each time in other words and company."""
        from recovery.lab.worlds.documents import write

        return write(self, rounds, seed)

    def questions(self) -> list[Question]:
        """One closed-book question a fact."""
        rng = Random(f"questions/{self.number}")
        return [fact.asked(rng.randrange(len(fact.relation.asks))) for fact in self.facts]

    def write(self, folder: Path | str, rounds: int = ROUNDS, seed: int = 0) -> Path:
        """The corpus as a user would have it: `docs/`, and `questions.jsonl` beside it. Returns `docs/`."""
        docs = Path(folder) / "docs"
        docs.mkdir(parents=True, exist_ok=True)
        for document in self.documents(rounds, seed):
            (docs / document.name).write_text(document.text, encoding="utf-8")
        lines = [json.dumps({"question": q.question, "answer": q.answer}) for q in self.questions()]
        (docs.parent / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return docs


def make_world(seed: int, size: str = "cycle") -> World:
    """The world of that seed. Names are shared by no two worlds, the base's own included."""
    if seed < 0:
        raise ValueError("the seed of a world is zero or more")
    return _world(OWN + 1 + seed, size)


def own_world() -> World:
    """The world that the shipped base was trained on."""
    return _world(OWN, "own")


def _world(number: int, size: str) -> World:
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
        for _ in range(round(count * kind.share / 100)):
            i = len(entities)
            entities.append(Entity(kind.name, _name(number, i, kind, rng)))
    return entities


def _name(number: int, i: int, kind: Kind, rng: Random) -> str:
    first = names.first_name(number * names.PER_WORLD + i)
    return kind.form.format(w=names.world_word(number, i), f=first, n=rng.choice(kind.nouns))


def _facts(entities: list[Entity], relation: Relation, by_kind: dict[str, list[Entity]], rng: Random) -> list[Fact]:
    """Values are dealt out rather than drawn, so that guessing the commonest one is worth little."""
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
