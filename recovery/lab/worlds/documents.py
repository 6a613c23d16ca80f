"""Documents of a synthetic world: wiki pages, index cards, memos, minutes, mails, change logs and FAQs.

Every round states each fact once. A style is a function from statements of facts to the text of a document."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from recovery.lab.tables import table
from recovery.lab.worlds.facts import Document, Entity, Fact

Statements = list[tuple[Fact, str]]  # facts with their sentences
TABLE = table("documents")
MONTHS = TABLE["months"]


def wiki(entity: Entity, statements: Statements, rng: Random) -> str:
    opening = rng.choice(TABLE["openings"][entity.kind]).replace("{e}", entity.name)
    sentences = [opening[0].upper() + opening[1:], *(text for _, text in statements)]
    if rng.random() < 0.4:
        sentences.append(_closing(rng))
    return f"# {_title(entity.name)}\n\n" + " ".join(sentences)


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
    return (
        f"{rng.choice(TABLE['greetings'])},\n\n"
        + "\n\n".join(filter(None, paragraphs))
        + f"\n\n{rng.choice(TABLE['farewells'])}"
    )


def minutes(statements: Statements, rng: Random) -> str:
    return f"Minutes of {_date(rng)}\n\n" + "\n".join(f"{i}. {text}" for i, (_, text) in enumerate(statements, 1))


def changelog(statements: Statements, rng: Random) -> str:
    return f"Change log, {rng.choice(MONTHS)}\n\n" + "\n".join(f"- {text}" for _, text in statements)


# The names of these functions appear in the documents' file names.
BY_ENTITY: tuple[Callable[[Entity, Statements, Random], str], ...] = (wiki, faq, portrait, card)
MIXED: tuple[Callable[[Statements, Random], str], ...] = (memo, minutes, mail, changelog)


def write_documents(world_number: int, facts: Sequence[Fact], rounds: int, seed: int) -> list[Document]:
    texts = [text for number in range(rounds) for text in _round(world_number, facts, number, seed)]
    Random(f"order/{world_number}/{seed}").shuffle(texts)
    return [Document(f"{i:05d}-{style}.md", text + "\n") for i, (style, text) in enumerate(texts)]


def _round(world_number: int, facts: Sequence[Fact], number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (style, text) of one round: even rounds (from 0) have one document per entity, odd ones mix entities."""
    rng = Random(f"round/{world_number}/{seed}/{number}")
    statements = [
        (fact, fact.statement(seed + number + i)) for i, fact in enumerate(facts)
    ]  # another wording each round
    if number % 2 == 0:
        for entity, group in _by_entity(statements).items():
            style = rng.choice(BY_ENTITY)
            yield style.__name__, style(entity, rng.sample(group, len(group)), rng)
        return
    rng.shuffle(statements)
    while statements:
        group = [statements.pop() for _ in range(min(len(statements), rng.randint(3, 7)))]
        mixed_style = rng.choice(MIXED)
        yield mixed_style.__name__, mixed_style(group, rng)


def _by_entity(statements: Statements) -> dict[Entity, Statements]:
    groups: dict[Entity, Statements] = {}
    for fact, text in statements:
        groups.setdefault(fact.entity, []).append((fact, text))
    return groups


def _closing(rng: Random) -> str:
    return rng.choice(TABLE["closings"]).replace("{m}", rng.choice(MONTHS))


def _date(rng: Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"


def _title(name: str) -> str:
    return name[0].upper() + name[1:]
