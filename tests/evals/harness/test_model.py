import json
import random
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance

from evals import harness
from evals.harness import HarnessModel, run_task
from evals.results import headlines
from evals.subject import Subject, with_cost_meter
from recovery.engines import Sampling
from recovery.engines.http import HttpEngine
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.students import load_student
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject
from tests.models import save_tiny, tiny_student
from tests.recovery.engines.small_server import SmallServer, serving


@pytest.fixture
def rows(tmp_path: Path) -> str:
    questions = [("2+2?", "4", ["3", "4"]), ("3+3?", "6", ["6", "10"]), ("4+4?", "8", ["8", "9"])]
    written = [{"question": q, "answer": a, "choices": c} for q, a, c in questions]
    return str(write_jsonl(tmp_path / "rows.jsonl", written))


def task(rows: str, **config: object) -> str:
    """A task file on these rows."""
    whole = {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": rows}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answer",
        **config,
    }
    file = Path(rows).with_suffix(".yaml")
    file.write_text(json.dumps(whole))  # JSON is YAML
    return str(file)


def generation_task(rows: str) -> str:
    return task(
        rows,
        output_type="generate_until",
        generation_kwargs={"until": ["\n"], "max_gen_toks": 12},
        metric_list=[{"metric": "exact_match"}],
        filter_list=[
            {"name": "all", "filter": [{"function": "take_first"}]},
            {"name": "last", "filter": [{"function": "regex", "regex_pattern": "(\\d)$"}, {"function": "take_first"}]},
        ],
    )


def choice_task(rows: str) -> str:
    return task(
        rows,
        output_type="multiple_choice",
        doc_to_choice="choices",
        doc_to_target="{{choices.index(answer)}}",
        metric_list=[{"metric": "acc"}],
    )


def test_a_generation_task_with_stops_and_filters(rows: str) -> None:
    replies = {"2+2?": "4\nQuestion: 5+5?", "3+3?": "it is 6", "4+4?": "this is a long story: 8"}
    [result] = run_task(fake_subject(replies), generation_task(rows), suite="retention")
    assert (result.task, result.suite) == ("sums", "retention")
    assert [item.answer for item in result.items] == ["4", "it is 6", "this is a lo"]
    assert {name: metric.value for name, metric in result.metrics.items()} == {
        "exact_match,all": pytest.approx(1 / 3),
        "exact_match,last": pytest.approx(2 / 3),
    }
    assert result.items[0].prompt == "<user>2+2?<assistant>"
    assert [item.passed for item in result.items] == [True, False, False]
    json.dumps(result.to_json(items=True), allow_nan=False)


def test_multiple_choice_takes_the_likeliest_choice(rows: str) -> None:
    likely = {"4", "6", "9"}
    subject = fake_subject(
        "4", likelihood=lambda text: -0.1 if text.rpartition("<assistant>")[2].strip() in likely else -3.0
    )
    [result] = run_task(subject, choice_task(rows), suite="retention")
    assert result.metrics["acc"].value == pytest.approx(2 / 3)
    assert [item.answer.strip() for item in result.items] == ["4", "6", "9"]
    assert result.metrics["acc"].ci95[0] > 0


def test_the_headline_is_the_first_metric_of_which_more_is_better(rows: str) -> None:
    file = task(rows, output_type="loglikelihood", metric_list=[{"metric": "perplexity"}, {"metric": "acc"}])
    [result] = run_task(fake_subject({"2+2?": "4", "3+3?": "6", "4+4?": "9"}), file, suite="retention")
    assert list(result.metrics) == ["acc", "perplexity"]
    assert [item.passed for item in result.items] == [True, True, False]
    assert result.is_pass_rate


def test_a_task_of_which_less_is_better_is_no_score_and_no_item_of_it_passes(rows: str) -> None:
    file = task(
        rows,
        output_type="generate_until",
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": False}],
    )
    [result] = run_task(fake_subject({"2+2?": "4", "3+3?": "6", "4+4?": "9"}), file, suite="behaviour")
    assert result.headline.value == pytest.approx(2 / 3)
    assert not result.is_share
    assert not result.is_pass_rate
    assert not any(item.passed for item in result.items)
    assert headlines([result])["behaviour"] is None


METRICS = """
def score(doc, results):
    return {"my_perplexity": 3.5}

def mean(values):
    return sum(values) / len(values)

def word(values):
    return "three"
"""


