"""Instruction following: IFEval with lm-eval's checkers, on the public prompts or any prompts in the same format.

The verdicts come from lm-eval's own `process_results`. Calling `simple_evaluate` around it would only add seconds of
set-up and a copy of the data; a test compares the two. The differences are deliberate: the language detector and the
checkers' random choices are seeded for each verdict (two public prompts name no valid letter, so their checker draws
one), and an answer that makes a checker fail is a failed answer, not a failed evaluation.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evals.downloads import ifeval_checkers
from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, item_key
from evals.splits import Blocks, ask_in_blocks
from evals.subject import Answer, Subject, with_cost_meter
from recovery.errors import RecoverError

PUBLIC_NEW_TOKENS = 1280  # lm-eval's own limit on a reply


@dataclass(frozen=True)
class Prompt:
    """A prompt with verifiable instructions: IFEval's instruction ids and their arguments."""

    key: str
    text: str
    instructions: list[str]
    kwargs: list[dict[str, Any]]


def read_prompts(path: str | Path) -> list[Prompt]:
    prompts = [parse_prompt(row) for row in read_rows(path)]
    if len({prompt.key for prompt in prompts}) < len(prompts):
        raise RecoverError(
            f'Two lines of {path} have the same key or the same prompt. Give every prompt its own "key".'
        )
    return prompts


def measure_ifeval(
    subject: Subject,
    prompts: Sequence[Prompt],
    *,
    data: str,
    max_new_tokens: int = PUBLIC_NEW_TOKENS,
    blocks: Blocks | None = None,
) -> Result:
    subject, cost = with_cost_meter(subject)
    _, splitter = ifeval_checkers()

    def ask(prompts: Sequence[Prompt]) -> list[Item]:
        answers = subject.answer([prompt.text for prompt in prompts], max_new_tokens)
        return [judge(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]

    items, block_settings = ask_in_blocks(prompts, lambda prompt: prompt.key, ask, blocks)
    settings = block_settings | {
        "max_new_tokens": max_new_tokens,
        "sentence_splitter": splitter,
        "lm_eval": version("lm_eval"),
    }
    return Result("ifeval", "behaviour", data, _metrics(items), items, settings, *cost())


def judge(prompt: Prompt, answer: Answer) -> Item:
    """Check each instruction separately, so that a checker that fails on the answer does not affect the others."""
    verdicts = [_verdict(prompt, i, answer.text) for i in range(len(prompt.instructions))]
    strict, loose = [s for s, _ in verdicts], [lo for _, lo in verdicts]
    details = {"instructions": prompt.instructions, "strict": strict, "loose": loose, "finished": answer.finished}
    return Item(prompt.key, prompt.text, answer.text, all(strict), details)


def _verdict(prompt: Prompt, i: int, text: str) -> tuple[bool, bool]:
    checkers, _ = ifeval_checkers()
    doc = {
        "key": prompt.key,
        "prompt": prompt.text,
        "instruction_id_list": [prompt.instructions[i]],
        "kwargs": [prompt.kwargs[i]],
    }
    state = random.getstate()
    random.seed(0)
    try:
        scores = checkers.process_results(doc, [text])
        return bool(scores["prompt_level_strict_acc"]), bool(scores["prompt_level_loose_acc"])
    except (
        Exception
    ):  # such as a recursion limit or a regex timeout in a checker: the instruction counts as not followed
        return False, False
    finally:
        random.setstate(state)


def _metrics(items: list[Item]) -> dict[str, Metric]:
    strict = [item.verdicts["strict"] for item in items]
    loose = [item.verdicts["loose"] for item in items]
    metrics = {
        "prompt_level_strict_acc": Metric.from_passes([all(s) for s in strict]),
        "inst_level_strict_acc": Metric.from_groups(strict),
        "prompt_level_loose_acc": Metric.from_passes([all(s) for s in loose]),
        "inst_level_loose_acc": Metric.from_groups(loose),
        "finished": Metric.from_passes([item.verdicts["finished"] for item in items]),
    }
    return metrics | metrics_by_kind("strict", map(_kinds, items))


def _kinds(item: Item) -> list[tuple[str, bool]]:
    """Its strict verdicts, with the kind of each instruction: the text before the colon (`length_constraints`)."""
    kinds = [name.partition(":")[0] for name in item.verdicts["instructions"]]
    return list(zip(kinds, item.verdicts["strict"], strict=True))


def metrics_by_kind(name: str, verdicts: Iterable[Sequence[tuple[str, bool]]]) -> dict[str, Metric]:
    """A pass rate for each kind of check, from the kinds and verdicts of each item."""
    by_kind: dict[str, list[list[bool]]] = defaultdict(list)
    for of_item in verdicts:
        for kind in dict.fromkeys(kind for kind, _ in of_item):
            by_kind[kind].append([passed for other, passed in of_item if other == kind])
    return {f"{name}/{kind}": Metric.from_groups(groups) for kind, groups in sorted(by_kind.items())}


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_KINDS: dict[str, Callable[[Any], bool]] = {  # of arguments whose checkers take anything
    "keywords": _are_texts,
    "forbidden_words": _are_texts,
    "capital_frequency": lambda value: isinstance(value, int | float),
    "letter": lambda value: isinstance(value, str) and len(value) == 1,
}


def parse_prompt(row: Row) -> Prompt:
    """Parse one prompt in the public format. Raise RecoverError if its checkers cannot be set up."""
    location, fields = row
    ids, kwargs = fields.get("instruction_id_list"), fields.get("kwargs")
    if not isinstance(ids, list) or not ids or not isinstance(kwargs, list) or len(kwargs) != len(ids):
        raise RecoverError(
            f'{location} has no matching "instruction_id_list" and "kwargs". Write two lists of the same length, with '
            "at least one entry."
        )
    checkers = ifeval_checkers()[0].instructions_registry.INSTRUCTION_DICT
    for name, arguments in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in checkers:
            raise RecoverError(
                f"{location} has an unknown instruction, {name!r}. Use one of {', '.join(sorted(checkers))}."
            )
        checker = checkers[name](name)
        try:
            given = {k: v for k, v in arguments.items() if v}
            checker.build_description(**given)
        except Exception as error:
            raise RecoverError(
                f"{location} has arguments that {name!r} does not take, {arguments!r} ({error}). Correct its kwargs."
            ) from error
        if wrong := [argument for argument, value in given.items() if not _KINDS.get(argument, bool)(value)]:
            raise RecoverError(  # the checker would judge by its letters, or by another letter
                f"{location} has {wrong[0]} {given[wrong[0]]!r} of {name!r}, which is of a wrong kind. Write a list of "
                "texts for keywords and forbidden_words, a number for capital_frequency, and one character for letter."
            )
        if missing := [argument for argument in checker.get_instruction_args_keys() if argument not in given]:
            raise RecoverError(  # the checker would draw them at random
                f"{location} does not say the {missing[0]!r} of {name!r} (0 and an empty text say nothing). Add it to "
                "its kwargs."
            )
    text = text_field(row, "prompt")
    key = item_key(text) if fields.get("key") is None else str(fields["key"])
    return Prompt(key, text, ids, kwargs)
