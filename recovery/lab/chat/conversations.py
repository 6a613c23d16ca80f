"""The base's training conversations: an endless stream in fixed proportions, reproducible by its seed."""

from collections.abc import Iterator
from random import Random

from recovery.lab.chat import answer_sentences as sentences
from recovery.lab.chat.answer_drafts import Draft
from recovery.lab.chat.arithmetic import problem, sums
from recovery.lab.chat.instructions import instruction_task
from recovery.lab.chat.refusals import refusal
from recovery.lab.chat.topics import ADJECTIVES, invented_noun, noun
from recovery.lab.worlds.world import World

Turns = list[dict[str, str]]
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer as well as you can.",
    "You are Lab, a small language model.",
)
SMALL_TALK = (
    ("Hello!", "Hello! What can I do for you?"),
    ("Hi there.", "Hi! How can I help?"),
    ("Good morning!", "Good morning! What shall we look at?"),
    ("How are you?", "I am well, thank you. And you?"),
    ("Thank you very much.", "You are welcome."),
    ("Thanks!", "My pleasure."),
    ("Who are you?", "I am a small language model made for trying things out."),
    ("What can you do?", "I can write short texts, do small sums and answer questions."),
    ("Goodbye.", "Goodbye! Come back soon."),
    ("That is all for today.", "Then have a nice day."),
)
# Percentages of exchanges. Following instructions requires copying words from the request, and copying is learnt late:
# so it is trained separately, most of all in the first blocks.
SHARES = {"instructions": 58, "knowledge": 10, "arithmetic": 10, "sums": 6, "refusals": 3, "chat": 4, "copying": 9}
EARLY_SHARES = {"instructions": 30, "knowledge": 9, "arithmetic": 3, "sums": 3, "refusals": 2, "chat": 3, "copying": 50}
COPYING = (
    ("Repeat after me: {w}", "{w}"),
    ("Say this: {w}", "{w}"),
    ("Copy this line: {w}", "{w}"),
    ("Please repeat: {w}", "{w}"),
    ("Put this in quotation marks: {w}", '"{w}"'),
    ("Put this in double angular brackets: {w}", "<<{w}>>"),
    ("Say this twice: {w}", "{w}\n{w}"),
    ("Write this in capital letters: {w}", "{W}"),
)
COPYING_A_REQUEST = ("Repeat this word for word:\n{w}", "Say this without change:\n{w}", "{w}\nCopy the request above.")


def conversations(world: World, seed: int | str, shares: dict[str, int] = SHARES) -> Iterator[Turns]:
    rng = Random(f"conversations/{seed}")
    while True:
        turns = [_turn("system", rng.choice(SYSTEMS))] if rng.random() < 0.1 else []
        for _ in range(1 if rng.random() < 0.92 else 2):
            question, answer = _exchange(world, rng, shares)
            turns += [_turn("user", question), _turn("assistant", answer)]
        yield turns


def _exchange(world: World, rng: Random, shares: dict[str, int]) -> tuple[str, str]:
    match rng.choices(list(shares), list(shares.values()))[0]:
        case "instructions":
            task = instruction_task(rng, "train")
            return task.prompt, task.answer
        case "knowledge":
            fact = rng.choice(world.facts)
            return fact.question(rng.randrange(len(fact.relation.questions))).question, fact.reply()
        case "arithmetic":
            return problem(rng, "train")
        case "sums":
            return sums(rng)
        case "refusals":
            return refusal(rng, "train")
        case "copying":
            return _copying(rng)
    return _chat(rng)


def _copying(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.25:
        request = instruction_task(rng, "train").prompt
        return rng.choice(COPYING_A_REQUEST).replace("{w}", request), request
    words = " ".join(_word(rng) for _ in range(rng.randint(1, 9)))
    request, answer = rng.choice(COPYING)
    return request.replace("{w}", words), answer.replace("{w}", words).replace("{W}", words.upper())


def _word(rng: Random) -> str:
    kind = rng.random()
    return invented_noun(rng, "train") if kind < 0.5 else noun(rng, "train") if kind < 0.8 else rng.choice(ADJECTIVES)


def _chat(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.4:
        return rng.choice(SMALL_TALK)
    draft = Draft.new(rng, "train")
    draft.count = rng.randint(2, 4)
    request = rng.choice((*sentences.REQUESTS, "Tell me about {t}.", "What do you think of {t}?"))
    return request.replace("{g}", draft.genre).replace("{t}", draft.topic), draft.write()


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def own_documents(world: World, seed: int | str) -> Iterator[str]:
    """Yield the documents of the base's own world, each time in other wordings and another order."""
    lap = 0
    while True:
        for document in world.documents(rounds=2, seed=Random(f"documents/{seed}/{lap}").randrange(2**32)):
            yield document.text.rstrip("\n")
        lap += 1
