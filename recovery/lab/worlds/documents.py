"""How a world's facts come to paper: wiki pages, index cards, memos, minutes, mails, change logs, FAQs.

Every round states each fact once; a style is a function from facts and a choice of wording to text."""

from collections.abc import Callable, Iterator
from random import Random

from recovery.lab.worlds.world import Document, Entity, Fact, World

Says = list[tuple[Fact, str]]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
OPENINGS = {
    "person": ("A short note on {e}.", "{e} in brief.", "Here is what we know of {e}."),
    "product": ("From the catalogue: {e}.", "A look at {e}.", "All about {e}."),
    "place": ("A guide to {e}.", "Notes from a visit to {e}.", "The town of {e}."),
    "team": ("Who is who: {e}.", "Meet {e}.", "A page on {e}."),
    "rule": ("House rules: {e}.", "What to know about {e}.", "A word on {e}."),
}
CLOSINGS = (
    "This page was checked in {m}.",
    "More will follow in {m}.",
    "Please correct what is wrong.",
    "Last changed in {m}.",
    "The archive has more.",
    "That is all for now.",
    "Written down in {m} so that nobody forgets.",
)
SUBJECTS = ("News of the week", "Things to remember", "For your files", "What changed", "A few facts", "Before you ask")
GREETINGS = ("Dear all", "Hello everybody", "Good morning", "Dear friends", "Hello again")
FAREWELLS = ("Best wishes", "See you soon", "Many thanks", "Kind regards", "Until next time")


def wiki(about: Entity, says: Says, rng: Random) -> str:
    opening = rng.choice(OPENINGS[about.kind]).replace("{e}", about.name)
    sentences = [opening[0].upper() + opening[1:], *(text for _, text in says)]
    if rng.random() < 0.4:
        sentences.append(_closing(rng))
    return f"# {_title(about.name)}\n\n" + " ".join(sentences)


def card(about: Entity, says: Says, rng: Random) -> str:
    lines = [f"{fact.relation.label}: {fact.value}" for fact, _ in says]
    return f"Index card: {about.name}\n\n" + "\n".join(lines) + "\n\n" + " ".join(text for _, text in says[:2])


def faq(about: Entity, says: Says, rng: Random) -> str:
    return f"Frequently asked: {about.name}\n\n" + "\n\n".join(f"Q: {fact.faq()}\nA: {text}" for fact, text in says)


def portrait(about: Entity, says: Says, rng: Random) -> str:
    return f"{rng.choice(MONTHS)} letter\n\n" + " ".join(text for _, text in says) + " " + _closing(rng)


def memo(says: Says, rng: Random) -> str:
    head = f"MEMO\nSubject: {rng.choice(SUBJECTS)}\nDate: {_date(rng)}\n\n"
    return head + " ".join(text for _, text in says) + (" " + _closing(rng) if rng.random() < 0.5 else "")


def mail(says: Says, rng: Random) -> str:
    half = (len(says) + 1) // 2
    paragraphs = [" ".join(text for _, text in part) for part in (says[:half], says[half:])]
    return f"{rng.choice(GREETINGS)},\n\n" + "\n\n".join(filter(None, paragraphs)) + f"\n\n{rng.choice(FAREWELLS)}"


def minutes(says: Says, rng: Random) -> str:
    return f"Minutes of {_date(rng)}\n\n" + "\n".join(f"{i}. {text}" for i, (_, text) in enumerate(says, 1))


def changelog(says: Says, rng: Random) -> str:
    return f"Change log, {rng.choice(MONTHS)}\n\n" + "\n".join(f"- {text}" for _, text in says)


BY_ENTITY: tuple[Callable[[Entity, Says, Random], str], ...] = (wiki, faq, portrait, card)
MIXED: tuple[Callable[[Says, Random], str], ...] = (memo, minutes, mail, changelog)


def write(world: World, rounds: int, seed: int) -> list[Document]:
    texts = [text for number in range(rounds) for text in _round(world, number, seed)]
    Random(f"order/{world.number}/{seed}").shuffle(texts)
    return [Document(f"{i:05d}-{style}.md", text + "\n") for i, (style, text) in enumerate(texts)]


def _round(world: World, number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Odd rounds file facts by entity, even ones mix them as the days bring them."""
    rng = Random(f"round/{world.number}/{seed}/{number}")
    says = [(fact, fact.say(seed + number + i)) for i, fact in enumerate(world.facts)]  # the next wording every round
    if number % 2 == 0:
        for about, group in _by_entity(says).items():
            style = rng.choice(BY_ENTITY)
            yield style.__name__, style(about, rng.sample(group, len(group)), rng)
        return
    rng.shuffle(says)
    while says:
        taken = [says.pop() for _ in range(min(len(says), rng.randint(3, 7)))]
        mixed = rng.choice(MIXED)
        yield mixed.__name__, mixed(taken, rng)


def _by_entity(says: Says) -> dict[Entity, Says]:
    groups: dict[Entity, Says] = {}
    for fact, text in says:
        groups.setdefault(fact.entity, []).append((fact, text))
    return groups


def _closing(rng: Random) -> str:
    return rng.choice(CLOSINGS).replace("{m}", rng.choice(MONTHS))


def _date(rng: Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"


def _title(name: str) -> str:
    return name[0].upper() + name[1:]