@pytest.mark.parametrize("aggregation", ["mean", "word"])
def test_a_metric_that_lm_eval_does_not_know_is_no_score_if_it_is_called_a_perplexity_or_no_number(
    rows: str, aggregation: str
) -> None:
    Path(rows).with_name("code.py").write_text(METRICS)
    file = Path(task(rows, output_type="generate_until"))
    metrics = f"metric_list: [{{metric: my_perplexity, aggregation: !function code.{aggregation}}}]"
    settings = [f"{name}: {json.dumps(value)}" for name, value in json.loads(file.read_text()).items()]
    file.write_text("\n".join([*settings, "process_results: !function code.score", metrics]))
    if aggregation == "word":
        with pytest.raises(RecoverError, match="The lm-eval task sums has no metric that is a number"):
            run_task(fake_subject("4"), str(file), suite="retention")
    else:
        [result] = run_task(fake_subject("4"), str(file), suite="retention")
        assert (result.headline.value, result.is_share) == (3.5, False)


def test_a_limit_applies_and_no_output_or_random_state_leaks(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    random.seed(5)
    torch.manual_seed(5)
    state, torch_state = random.getstate(), torch.get_rng_state()
    [result] = run_task(fake_subject("4"), generation_task(rows), suite="retention", limit=1)
    assert result.metrics["exact_match,all"].n == 1
    assert capsys.readouterr().out == ""
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize(("tokenizers", "positions", "window"), [(10**30, 512, 512), (128, 512, 128), (1024, 512, 512)])
@pytest.mark.parametrize("metered", [False, True])
def test_a_window_is_no_longer_than_the_models_positions(
    tmp_path: Path, tokenizers: int, positions: int, window: int, metered: bool
) -> None:
    student = tiny_student(tmp_path)
    assert student.causal.config.max_position_embeddings == positions
    student.chat.tokenizer.model_max_length = tokenizers
    subject = Subject(TransformersEngine(student), student.chat)
    model = HarnessModel(with_cost_meter(subject)[0] if metered else subject)
    assert model._window() == window


def test_a_text_longer_than_what_a_server_takes_is_scored_in_windows(tmp_path: Path) -> None:
    student = load_student(str(save_tiny(tmp_path)), frozen=True)
    text = "A pump is a machine. " * 40
    with serving(SmallServer(student)) as named:
        model = HarnessModel(with_cost_meter(Subject(HttpEngine(student, named), student.chat))[0])
        assert model._window() == 256 - 2  # a token is before the window, and one is written
        [score] = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
    student.chat.tokenizer.model_max_length = 254
    own = HarnessModel(Subject(TransformersEngine(student), student.chat))
    assert own.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)]) == pytest.approx([score])


def test_a_system_turn_is_left_out_where_the_template_refuses_it(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    guard = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    student.chat.tokenizer.chat_template = guard + str(student.chat.tokenizer.chat_template)
    model = HarnessModel(Subject(TransformersEngine(student), student.chat))
    question = [{"role": "user", "content": "Which one?"}]
    described = [{"role": "system", "content": "The following are questions about history."}, *question]
    assert model.apply_chat_template(described) == model.apply_chat_template(question)


def test_tasks_that_shuffle_as_they_are_loaded_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def load(task: str) -> None:
        drawn.append((random.random(), float(np.random.random())))
        raise RecoverError("loaded")

    monkeypatch.setattr(harness, "load_tasks", load)
    for _ in range(2):
        with pytest.raises(RecoverError, match="loaded"):
            run_task(fake_subject("4"), "gpqa", suite="retention")
    assert drawn[0] == drawn[1]


def test_an_unknown_task_is_reported_with_similar_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_all_tasks", lambda: SimpleNamespace(all_tasks=["gsm8k", "mmlu"]))  # 5 s to index
    with pytest.raises(RecoverError, match="Did you mean gsm8k"):
        run_task(fake_subject("4"), "gsm8", suite="retention")
    with pytest.raises(RecoverError, match="no lm-eval task 'xyz'"):
        run_task(fake_subject("4"), "xyz", suite="retention")


def test_the_splits_of_a_tasks_documents_are_disjoint_and_complete(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "many.jsonl", [{"question": f"{i}+0?", "answer": str(i)} for i in range(40)])
    splits = {}
    for split in ("probe", "final", "all"):
        [result] = run_task(fake_subject("7"), generation_task(str(file)), suite="retention", split=split)
        splits[split] = {item.key: item.prompt for item in result.items}
    assert 0 < len(splits["probe"]) < len(splits["final"])
    assert splits["probe"].keys().isdisjoint(splits["final"])
    assert splits["probe"] | splits["final"] == splits["all"]
    [few] = run_task(fake_subject("7"), generation_task(str(file)), suite="retention", split="probe", limit=2)
    assert [item.key for item in few.items] == list(splits["probe"])[:2]
    assert {item.key for item in few.items if item.passed} == {k for k, p in splits["probe"].items() if ">7+0" in p}


def test_missing_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match="local files"):
        run_task(fake_subject("4"), task(str(tmp_path / "nowhere.jsonl")), suite="retention")
    (tmp_path / "broken.yaml").write_text("task: [")
    with pytest.raises(RecoverError, match=r"broken\.yaml"):
        run_task(fake_subject("4"), str(tmp_path / "broken.yaml"), suite="retention")


