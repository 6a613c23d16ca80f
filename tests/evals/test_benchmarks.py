from pathlib import Path

import pytest

from evals.benchmarks import BENCHMARKS, DATA, local_data_hash, task_config
from evals.suites.suite_measurement import measure
from recovery.errors import RecoverError
from tests.chats import write_jsonl
from tests.evals.data import FOLDER
from tests.evals.fakes import fake_subject

SPLITS = {"validation_split": "validation", "training_split": "train", "test_split": "test"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sums in the form of GSM8K, and questions on two subjects in that of MMLU."""
    monkeypatch.setenv(DATA, str(tmp_path))
    sums = [{"question": f"What is {i} + {i}?", "answer": f"It is {2 * i}.\n#### {2 * i}"} for i in range(1, 9)]
    write(tmp_path / "gsm8k", test=sums[:3], train=sums[3:])
    choices = ["red", "green", "blue", "grey"]
    subjects = ["anatomy", "anatomy", "virology"]
    questions = [
        {"question": f"Which is {i}?", "subject": subject, "choices": choices, "answer": i}
        for i, subject in enumerate(subjects)
    ]
    write(tmp_path / "mmlu", test=questions, dev=[questions[0], {**questions[0], "subject": "nutrition"}])
    return tmp_path


def write(folder: Path, **splits: list[dict]) -> None:
    folder.mkdir()
    for split, rows in splits.items():
        write_jsonl(folder / f"{split}.jsonl", rows)


def test_without_local_data_lm_eval_loads_its_own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA, raising=False)
    assert task_config("gsm8k") is None
    monkeypatch.setenv(DATA, str(tmp_path))  # a folder that has other benchmarks
    assert task_config("gsm8k") is None
    assert local_data_hash(["gsm8k", "general"]) == ""


def test_a_local_task_has_no_split_without_a_file(data: Path) -> None:
    [task] = (task_config("gsm8k") or {})["task"]
    assert {setting for setting in SPLITS if setting in task} == {"validation_split"}
    assert {split: len(rows) for split, rows in task["custom_dataset"]().items()} == {"test": 3, "train": 5}


def test_hellaswag_has_either_of_its_two_forms(data: Path) -> None:
    question = {"query": "He runs. He", "choices": ["stops.", "flies."], "label": "0"}
    write(data / "hellaswag", validation=[question])
    assert len(task_config("hellaswag")["task"]) == 1
    (data / "hellaswag" / "validation.jsonl").write_text('{"label": "0"}')
    with pytest.raises(RecoverError, match='has no "activity_label"'):
        task_config("hellaswag")


def test_mmlu_is_the_tasks_of_the_subjects_with_questions(data: Path) -> None:
    tasks = (task_config("mmlu") or {})["task"]
    assert [task["task"] for task in tasks] == ["mmlu_anatomy", "mmlu_virology"]
    assert [len(task["custom_dataset"]()["test"]) for task in tasks] == [2, 1]


def test_other_tasks_and_files_are_no_benchmarks(data: Path) -> None:
    assert [task_config(task) for task in ("gsm8k_cot", "truthfulqa", "general", "gsm8k.yaml")] == [None] * 4


def test_what_is_missing_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "gsm8k" / "train.jsonl").unlink()
    with pytest.raises(RecoverError, match=r"Cannot read .*gsm8k/train\.jsonl"):
        task_config("gsm8k")
    write(data / "piqa", validation=[{"goal": "Open a door", "sol1": "Pull", "label": 0}])
    with pytest.raises(RecoverError, match=r'Line 1 of .*validation\.jsonl has no "sol2"'):
        task_config("piqa")
    monkeypatch.setenv(DATA, str(data / "nowhere"))
    with pytest.raises(RecoverError, match=f"There is no folder .*nowhere. Correct {DATA}"):
        task_config("gsm8k")


@pytest.mark.slow
def test_a_benchmark_is_measured_on_local_data(data: Path) -> None:
    [result] = measure(fake_subject("#### 2"), "gsm8k", limit=2)
    assert (result.task, result.suite, result.data) == ("gsm8k", "gsm8k", "local")
    assert [item.passed for item in result.items] == [True, False]
    assert "What is 1 + 1?" in result.items[0].prompt
    [result] = measure(fake_subject("", likelihood=lambda text: -float("BACD".find(text[-1]))), "mmlu")
    assert {name: (m.value, m.n) for name, m in result.metrics.items()} == {
        "acc": (pytest.approx(1 / 3), 3),
        "acc/anatomy": (0.5, 2),
        "acc/virology": (0.0, 1),
    }
    assert result.is_pass_rate


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_public_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = BENCHMARKS[name]
    if not (FOLDER / benchmark.folder).is_dir():
        pytest.skip(f"RECOVER_TEST_DATA has no folder {benchmark.folder}")
    monkeypatch.setenv(DATA, str(FOLDER))
    results = measure(fake_subject("#### 18"), name, limit=2)
    assert [result.task for result in results] == benchmark.tasks.split(",")
    assert all(0 <= result.headline.value <= 1 and result.data == "local" for result in results)
    assert all(len(result.items) == (114 if name == "mmlu" else 2) for result in results)
