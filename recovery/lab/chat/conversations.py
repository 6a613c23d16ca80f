"""The base's training conversations: an endless stream in fixed proportions, reproducible by its seed."""

from collections.abc import Iterator
from random import Random

from recovery.lab.chat.answer_drafts import SENTENCES, Draft
from recovery.lab.chat.instructions import instruction_task
from recovery.lab.chat.questions import problem, refusal, sums
from recovery.lab.tables import table
from recovery.lab.words import ADJECTIVES, invented_noun, noun
from recovery.lab.worlds.world import World

Turns = list[dict[str, str]]
TABLE = table("conversations")
# Percentages of exchanges. Following instructions requires copying words from the request, and copying is learnt late:
# so it is trained separately, most of all in the first blocks.
SHARES = {"instructions": 58, "knowledge": 10, "arithmetic": 10, "sums": 6, "refusals": 3, "chat": 4, "copying": 9}
EARLY_SHARES = {"instructions": 30, "knowledge": 9, "arithmetic": 3, "sums": 3, "refusals": 2, "chat": 3, "copying": 50}


def conversations(world: World, seed: int | str, shares: dict[str, int] = SHARES) -> Iterator[Turns]:
    rng = Random(f"conversations/{seed}")
    while True:
        turns = [_turn("system", rng.choice(TABLE["systems"]))] if rng.random() < 0.1 else []
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
        return rng.choice(TABLE["copying_a_request"]).replace("{w}", request), request
    words = " ".join(_word(rng) for _ in range(rng.randint(1, 9)))
    request, answer = rng.choice(list(TABLE["copying"].items()))
    return request.replace("{w}", words), answer.replace("{w}", words).replace("{W}", words.upper())


def _word(rng: Random) -> str:
    kind = rng.random()
    return invented_noun(rng, "train") if kind < 0.5 else noun(rng, "train") if kind < 0.8 else rng.choice(ADJECTIVES)


def _chat(rng: Random) -> tuple[str, str]:
    if rng.random() < 0.4:
        return rng.choice(list(TABLE["small_talk"].items()))
    draft = Draft.new(rng, "train")
    draft.count = rng.randint(2, 4)
    request = rng.choice((*SENTENCES["requests"], "Tell me about {t}.", "What do you think of {t}?"))
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
