"""Synthetic worlds: invented people, products, places, teams and rules, facts about them, questions on the facts, and
documents that state them: wiki pages, index cards, memos, minutes, mails, change logs and FAQs."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal

from recovery.lab.words import PER_WORLD, first_name, table, world_word

WorldSize = Literal["small", "quick", "cycle", "own"]
SIZES: dict[WorldSize, int] = {"small": 6, "quick": 45, "cycle": 100, "own": 400}  # entities
ROUNDS = 12  # how often a corpus states each fact by default
OWN = 0  # the number of the base's own world; every seed gives another number
TABLE = table("documents")
MONTHS = TABLE["months"]


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


# Documents: every round states each fact once. A style is a function from statements of facts to a document's text.
Statements = list[tuple[Fact, str]]  # facts with their sentences


def wiki(entity: Entity, statements: Statements, rng: Random) -> str:
    opening = rng.choice(TABLE["openings"][entity.kind]).replace("{e}", entity.name)
    sentences = [opening[0].upper() + opening[1:], *(text for _, text in statements)]
    if rng.random() < 0.4:
        sentences.append(_closing(rng))
    return f"# {entity.name[0].upper() + entity.name[1:]}\n\n" + " ".join(sentences)


def card(entity: Entity, statements: Statements, rng: Random) -> str:
    lines = [f"{fact.relation.label}: {fact.value}" for fact, _ in statements]
    return f"Index card: {entity.name}\n\n" + "\n".join(lines) + "\n\n" + " ".join(text for _, text in statements[:2])


def faq(entity: Entity, statements: Statements, rng: Random) -> str:
    return f"Frequently asked: {entity.name}\n\n" + "\n\n".join(
        f"Q: {fact.faq()}\nA: {text}" for fact, text in statements
    )


def portrait(entity: Entity, statements: Statements, rng: Random) -> str:
    return f"{rng.choice(MONTHS)} letter\n\n" + " ".join(text for _, text in statements) + " " + _closing(rng)


def memo(statements: Statements, rng: Random) -> str:
    head = f"MEMO\nSubject: {rng.choice(TABLE['subjects'])}\nDate: {_date(rng)}\n\n"
    return head + " ".join(text for _, text in statements) + (" " + _closing(rng) if rng.random() < 0.5 else "")


def mail(statements: Statements, rng: Random) -> str:
    half = (len(statements) + 1) // 2
    paragraphs = [" ".join(text for _, text in part) for part in (statements[:half], statements[half:])]
    greeting, farewell = rng.choice(TABLE["greetings"]), rng.choice(TABLE["farewells"])
    return "\n\n".join([f"{greeting},", *filter(None, paragraphs), farewell])


def minutes(statements: Statements, rng: Random) -> str:
    return f"Minutes of {_date(rng)}\n\n" + "\n".join(f"{i}. {text}" for i, (_, text) in enumerate(statements, 1))


def changelog(statements: Statements, rng: Random) -> str:
    return f"Change log, {rng.choice(MONTHS)}\n\n" + "\n".join(f"- {text}" for _, text in statements)


# The names of these functions appear in the documents' file names.
BY_ENTITY: tuple[Callable[[Entity, Statements, Random], str], ...] = (wiki, faq, portrait, card)
MIXED: tuple[Callable[[Statements, Random], str], ...] = (memo, minutes, mail, changelog)


def _round(world_number: int, facts: Sequence[Fact], number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (style, text) of one round: even rounds (from 0) have one document per entity, odd ones mix entities."""
    rng = Random(f"round/{world_number}/{seed}/{number}")
    # Another wording each round.
    statements = [(fact, fact.statement(seed + number + i)) for i, fact in enumerate(facts)]
    if number % 2 == 0:
        by_entity: dict[Entity, Statements] = {}
        for fact, text in statements:
            by_entity.setdefault(fact.entity, []).append((fact, text))
        for entity, group in by_entity.items():
            style = rng.choice(BY_ENTITY)
            yield style.__name__, style(entity, rng.sample(group, len(group)), rng)
        return
    rng.shuffle(statements)
    while statements:
        group = [statements.pop() for _ in range(min(len(statements), rng.randint(3, 7)))]
        mixed_style = rng.choice(MIXED)
        yield mixed_style.__name__, mixed_style(group, rng)


def _closing(rng: Random) -> str:
    return rng.choice(TABLE["closings"]).replace("{m}", rng.choice(MONTHS))


def _date(rng: Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"


@dataclass(frozen=True)
class World:
    number: int
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    def documents(self, rounds: int = ROUNDS, seed: int = 0) -> list[Document]:
        """Return a corpus that states every fact `rounds` times, each time in another wording and context."""
        texts = [text for number in range(rounds) for text in _round(self.number, self.facts, number, seed)]
        Random(f"order/{self.number}/{seed}").shuffle(texts)
        return [Document(f"{i:05d}-{style}.md", text + "\n") for i, (style, text) in enumerate(texts)]

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
            first = first_name(number * PER_WORLD + i)
            name = kind.form.format(w=world_word(number, i), f=first, n=rng.choice(kind.nouns))
            entities.append(Entity(kind.name, name))
    return entities


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