def test_an_unreachable_hub_fails_quickly(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    on_the_hub = task(rows, dataset_path="nobody/nothing", dataset_kwargs={})
    start = time.perf_counter()
    with pytest.raises(RecoverError, match="cannot be loaded"):
        run_task(fake_subject("4"), on_the_hub, suite="retention")
    assert time.perf_counter() - start < 15  # by default the hub's client retries for half a minute


LOCAL_FILES = "Connect to the hub once, or give local files, in RECOVER_BENCHMARK_DATA or in the task's YAML."


@pytest.mark.parametrize(
    ("error", "sentences"),
    [
        ("OfflineModeIsEnabled", f"(it is not in the cache, and the hub cannot be reached). {LOCAL_FILES}"),
        ("RevisionNotFoundError", f"(the hub has no such revision of it). {LOCAL_FILES}"),
        ("KeyError", f"(the text). {LOCAL_FILES}"),
        ("GatedRepoError", "Accept them on its page of the hub, and log in with `hf auth login`."),
    ],
)
def test_the_advice_for_data_that_cannot_be_loaded_fits_a_task(
    error: str, sentences: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = type(error, (Exception,), {})("the text")
    monkeypatch.setattr(harness, "is_hub_offline", lambda: True)
    monkeypatch.setattr(harness, "_try_load", lambda manager, task: raised)
    with pytest.raises(RecoverError) as refused:
        harness.load_tasks(task(rows))
    assert re.match(r"The data of the lm-eval task '.*rows\.yaml' cannot be loaded \(", str(refused.value))
    assert str(refused.value).endswith(sentences)


TEXTS = ["Write a poem about tulips. Use no commas.", "What is 12 + 30?"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[HarnessModel, object]:
    from lm_eval.models.huggingface import HFLM

    student = tiny_student(tmp_path_factory.mktemp("tiny"))
    ours = HarnessModel(Subject(TransformersEngine(student), student.chat))
    return ours, HFLM(pretrained=student.model, tokenizer=student.chat.tokenizer, batch_size=2, max_length=256)


def requests(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(kind, {}, argument, i) for i, argument in enumerate(arguments)]


def assert_same_likelihoods(pair: tuple, texts: list[tuple[str, str]]) -> None:
    mine, expected = (model.loglikelihood(requests("loglikelihood", texts), disable_tqdm=True) for model in pair)
    assert [total for total, _ in mine] == pytest.approx([total for total, _ in expected], abs=1e-3)
    assert [is_greedy for _, is_greedy in mine] == [is_greedy for _, is_greedy in expected]


def test_the_likelihoods_are_the_same(pair: tuple) -> None:
    ours, _ = pair
    context = ours.apply_chat_template([{"role": "user", "content": TEXTS[1]}])
    greedy = ours.generate_until(requests("generate_until", [(context, {"max_gen_toks": 4})]))[0]
    in_chat = [(context, text) for text in ("42", " forty-two", "41", greedy)]
    assert_same_likelihoods(pair, [*in_chat, (TEXTS[0], " Tulips are red"), ("", "Tulips")])


def test_replies_end_where_programs_stop(pair: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = pair
    engine, asked = ours.subject.engine, list[Sampling]()
    generate = engine.generate
    monkeypatch.setattr(engine, "generate", lambda prompts, how: (asked.append(how), generate(prompts, how))[1])
    ours.generate_until(requests("generate_until", [("tulips", {"max_gen_toks": 4})]))
    assert [sampling.of_turns for sampling in asked] == [True]


def test_what_is_longer_than_the_window_is_cut_as_in_lm_eval(pair: tuple) -> None:
    ours, _ = pair
    ours.tokenizer.model_max_length = 256
    context = "tulips and " * 120
    assert_same_likelihoods(pair, [(context, "tulips"), (context, "a pump")])
    asked = [(context, {"max_gen_toks": 8, "until": []})]
    replies = [model.generate_until(requests("generate_until", asked), disable_tqdm=True) for model in pair]
    assert replies[0] == replies[1]


def test_the_likelihoods_of_long_texts_are_the_same(pair: tuple) -> None:
    ours, theirs = pair
    ours.tokenizer.model_max_length = 256
    texts = [("tulips and " * 120,), ("Hi",)]
    mine = ours.loglikelihood_rolling(requests("loglikelihood_rolling", texts))
    expected = theirs.loglikelihood_rolling(requests("loglikelihood_rolling", texts), disable_tqdm=True)
    assert mine == pytest.approx(expected, rel=1e-4)


def test_likelihoods_that_are_no_numbers_choose_nothing(rows: str) -> None:
    subject = fake_subject({})
    subject.engine.continuation_logprobs = lambda contexts, after: [[float("nan")] for _ in after]
    with pytest.raises(RecoverError, match="no numbers"):
        run_task(subject, choice_task(rows), suite="retention")
