"""Instruction following: IFEval as lm-eval judges it, on the public prompts or on any in their format.

lm-eval's own `process_results` gives the verdicts. Its `simple_evaluate` around it would only add seconds of set-up and
a copy of the data; a test holds the two equal. Three things differ on purpose: the language detector and the checkers'
own dice are seeded for each verdict (two public prompts name no valid letter, so their checker invents one), and an
answer that makes a checker fail is a failed answer, not a failed evaluation.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evals.cost_meter import metered
from evals.downloads import ifeval_checkers
from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, key_of
from evals.subject import Answer, Subject
from recovery.errors import RecoverError

PUBLIC_NEW_TOKENS = 1280  # lm-eval's own limit on a reply


@dataclass(frozen=True)
class Prompt:
    key: str
    text: str
    instructions: list[str]
    kwargs: list[dict[str, Any]]


def read_prompts(path: str | Path) -> list[Prompt]:
    prompts = [prompt_of(row) for row in read_rows(path)]
    if len({prompt.key for prompt in prompts}) < len(prompts):
        raise RecoverError(f'{path}: two lines have the same "key"; give every prompt its own')
    return prompts


def measure_ifeval(
    subject: Subject, prompts: Sequence[Prompt], *, data: str, max_new_tokens: int = PUBLIC_NEW_TOKENS
) -> Result:
    subject, spent = metered(subject)
    _, splitter = ifeval_checkers()
    answers = subject.answer([prompt.text for prompt in prompts], max_new_tokens)
    items = [judge(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    settings = {
        "max_new_tokens": max_new_tokens,
        "thinking": subject.thinking,
        "sentence_splitter": splitter,
        "lm_eval": version("lm_eval"),
    }
    return Result("ifeval", "behaviour", data, _metrics(items), items, settings, *spent())


def judge(prompt: Prompt, answer: Answer) -> Item:
    """Instruction by instruction, so that an answer that one checker cannot bear still gets the others' verdicts."""
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
        said = checkers.process_results(doc, [text])
        return bool(said["prompt_level_strict_acc"]), bool(said["prompt_level_loose_acc"])
    except Exception:  # a parser out of depth, a pattern out of patience: no way to say the instruction was followed
        return False, False
    finally:
        random.setstate(state)


def _metrics(items: list[Item]) -> dict[str, Metric]:
    strict = [item.verdicts["strict"] for item in items]
    loose = [item.verdicts["loose"] for item in items]
    metrics = {
        "prompt_level_strict_acc": Metric.of_passes([all(s) for s in strict]),
        "inst_level_strict_acc": Metric.of_groups(strict),
        "prompt_level_loose_acc": Metric.of_passes([all(s) for s in loose]),
        "inst_level_loose_acc": Metric.of_groups(loose),
        "finished": Metric.of_passes([item.verdicts["finished"] for item in items]),
    }
    return metrics | {f"strict/{kind}": Metric.of_groups(groups) for kind, groups in sorted(_by_kind(items).items())}


def _by_kind(items: list[Item]) -> dict[str, list[list[bool]]]:
    """Strict verdicts by what is before the colon (`length_constraints`), grouped by prompt."""
    kinds: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for instruction, followed in zip(item.verdicts["instructions"], item.verdicts["strict"], strict=True):
            kinds[instruction.partition(":")[0]][item.key].append(followed)
    return {kind: list(groups.values()) for kind, groups in kinds.items()}


def prompt_of(row: Row) -> Prompt:
    """One prompt in the public format. What the checkers cannot be set up with is the data's fault, and found here."""
    where, values = row
    ids, kwargs = values.get("instruction_id_list"), values.get("kwargs")
    if not isinstance(ids, list) or not ids or not isinstance(kwargs, list) or len(kwargs) != len(ids):
        raise RecoverError(
            f'{where}: "instruction_id_list" and "kwargs" must be lists of the same length, one at least'
        )
    known = ifeval_checkers()[0].instructions_registry.INSTRUCTION_DICT
    for name, arguments in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in known:
            raise RecoverError(f"{where}: there is no instruction {name!r}; IFEval knows {', '.join(sorted(known))}")
        try:
            known[name](name).build_description(**{k: v for k, v in arguments.items() if v})
        except Exception as error:
            raise RecoverError(f"{where}: {name!r} does not take {arguments!r} ({error})") from error
    text = text_field(row, "prompt")
    return Prompt(str(values.get("key", key_of(text))), text, ids, kwargs)
