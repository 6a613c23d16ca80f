"""Arithmetic word problems with one worked line and the answer: a skill whose retention can be verified."""

from random import Random

from recovery.lab.chat.topics import Split, split_of
from recovery.lab.text_tables import words
from recovery.lab.worlds import names
from recovery.lab.worlds.entities import Question

ONE_STEP = (
    ("+", "{p} has {a} {x}s and gets {b} more. How many {x}s does {p} have now?"),
    ("+", "There are {a} {x}s on the table and {b} on the floor. How many {x}s are there?"),
    ("+", "{p} sold {a} {x}s on Monday and {b} on Tuesday. How many were sold?"),
    ("-", "{p} had {a} {x}s and lost {b} of them. How many {x}s are left?"),
    ("-", "A shop has {a} {x}s. It sells {b}. How many {x}s remain?"),
    ("-", "{p} needs {a} {x}s and already has {b}. How many are missing?"),
    ("*", "{p} buys {a} boxes with {b} {x}s each. How many {x}s is that?"),
    ("*", "Every one of {a} rooms has {b} {x}s. How many {x}s are there?"),
    ("*", "A {x} costs {b} crowns. How much do {a} of them cost?"),
)
TWO_STEPS = (
    ("+-", "{p} has {a} {x}s and gets {b} more and gives away {c}. How many {x}s does {p} have then?"),
    ("-+", "A shelf holds {a} {x}s. {p} takes {b} and puts back {c}. How many {x}s does it hold?"),
    ("*+", "{p} packs {a} bags with {b} {x}s each and finds {c} more. How many {x}s is that?"),
)
THINGS = words("""
    apple bag ball basket bean bell book bottle bowl brick button cake candle card chair coin cookie cup egg flower
    hat key lamp lemon letter map melon nail needle nut orange pear pen pencil pie plate plum pot ring rope rose
    sack shell shirt shoe spoon stamp stone ticket tulip wheel
""")
STEPS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def arithmetic(seed: int, n: int, split: Split = "heldout") -> list[Question]:
    rng = Random(f"arithmetic/{split}/{seed}")
    return [
        Question(question, worked.rsplit(" ", 1)[1]) for question, worked in (problem(rng, split) for _ in range(n))
    ]


def problem(rng: Random, split: Split) -> tuple[str, str]:
    """Return a question and its worked answer. The split is by the combination of wording and numbers."""
    while True:
        signs, wording = rng.choice(ONE_STEP if rng.random() < 0.7 else TWO_STEPS)
        a, b, c = _numbers(rng, signs)
        if split_of(f"{wording}/{a}/{b}/{c}") == split:
            break
    total = STEPS[signs[0]](a, b)
    worked = f"{a} {signs[0]} {b} = {total}"
    if signs[1:]:
        after = STEPS[signs[1]](total, c)
        worked, total = f"{worked} and {total} {signs[1]} {c} = {after}", after
    name = names.first_name(rng.randrange(10**9))
    return wording.format(a=a, b=b, c=c, p=name, x=rng.choice(THINGS)), f"{worked}\nAnswer: {total}"


def sums(rng: Random) -> tuple[str, str]:
    """Return several bare calculations: reading a problem is learnt quickly, calculating needs much practice."""
    calculations = []
    for _ in range(rng.randint(4, 8)):
        sign = rng.choice("++--*")
        a, b, _ = _numbers(rng, sign)
        if sign != "*" and rng.random() < 0.4:  # like the second step of a problem
            a, b = rng.randint(10, 81), rng.randint(1, 9)
        calculations.append((f"{a} {sign} {b}", STEPS[sign](a, b)))
    wording = rng.choice(("Work these out:", "Please do these sums:", "How much is this?", "Calculate:"))
    return "\n".join([wording, *(task for task, _ in calculations)]), "\n".join(
        f"{task} = {total}" for task, total in calculations
    )


def _numbers(rng: Random, signs: str) -> tuple[int, int, int]:
    if signs[0] == "*":
        return rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9) if signs[1:] else 0
    a, b = rng.randint(2, 24), rng.randint(2, 12)
    if signs[0] == "-":
        a, b = max(a, b) + 1, min(a, b)
    return (
        a,
        b,
        rng.randint(1, 9) if signs[1:] and signs[1] == "+" else rng.randint(1, min(9, a + b - 1)) if signs[1:] else 0,
    )
