import re
from random import Random

import pytest

from recovery.lab import instruction_tasks, instructions
from recovery.lab.answer_drafts import KINDS, Draft, OutOfSentencesError
from recovery.lab.instructions import combination_split, compatible
from recovery.lab.words import ADJECTIVES, POOLS, split_of


@pytest.fixture(scope="module")
def ifeval():
    """lm-eval's checkers; they would download punkt's tables."""
    nltk = pytest.importorskip("nltk")
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        pytest.skip("nltk's punkt_tab tables are missing; set NLTK_DATA")
    from langdetect import DetectorFactory
    from lm_eval.tasks.ifeval import instructions_registry, utils

    DetectorFactory.seed = 0
    return instructions_registry, utils


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_answer_passes_the_checkers_it_claims(ifeval, split: str) -> None:
    _, utils = ifeval
    tasks = instruction_tasks(11, 500, split)
    assert {kind for task in tasks for kind in task.instruction_id_list} == set(KINDS)
    for task in tasks:
        example = utils.InputExample(task.key, task.instruction_id_list, task.prompt, task.kwargs)
        result = utils.test_instruction_following_strict(example, task.answer)
        assert result.follow_all_instructions, (task, result.follow_instruction_list)


def test_kinds_and_conflicts_are_those_of_ifeval(ifeval) -> None:
    registry, _ = ifeval
    assert set(KINDS) == set(registry.INSTRUCTION_DICT)
    conflicts = registry.conflict_make({kind: set(others) for kind, others in registry.INSTRUCTION_CONFLICTS.items()})
    for first in KINDS:
        for second in KINDS:
            if compatible(first, second):
                assert second not in conflicts[first], (first, second)
            assert compatible(first, second) == compatible(second, first)


def test_tasks_are_reproducible_by_seed() -> None:
    assert instruction_tasks(1, 50) == instruction_tasks(1, 50)
    assert instruction_tasks(1, 50) != instruction_tasks(2, 50)


def test_one_to_three_instructions_phrased_in_several_ways() -> None:
    tasks = instruction_tasks(0, 400, "train")
    assert {len(task.instruction_id_list) for task in tasks} == {1, 2, 3}
    assert all(len(task.instruction_id_list) == len(task.kwargs) for task in tasks)
    assert len({task.prompt for task in tasks}) == len(tasks)


def test_held_out_topics_and_combinations_are_never_trained_on() -> None:
    train, heldout = instruction_tasks(0, 3000, "train"), instruction_tasks(0, 1000, "heldout")
    assert not {task.prompt for task in train} & {task.prompt for task in heldout}
    for tasks, split in ((train, "train"), (heldout, "heldout")):
        sets = [task.instruction_id_list for task in tasks if len(task.instruction_id_list) > 1]
        assert all(combination_split(kinds) == split for kinds in sets)
    text = " ".join(task.prompt + " " + task.answer for task in train).lower()
    topics = set(re.findall(rf"the (?:{'|'.join(ADJECTIVES)}) (\w+)", text))
    assert len(topics) > 300
    assert not topics & set(POOLS["heldout"])
    assert all(split_of(noun) == "heldout" for noun in POOLS["heldout"])


def test_a_failed_draft_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    write, attempts = Draft.write, list[Draft]()

    def fails_first(draft: Draft) -> str:
        attempts.append(draft)
        if len(attempts) == 1:
            raise OutOfSentencesError
        return write(draft)

    monkeypatch.setattr(Draft, "write", fails_first)
    task = instructions.instruction_task(Random(0), "train")
    assert len(attempts) == 2
    assert attempts[1].topic in task.prompt


def test_a_draft_of_more_sentences_than_there_are_fails() -> None:
    draft = Draft.new(Random(0), "train")
    draft.count = 10_000
    with pytest.raises(OutOfSentencesError):
        draft.write()
