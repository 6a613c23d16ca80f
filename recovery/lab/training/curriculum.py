"""The base's tokenizer and its training data: batches of token ids, in blocks that depend on the seed and their number.

The tokenizer is byte-level BPE trained on the lab's text; encoding and decoding preserve any text."""

from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from recovery.lab.chat.conversations import EARLY_SHARES, SHARES, Turns, conversations, own_documents
from recovery.lab.worlds.world import World

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Words with their leading space, single line breaks, single digits (arithmetic is learnt digit by digit).
PIECES = r" ?\p{L}+| ?\p{N}|\n| ?[^\s\p{L}\p{N}]+|\s+"
BATCH_TOKENS = 4096
BLOCK = 4000  # examples
DOCUMENT_SHARE = 0.13  # of the examples; the rest are conversations
EARLY_BLOCKS = 8  # first blocks, which train copying most
WINDOWS = (256, 512)  # an example goes into the shortest window that it fits
MAX_OPEN_WINDOWS = 48  # being filled at a time

Batch = tuple[torch.Tensor, torch.Tensor]


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> Any:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[END, START, STOP],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=STOP,
        pad_token=END,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def texts(world: World, seed: int, block: int, n: int | None = None) -> list[str]:
    documents = own_documents(world, f"{seed}/{block}")
    chats = conversations(world, f"{seed}/{block}", EARLY_SHARES if block < EARLY_BLOCKS else SHARES)
    rng = Random(f"mixture/{seed}/{block}")
    return [next(documents) + END if rng.random() < DOCUMENT_SHARE else render(next(chats)) for _ in range(n or BLOCK)]


def render(turns: Turns) -> str:
    """Render a chat as the chat template does; in plain Python, since it runs a quarter of a million times."""
    return "".join(f"{START}{turn['role']}\n{turn['content']}{STOP}\n" for turn in turns)


def batches(tokenizer: PreTrainedTokenizerFast, world: World, seed: int, skip: int = 0) -> Iterator[Batch]:
    block = 0
    while True:
        for batch in pack_batches(tokenizer, texts(world, seed, block), seed, block):
            if skip:
                skip -= 1
            else:
                yield batch
        block += 1


def pack_batches(tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, block: int) -> list[Batch]:
    examples = tokenizer(texts, add_special_tokens=False)["input_ids"]
    batches = []
    for i, width in enumerate(WINDOWS):
        floor = WINDOWS[i - 1] if i else 0
        fitting = [e for e in examples if floor < len(e) and (len(e) <= width or width == WINDOWS[-1])]
        windows = iter(_pack([example[:width] for example in fitting], width))
        rows = BATCH_TOKENS // width
        while len(group := list(islice(windows, rows))) == rows:
            batches.append(_tensors(group, width, tokenizer.pad_token_id))
    Random(f"batches/{seed}/{block}").shuffle(batches)
    return batches


def _pack(examples: list[list[int]], width: int) -> Iterator[list[int]]:
    """Put each example into the first open window it fits; if there is none, close the fullest window."""
    open_windows: list[list[int]] = []
    for example in examples:
        for window in open_windows:
            if len(window) + len(example) <= width:
                window += example
                break
        else:
            if len(open_windows) >= MAX_OPEN_WINDOWS:
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
