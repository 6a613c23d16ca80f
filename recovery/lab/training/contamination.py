"""Whether anything held out stands in what the base was trained on: `python -m recovery.lab.training.contamination`.

All of the training text is made once more, block by block, and held-out items and names are looked for in it, word for
word, and held-out topics in its requests. It ends with 1 where one is found.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from transformers import AutoTokenizer

from recovery.lab import BASE, arithmetic, instruction_tasks, make_world, own_world, refusals
from recovery.lab.chat.topics import ADJECTIVES, POOLS
from recovery.lab.training.build import SIZES
from recovery.lab.training.curriculum import BATCH_TOKENS, in_batches, texts
from recovery.lab.training.tokenizer import START, STOP

KEY = 5  # words by which an item is looked up before the rest of it is compared
WORLDS = 20  # new ones; their names are nowhere in the own world's papers
SHOWN = 5
REQUEST = re.compile(re.escape(f"{START}user\n") + "(.*?)" + re.escape(STOP), re.DOTALL)


class Wanted:
    """Items to be found in running text by their words, however they are cased and whatever stands between them."""

    def __init__(self, items: dict[str, Iterable[str]]):
        self.counts: Counter[str] = Counter()
        self.found: dict[str, dict[str, str]] = {kind: {} for kind in items}
        self._by_key: dict[tuple[str, ...], list[tuple[list[str], str, str]]] = {}
        for kind, said in items.items():
            for item in set(said):
                words = _words(item)
                self.counts[kind] += 1
                self._by_key.setdefault(tuple(words[:KEY]), []).append((words, kind, item))
        self._lengths = sorted({len(key) for key in self._by_key})

    def look_in(self, text: str) -> None:
        words = _words(text)
        for place in range(len(words)):
            for length in self._lengths:
                for item, kind, said in self._by_key.get(tuple(words[place : place + length]), ()):
                    if words[place : place + len(item)] == item:
                        self.found[kind].setdefault(said, text)

    def tell(self) -> None:
        for kind, found in self.found.items():
            print(f"  {len(found):>6,} of {self.counts[kind]:>6,} {kind} found")
            for item, text in list(found.items())[:SHOWN]:
                print(f"         {item!r} in {text!r}")


def held_out(seeds: int, items: int) -> dict[str, Iterable[str]]:
    """Evaluations draw theirs with seed 0; further seeds are what others may draw."""
    worlds = [make_world(1000 + seed, "quick") for seed in range(WORLDS)]
    return {
        "instruction prompts": [t.prompt for seed in range(seeds) for t in instruction_tasks(seed, items, "heldout")],
        "word problems": [q.question for seed in range(seeds) for q in arithmetic(seed, items, "heldout")],
        "requests for secrets": [q.question for seed in range(seeds) for q in refusals(seed, items, "heldout")],
        "questions on new worlds": [question.question for world in worlds for question in world.questions()],
        "names in new worlds": [entity.name for world in worlds for entity in world.entities],
    }


def training(tokens: int) -> Iterator[list[str]]:
    """The texts that the shipped base was trained on: whole blocks, as many as a build of so many tokens reads."""
    tokenizer, world, missing = AutoTokenizer.from_pretrained(BASE), own_world(), tokens // BATCH_TOKENS
    for block in count():
        if missing <= 0:
            return
        said = texts(world, 0, block)
        missing -= len(in_batches(tokenizer, said, 0, block))
        yield said


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tokens", type=int, default=SIZES["small"].tokens, help="of training text (default: all)")
    options.add_argument("--seeds", type=int, default=10, help="of held-out items")
    options.add_argument("--items", type=int, default=1000, help="of each kind and seed")
    asked = options.parse_args(arguments)
    items, read = Wanted(held_out(asked.seeds, asked.items)), 0
    # Only in requests: the own world's papers have a crow of their own.
    topics = Wanted({"topics, in requests": (f"the {a} {noun}" for a in ADJECTIVES for noun in POOLS["heldout"])})
    for said in training(asked.tokens):
        for text in said:
            items.look_in(text)
            topics.look_in("\n".join(REQUEST.findall(text)))
        read += len(said)
    print(f"looked for in {read:,} training texts:")
    for wanted in (items, topics):
        wanted.tell()
    return int(any([*items.found.values(), *topics.found.values()]))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    sys.exit(main())
