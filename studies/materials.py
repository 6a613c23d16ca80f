"""What the arms of a study read and are measured by: documents, questions, and prompts by the length of an answer."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pipelines.storage import write_atomic
from recovery.errors import RecoverError
from recovery.lab import Task, instruction_tasks, make_world
from recovery.models.chat_template import Chat
from studies.declaration import INSTRUCTIONS, Study, length_groups

FIRST_WORLD = 10_000  # no other command uses worlds from here on
PROMPTS_SEED = 7  # of the prompts by length: other items than those of the suite
MAX_TASKS = 200_000  # that are looked through for long answers
TRAINING_PROMPTS = 2560


def documents(study: Study, seed: int, cycle: int, folder: Path) -> tuple[Path, Path | None]:
    """The documents of a cycle and the questions about them; worlds are written into the folder."""
    if data := study.declared.data:
        docs, questions = (_locate(study, name) for name in (data.docs, data.questions))
        assert docs is not None
        return docs, questions
    world = folder / f"world-{cycle}"
    if not (world / "questions.jsonl").is_file():  # written last
        make_world(FIRST_WORLD + 100 * seed + cycle, study.size.world).write(world)
    return world / "docs", world / "questions.jsonl"


def arm_file(study: Study, name: str | None, seed: int, folder: Path) -> Path | None:
    """A file of an arm: one of the user's, or the lab's instructions for training, other ones for each seed."""
    if name != INSTRUCTIONS:
        return _locate(study, name)
    file = folder / "instructions.jsonl"
    if not file.is_file():
        write_atomic(file, (json.dumps(_training_row(task)) + "\n" for task in _training_tasks(seed)))
    return file


def _training_tasks(seed: int) -> list[Task]:
    return instruction_tasks(FIRST_WORLD + seed, TRAINING_PROMPTS, "train")


def _training_row(task: Task) -> dict[str, object]:
    """With what every recipe looks for: a reply, its checks, and the same reply for a teacher to read."""
    checks = [{"instruction": id, "kwargs": kw} for id, kw in zip(task.instruction_id_list, task.kwargs, strict=True)]
    shown = {"demonstration": task.answer, "solution": task.answer}
    return {"prompt": task.prompt, "answer": task.answer, "checks": checks, **shown}


def prompts_by_length(study: Study, chat: Chat, folder: Path) -> Path | None:
    """Held-out instructions, as many of each group of lengths; the group is the first part of an item's key."""
    groups = length_groups(study.declared.answer_tokens)
    if not groups:
        return None
    file = folder / "prompts-by-length.jsonl"
    if not file.is_file():
        write_atomic(file, (json.dumps(row) + "\n" for row in _rows(study, chat, groups)))
    return file


def _rows(study: Study, chat: Chat, groups: list[str]) -> Iterator[dict[str, object]]:
    left = dict.fromkeys(groups, study.size.items // len(groups))
    for task in instruction_tasks(PROMPTS_SEED, MAX_TASKS, "heldout"):
        tokens = len(chat.tokenizer(task.answer, add_special_tokens=False)["input_ids"])
        group = groups[sum(tokens > bound for bound in study.declared.answer_tokens)]
        if left[group]:
            left[group] -= 1
            yield {**asdict(task), "key": f"{group}/{task.key}"}
        if not any(left.values()):
            return
    raise RecoverError(
        f"There are too few prompts with long answers for {study.size.items} items. Lower items, or answer_tokens."
    )


def _locate(study: Study, name: str | None) -> Path | None:
    if name is None:
        return None
    path = (study.folder or Path.cwd()) / Path(name).expanduser()
    if not path.exists():
        raise RecoverError(f"There is no {path}, which the study {study.name} names. Paths are relative to its file.")
    return path
