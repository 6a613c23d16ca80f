"""What the base is trained on, as batches of token ids: block after block, each made from its number alone."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import torch
from transformers import PreTrainedTokenizerFast

from recovery.lab.chat.conversations import EARLY, SHARES, Turns, conversations, own_documents
from recovery.lab.training.tokenizer import END, START, STOP
from recovery.lab.worlds.world import World

BATCH_TOKENS = 4096
BLOCK = 4000  # examples
DOCUMENTS = 0.13  # of the examples; the rest are conversations
BEGINNING = 8  # blocks in which copying is practised most
WINDOWS = (256, 512)  # an example goes to the shortest that holds it
OPEN = 48  # windows being filled at a time

Batch = tuple[torch.Tensor, torch.Tensor]


def texts(world: World, seed: int, block: int, n: int | None = None) -> list[str]:
    papers = own_documents(world, f"{seed}/{block}")
    talks = conversations(world, f"{seed}/{block}", EARLY if block < BEGINNING else SHARES)
    rng = Random(f"mixture/{seed}/{block}")
    return [next(papers) + END if rng.random() < DOCUMENTS else render(next(talks)) for _ in range(n or BLOCK)]


def render(turns: Turns) -> str:
    """What the chat template makes of it; in plain Python, for it is done a quarter of a million times."""
    return "".join(f"{START}{turn['role']}\n{turn['content']}{STOP}\n" for turn in turns)


def batches(tokenizer: PreTrainedTokenizerFast, world: World, seed: int, skip: int = 0) -> Iterator[Batch]:
    block = 0
    while True:
        for batch in in_batches(tokenizer, texts(world, seed, block), seed, block):
            if skip:
                skip -= 1
            else:
                yield batch
        block += 1


def in_batches(tokenizer: PreTrainedTokenizerFast, said: list[str], seed: int, block: int) -> list[Batch]:
    examples = tokenizer(said, add_special_tokens=False)["input_ids"]
    found = []
    for i, width in enumerate(WINDOWS):
        floor = WINDOWS[i - 1] if i else 0
        mine = [
            example for example in examples if floor < len(example) and (len(example) <= width or width == WINDOWS[-1])
        ]
        windows = iter(_pack([example[:width] for example in mine], width))
        rows = BATCH_TOKENS // width
        while len(group := list(islice(windows, rows))) == rows:
            found.append(_tensors(group, width, tokenizer.pad_token_id))
    Random(f"batches/{seed}/{block}").shuffle(found)
    return found


def _pack(examples: list[list[int]], width: int) -> Iterator[list[int]]:
    """First fit into a few open windows; the fullest goes when nothing fits."""
    open_windows: list[list[int]] = []
    for example in examples:
        for window in open_windows:
            if len(window) + len(example) <= width:
                window += example
                break
        else:
            if len(open_windows) >= OPEN:
                open_windows.sort(key=len)
                yield open_windows.pop()
            open_windows.append(list(example))
    yield from sorted(open_windows, key=len, reverse=True)


def _tensors(windows: list[list[int]], width: int, pad: int) -> Batch:
    inputs = torch.full((len(windows), width), pad)
    labels = torch.full((len(windows), width), -100)
    for row, window in enumerate(windows):
        inputs[row, : len(window)] = labels[row, : len(window)] = torch.tensor(window)
    return inputs, labels
