"""The base's tokenizer and its training data: conversations in fixed proportions and documents as batches of token ids,
in blocks that depend on the seed and their number.

The tokenizer is byte-level BPE trained on the lab's text; encoding and decoding preserve any text."""

from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from recovery.lab.answer_drafts import SENTENCES, Draft
from recovery.lab.instructions import instruction_task
from recovery.lab.questions import ARITHMETIC, STEPS, numbers, problem, refusal
from recovery.lab.words import ADJECTIVES, invented_noun, noun, table
from recovery.lab.worlds import World

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

Turns = list[dict[str, str]]
TABLE = table("conversations")
# Percentages of exchanges. Following instructions requires copying words from the request, and copying is learnt late:
# so it is trained separately, most of all in the first blocks.
SHARES = {"instructions": 58, "knowledge": 10, "arithmetic": 10, "sums": 6, "refusals": 3, "chat": 4, "copying": 9}
EARLY_SHARES = {"instructions": 30, "knowledge": 9, "arithmetic": 3, "sums": 3, "refusals": 2, "chat": 3, "copying": 50}
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


def sums(rng: Random) -> tuple[str, str]:
    """Several bare calculations: reading a problem is learnt quickly, calculating needs much practice."""
    calculations = []
    for _ in range(rng.randint(4, 8)):
        sign = rng.choice("++--*")
        a, b, _ = numbers(rng, sign)
        if sign != "*" and rng.random() < 0.4:  # like the second step of a problem
            a, b = rng.randint(10, 81), rng.randint(1, 9)
        calculations.append((f"{a} {sign} {b}", STEPS[sign](a, b)))
    tasks = [rng.choice(ARITHMETIC["sums"]), *(task for task, _ in calculations)]
    return "\n".join(tasks), "\n".join(f"{task} = {total}" for task, total in calculations)
