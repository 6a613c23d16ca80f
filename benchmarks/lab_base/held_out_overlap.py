"""Contamination check of the base's training text: `python -m benchmarks.lab_base.held_out_overlap`.

It generates the training text again, block by block, and searches it for held-out items and names word for word, and
its requests for held-out topics. The exit code is 1 if there is a match.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from transformers import AutoTokenizer

from benchmarks.lab_base.build import SIZES
from benchmarks.lab_base.curriculum import BATCH_TOKENS, START, STOP, pack_batches, texts
from benchmarks.scripts import script_parser
from recovery.lab import BASE, arithmetic, instruction_tasks, make_world, own_world, refusals
from recovery.lab.words import ADJECTIVES, POOLS

KEY_WORDS = 5  # first words by which an item is looked up before it is compared in full
WORLDS = 20  # new worlds, whose names must not occur in the own world's documents
MAX_EXAMPLES = 5
REQUEST = re.compile(re.escape(f"{START}user\n") + "(.*?)" + re.escape(STOP), re.DOTALL)


class ItemSearch:
    """Searches text for items by their words, ignoring case and punctuation."""

    def __init__(self, items: dict[str, Iterable[str]]):
        self.counts: Counter[str] = Counter()
        self.matches: dict[str, dict[str, str]] = {kind: {} for kind in items}
        self._by_key: dict[tuple[str, ...], list[tuple[list[str], str, str]]] = {}
        for kind, texts_of_kind in items.items():
            for item in set(texts_of_kind):
                words = _words(item)
                self.counts[kind] += 1
                self._by_key.setdefault(tuple(words[:KEY_WORDS]), []).append((words, kind, item))
        self._lengths = sorted({len(key) for key in self._by_key})

    def search(self, text: str) -> None:
        words = _words(text)
        for start in range(len(words)):
            for length in self._lengths:
                for item_words, kind, item in self._by_key.get(tuple(words[start : start + length]), ()):
                    if words[start : start + len(item_words)] == item_words:
                        self.matches[kind].setdefault(item, text)

    def print_report(self) -> None:
        for kind, matches in self.matches.items():
            print(f"  {len(matches):>6,} of {self.counts[kind]:>6,} {kind} found")
            for item, text in list(matches.items())[:MAX_EXAMPLES]:
                print(f"         {item!r} in {text!r}")


def held_out(seeds: int, items: int) -> dict[str, Iterable[str]]:
    """Return held-out items by kind. Evaluations use seed 0; further seeds cover other uses."""
    worlds = [make_world(1000 + seed, "quick") for seed in range(WORLDS)]
    return {
        "instruction prompts": [t.prompt for seed in range(seeds) for t in instruction_tasks(seed, items, "heldout")],
        "word problems": [q.question for seed in range(seeds) for q in arithmetic(seed, items, "heldout")],
        "requests for secrets": [q.question for seed in range(seeds) for q in refusals(seed, items, "heldout")],
        "questions on new worlds": [question.question for world in worlds for question in world.questions()],
        "names in new worlds": [entity.name for world in worlds for entity in world.entities],
    }


def training(tokens: int) -> Iterator[list[str]]:
    """Yield the blocks of text that the shipped base was trained on, up to this number of tokens."""
    tokenizer, world, missing = AutoTokenizer.from_pretrained(BASE), own_world(), tokens // BATCH_TOKENS
    for block in count():
        if missing <= 0:
            return
        block_texts = texts(world, 0, block)
        missing -= len(pack_batches(tokenizer, block_texts, 0, block))
        yield block_texts


def main(arguments: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--tokens", type=int, default=SIZES["small"].tokens, help="of training text (default: all)")
    parser.add_argument("--seeds", type=int, default=10, help="of held-out items")
    parser.add_argument("--items", type=int, default=1000, help="of each kind and seed")
    args = parser.parse_args(arguments)
    items, read = ItemSearch(held_out(args.seeds, args.items)), 0
    # Topics are searched in requests only: the own world's documents may contain the same nouns.
    topics = ItemSearch({"topics, in requests": (f"the {a} {noun}" for a in ADJECTIVES for noun in POOLS["heldout"])})
    for block_texts in training(args.tokens):
        for text in block_texts:
            items.search(text)
            topics.search("\n".join(REQUEST.findall(text)))
        read += len(block_texts)
    print(f"Searched {read:,} training texts:")
    for search in (items, topics):
        search.print_report()
    return int(any([*items.matches.values(), *topics.matches.values()]))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    sys.exit(main())
