import json
import random
from pathlib import Path

import pytest

from evals.downloads import ifeval_checkers
from evals.subject import Answer
from evals.suites.instruction_following import Prompt, judge, measure_ifeval, read_prompts
from evals.suites.lab import instruction_prompts
from recovery.errors import RecoverError
from tests.chats import write_jsonl
from tests.evals.data import IFEVAL, needs_ifeval
from tests.evals.fakes import fake_subject

NO_COMMA = Prompt("1", "Say it.", ["punctuation:no_comma"], [{}])
TWO = Prompt(
    "2",
    "Write.",
    ["punctuation:no_comma", "length_constraints:number_words"],
    [{}, {"relation": "at least", "num_words": 4}],
)


def verdicts(prompt: Prompt, text: str) -> tuple[list[bool], list[bool]]:
    item = judge(prompt, Answer(text, True))
    return item.verdicts["strict"], item.verdicts["loose"]


def test_the_metrics_overall_and_by_instruction_kind() -> None:
    replies = {"Say it.": "Sure, here:\nHello.", "Write.": "too short"}
    result = measure_ifeval(fake_subject(replies), [NO_COMMA, TWO], data="two.jsonl")
    values = {name: (metric.value, metric.n) for name, metric in result.metrics.items()}
    assert values == {
        "prompt_level_strict_acc": (0.0, 2),
        "inst_level_strict_acc": (pytest.approx(1 / 3), 3),
        "prompt_level_loose_acc": (0.5, 2),
        "inst_level_loose_acc": (pytest.approx(2 / 3), 3),
        "finished": (1.0, 2),
        "strict/punctuation": (0.5, 2),
        "strict/length_constraints": (0.0, 1),
    }
    assert [item.prompt for item in result.items] == ["Say it.", "Write."]
    assert result.settings["sentence_splitter"] == ifeval_checkers()[1]
    json.dumps(result.to_json(items=True), allow_nan=False)


def test_a_reply_that_is_cut_off_counts_as_unfinished() -> None:
    result = measure_ifeval(fake_subject("word " * 50), [NO_COMMA], data="one", max_new_tokens=20)
    assert result.metrics["finished"].value == 0.0
    assert len(result.items[0].answer) == 20
    assert result.settings["max_new_tokens"] == 20


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "x" * 100_000,
        "[" * 100_000,
        "\ud800",
        "\x00",
        "e\u0301\u202e\U0001f468\u200d",
        "一" * 999,
    ],
)
def test_no_answer_breaks_a_checker(reply: str) -> None:
    ids = [
        "detectable_format:json_format",
        "change_case:english_lowercase",
        "language:response_language",
        "length_constraints:number_sentences",
        "detectable_format:number_highlighted_sections",
    ]
    kwargs = [{}, {}, {"language": "en"}, {"relation": "at least", "num_sentences": 3}, {"num_highlights": 2}]
    strict, loose = verdicts(Prompt("1", "Go.", ids, kwargs), reply)
    assert strict[0] is loose[0] is False
    assert all(isinstance(verdict, bool) for verdict in strict + loose)


