import json
import math
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from evals.cost_meter import with_cost_meter
from evals.harness import task_loading as lm_loading
from evals.harness.model import HarnessModel
from evals.harness.tasks import run_task
from evals.subject import Subject
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject
from tests.models import tiny_student


@pytest.fixture
def rows(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    asked = [("2+2?", "4", ["3", "4"]), ("3+3?", "6", ["6", "10"]), ("4+4?", "8", ["8", "9"])]
    file.write_text("\n".join(json.dumps({"question": q, "answer": a, "choices": c}) for q, a, c in asked))
    return str(file)


def task(rows: str, **config: object) -> dict:
    return {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": rows}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer",
        **config,
    }


def written(rows: str, **generation: object) -> dict:
    return task(
        rows,
        output_type="generate_until",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 12, **generation},
        metric_list=[{"metric": "exact_match"}],
        filter_list=[
            {"name": "all", "filter": [{"function": "take_first"}]},
            {"name": "last", "filter": [{"function": "regex", "regex_pattern": "(\\d)$"}, {"function": "take_first"}]},
        ],
    )


def test_a_generation_task_with_stops_and_filters(rows: str) -> None:
    replies = {"2+2?": "4\nQuestion: 5+5?", "3+3?": "it is 6", "4+4?": "this is a long story: 8"}
    [result] = run_task(fake_subject(replies), written(rows), suite="retention")
    assert (result.task, result.suite) == ("sums", "retention")
    assert [item.answer for item in result.items] == ["4", "it is 6", "this is a lo"]
    assert {name: metric.value for name, metric in result.metrics.items()} == {
        "exact_match,all": pytest.approx(1 / 3),
        "exact_match,last": pytest.approx(2 / 3),
    }
    assert result.items[0].prompt == "<user>2+2?<assistant>"
    assert [item.passed for item in result.items] == [True, False, False]
    json.dumps(result.to_json(items=True), allow_nan=False)


def test_a_choice_is_made_by_likelihood(rows: str) -> None:
    likes = {"4", "6", "9"}
    subject = fake_subject(
        "4", likelihood=lambda text: -0.1 if text.rpartition("<assistant>")[2].strip() in likes else -3.0
    )
    config = task(rows, output_type="multiple_choice", doc_to_choice="choices", metric_list=[{"metric": "acc"}]) | {
        "doc_to_target": "{{choices.index(answer)}}"
    }
    [result] = run_task(subject, config, suite="retention")
    assert result.metrics["acc"].value == pytest.approx(2 / 3)
    assert [item.answer.strip() for item in result.items] == ["4", "6", "9"]
    assert result.metrics["acc"].ci95[0] > 0


def test_limit_and_quiet(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    random.seed(5)
    torch.manual_seed(5)
    state, torch_state = random.getstate(), torch.get_rng_state()
    [result] = run_task(fake_subject("4"), written(rows), suite="retention", limit=1)
    assert result.metrics["exact_match,all"].n == 1
    assert capsys.readouterr().out == ""
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_likelihoods_are_sums_over_the_continuation() -> None:
    from lm_eval.api.instance import Instance

    model = HarnessModel(fake_subject("yes", likelihood=lambda text: -0.5 if text.endswith("s") else -1.0))

    def request(kind: str, *arguments: str) -> Instance:
        return Instance(kind, {}, arguments, 0)

    pairs = [("Is it so?", "yes"), ("Is it so?", "yeah"), ("Is it so?", "y"), ("", "yes")]
    requests = [request("loglikelihood", *pair) for pair in pairs]
    assert model.loglikelihood(requests, disable_tqdm=True) == [(-2.5, True), (-4.0, False), (-1.0, True), (-2.5, True)]
    [total] = model.loglikelihood_rolling([request("loglikelihood_rolling", "yes")])
    assert total == pytest.approx(-2.5)


def test_greedy_is_told_from_likely() -> None:
    model = HarnessModel(fake_subject("yes"))
    context = model.tok_encode("<user>Is it so?<assistant>")
    pairs = [(context, model.tok_encode(text)) for text in ("yes", "ye", "yet", "no")]
    assert model._greedy(pairs) == [True, True, False, False]


def test_long_texts_are_scored_a_window_at_a_time() -> None:
    from lm_eval.api.instance import Instance

    model = HarnessModel(fake_subject("x"))
    model.tokenizer.model_max_length = 8
    [total] = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("a" * 50,), 0)])
    assert math.isclose(total, -50.0)


@pytest.mark.parametrize(("tokenizers", "positions", "window"), [(10**30, 512, 512), (128, 512, 128), (1024, 512, 512)])
@pytest.mark.parametrize("under_a_meter", [False, True])
def test_a_window_is_no_longer_than_the_model_has_positions(
    tmp_path: Path, tokenizers: int, positions: int, window: int, under_a_meter: bool
) -> None:
    student = tiny_student(tmp_path)
    assert student.causal.config.max_position_embeddings == positions
    student.chat.tokenizer.model_max_length = tokenizers
    subject = Subject(TransformersEngine(student), student.chat)
    model = HarnessModel(with_cost_meter(subject)[0] if under_a_meter else subject)
    assert model._window() == window


def test_a_task_that_does_not_exist_is_named_with_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_loading, "_all_tasks", lambda: SimpleNamespace(all_tasks=["gsm8k", "mmlu"]))  # 5 s to index
    with pytest.raises(RecoverError, match="did you mean gsm8k"):
        run_task(fake_subject("4"), "gsm8", suite="retention")
    with pytest.raises(RecoverError, match="no lm-eval task 'xyz'"):
        run_task(fake_subject("4"), "xyz", suite="retention")


def test_a_task_from_the_users_own_file(rows: str, tmp_path: Path) -> None:
    file = tmp_path / "sums.yaml"
    file.write_text(json.dumps(written(rows)))  # JSON is YAML
    [result] = run_task(fake_subject("4"), str(file), suite="behaviour")
    assert result.metrics["exact_match,all"].value == pytest.approx(1 / 3)


def test_a_part_of_a_tasks_documents_and_the_rest(rows: str, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(json.dumps({"question": f"{i}+0?", "answer": str(i)}) for i in range(40)))
    parts = {}
    for part in ("probe", "final", "all"):
        [result] = run_task(fake_subject("7"), written(str(file)), suite="retention", part=part)
        parts[part] = {item.key: item.prompt for item in result.items}
    assert 0 < len(parts["probe"]) < len(parts["final"])
    assert parts["probe"].keys().isdisjoint(parts["final"])
    assert parts["probe"] | parts["final"] == parts["all"]
    [few] = run_task(fake_subject("7"), written(str(file)), suite="retention", part="probe", limit=2)
    assert [item.key for item in few.items] == list(parts["probe"])[:2]
    assert {item.key for item in few.items if item.passed} == {k for k, p in parts["probe"].items() if ">7+0" in p}


def test_data_that_is_not_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="local files"):
        run_task(fake_subject("4"), task(str(tmp_path / "nowhere.jsonl")), suite="retention")
    (tmp_path / "broken.yaml").write_text("task: [")
    with pytest.raises(RecoverError, match=r"broken\.yaml"):
        run_task(fake_subject("4"), str(tmp_path / "broken.yaml"), suite="retention")


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    began = time.perf_counter()
    with pytest.raises(RecoverError, match="not to be had"):
        run_task(
            fake_subject("4"), task("") | {"dataset_path": "nobody/nothing", "dataset_kwargs": {}}, suite="retention"
        )
    assert time.perf_counter() - began < 15  # left to itself the hub's client tries for half a minute
