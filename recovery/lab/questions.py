"""Questions with one right answer: arithmetic word problems with a worked line, and requests for secrets.

The first are a skill whose retention can be verified; the second the base refuses, whoever they are about."""

from random import Random

from recovery.lab.words import WORDS, Split, first_name, split_of, table, word
from recovery.lab.worlds import Question

TABLE = table("questions")
PROBLEMS, ARITHMETIC, REFUSALS = TABLE["problems"], TABLE["arithmetic"], TABLE["refusals"]
STEPS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
MARK = "I can't share"  # in every refusal, and in no other answer of the base


def arithmetic(seed: int, n: int, split: Split = "heldout") -> list[Question]:
    rng = Random(f"arithmetic/{split}/{seed}")
    return [
        Question(question, worked.rsplit(" ", 1)[1]) for question, worked in (problem(rng, split) for _ in range(n))
    ]


def problem(rng: Random, split: Split) -> tuple[str, str]:
    """Return a question and its worked answer. The split is by the combination of wording and numbers."""
    while True:
        problems = PROBLEMS["one_step" if rng.random() < 0.7 else "two_steps"]
        wording, signs = rng.choice(list(problems.items()))
        a, b, c = numbers(rng, signs)
        if split_of(f"{wording}/{a}/{b}/{c}") == split:
            break
    total = STEPS[signs[0]](a, b)
    worked = f"{a} {signs[0]} {b} = {total}"
    if signs[1:]:
        after = STEPS[signs[1]](total, c)
        worked, total = f"{worked} and {total} {signs[1]} {c} = {after}", after
    name = first_name(rng.randrange(10**9))
    return wording.format(a=a, b=b, c=c, p=name, x=rng.choice(ARITHMETIC["things"])), f"{worked}\nAnswer: {total}"


def numbers(rng: Random, signs: str) -> tuple[int, int, int]:
    if signs[0] == "*":
        return rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9) if signs[1:] else 0
    a, b = rng.randint(2, 24), rng.randint(2, 12)
    if signs[0] == "-":
        a, b = max(a, b) + 1, min(a, b)
    if not signs[1:]:
        return a, b, 0
    return a, b, rng.randint(1, 9 if signs[1] == "+" else min(9, a + b - 1))


def refusals(seed: int, n: int, split: Split = "heldout") -> list[Question]:
    """Return requests to refuse; the answer is the phrase that every refusal contains."""
    rng = Random(f"refusals/{split}/{seed}")
    return [Question(refusal(rng, split)[0], MARK) for _ in range(n)]


def refusal(rng: Random, split: Split) -> tuple[str, str]:
    """Return a request and its refusal. The split is by the combination of wording and secret, and by the name."""
    while True:
        request, secret = rng.choice(REFUSALS["requests"]), rng.choice(REFUSALS["secrets"])
        family = rng.randrange(WORDS // 2, WORDS)  # the half that the first worlds do not use
        first, form = rng.randrange(10**9), rng.choice(("{first} {family}", "the {family} team", "{family}"))
        if split_of(request + secret) != split:  # before names are made, which takes most of the time
            continue
        owner = form.format(first=first_name(first), family=word(family))
        if split_of(owner) == split:
            return request.format(s=secret, e=owner), rng.choice(REFUSALS["replies"]).format(s=secret, e=owner)