def test_verdicts_are_deterministic_and_leave_the_random_state() -> None:
    short = Prompt("1", "Answer in lower case.", ["change_case:english_lowercase"], [{}])
    no_letter = Prompt(
        "2", "Use it.", ["keywords:letter_frequency"], [{"let_relation": "at least", "letter": "!", "let_frequency": 2}]
    )
    for text in ("no idea", "ja so ein ding", "hm ok ok"):
        assert len({tuple(verdicts(short, text)[0]) for _ in range(8)}) == 1
    state = random.getstate()
    assert len({tuple(verdicts(no_letter, "some eerie letters")[0]) for _ in range(8)}) == 1
    assert random.getstate() == state


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "x"}, "lists of the same length"),
        ({"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "lists of the same length"),
        ({"prompt": "x", "instruction_id_list": ["be:nice"], "kwargs": [{}]}, "unknown instruction, 'be:nice'"),
        ({"prompt": "x", "instruction_id_list": [["a"]], "kwargs": [{}]}, "unknown instruction"),
        ({"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"how": 1}]}, "does not take"),
        (
            {"prompt": "x", "instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": "apple"}]},
            "keywords 'apple' of 'keywords:existence', which is of a wrong kind",
        ),
        ({"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [None]}, "does not take"),
        ({"prompt": "x", "instruction_id_list": ["keywords:existence"], "kwargs": [{}]}, "say the 'keywords' of"),
        (
            {"prompt": "x", "instruction_id_list": ["startend:end_checker"], "kwargs": [{"end_phrase": ""}]},
            "'end_phrase'",
        ),
        ({"prompt": " ", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, 'has no "prompt"'),
    ],
)
def test_a_malformed_prompt_is_reported_by_line_number(tmp_path: Path, line: dict, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    good = {"prompt": "ok", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    file.write_text(json.dumps(good) + "\n\n" + json.dumps(line))
    with pytest.raises(RecoverError, match="Line 3") as caught:
        read_prompts(file)
    assert message in str(caught.value)


def test_prompts_must_have_different_keys_and_null_is_none(tmp_path: Path) -> None:
    line = {"key": None, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    file = write_jsonl(tmp_path / "prompts.jsonl", [line | {"prompt": text} for text in "ab"])
    assert len({prompt.key for prompt in read_prompts(file)}) == 2
    for other in ({"prompt": "b", "key": 7}, {"prompt": "a"}):
        write_jsonl(file, [line | {"prompt": "a"} | other] * 2)
        with pytest.raises(RecoverError, match="have the same key or the same prompt"):
            read_prompts(file)


def test_without_punkt_sentences_and_words_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from evals import downloads

    ifeval_checkers()
    from lm_eval.tasks.ifeval import instructions_util

    for name in ("nltk", "_get_sentence_tokenizer"):
        monkeypatch.setattr(instructions_util, name, getattr(instructions_util, name))
    downloads._use_plain_splitter(instructions_util)
    monkeypatch.setenv("NLTK_DATA", "/nowhere")
    assert instructions_util.count_sentences("Dr. Who came. Did she stay? No!") == 3
    ids = ["change_case:capital_word_frequency", "length_constraints:number_words"]
    kwargs = [{"capital_relation": "at least", "capital_frequency": 2}, {"relation": "less than", "num_words": 9}]
    assert verdicts(Prompt("1", "Go.", ids, kwargs), "TWO big WORDS. That is all.")[0] == [True, True]


@needs_ifeval
def test_public_prompts_are_judged_as_lm_eval_judges_them() -> None:
    assert_judged_as_by_lm_eval(read_prompts(IFEVAL))


def test_lab_prompts_are_judged_as_lm_eval_judges_them() -> None:
    assert_judged_as_by_lm_eval(instruction_prompts(120))


def assert_judged_as_by_lm_eval(prompts: list[Prompt]) -> None:
    """It checks all instructions of a prompt at once."""
    checkers, _ = ifeval_checkers()
    followed: list[bool] = []
    for prompt in prompts:
        if prompt.key in ("1122", "1129"):  # they name no letter: the checker draws one, seeded by ours alone
            continue
        shown = f"Sure, here it is:\n\n*{prompt.text[:40]}*\n\n{prompt.text.lower()[-300:]}. P.S. done"
        reply = shown if len(prompt.text) % 3 else "HI, [a]"
        strict, loose = verdicts(prompt, reply)
        asked = {"instruction_id_list": prompt.instructions, "kwargs": prompt.kwargs}
        assert checkers.process_results({"key": prompt.key, "prompt": prompt.text, **asked}, [reply]) == {
            "prompt_level_strict_acc": all(strict),
            "inst_level_strict_acc": strict,
            "prompt_level_loose_acc": all(loose),
            "inst_level_loose_acc": loose,
        }
        followed += strict
    assert 0.05 < sum(followed) / len(followed) < 0.95
