from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipelines import turn_ends
from pipelines.storage import ContentCache
from recovery.engines import Generation
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import same_chat_template
from recovery.models.students import load_chat, load_student
from recovery.stop_contract import (
    WHERE_THE_BASE_ENDS,
    Fault,
    ReplyEnds,
    StopFiles,
    file_faults,
    measured_fault,
    missing_end,
    probability_of_ending,
)
from tests.chat_families import GLM_4_9B
from tests.models import change_json
from tests.stop_contracts import (
    END,
    SEPARATOR,
    copy_of_base,
    end_with_a_new_token,
    end_with_the_separator,
    mask_the_end_as_padding,
    overwrite_the_row,
    stop_at_the_separator_only,
    stop_beyond_the_vocabulary,
    stop_nowhere,
    write_no_end,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_of_base(tmp_path / "model")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ContentCache:
    """In which the replies of the base are."""
    return ContentCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_ends, "PROMPTS", 8)
    monkeypatch.setattr(turn_ends, "LIMIT", 40)


def examine(folder: Path, cache: ContentCache) -> list[Fault]:
    return turn_ends.examine_turn_ends(str(folder), str(BASE), cache).faults


def test_a_copy_of_the_base_ends_its_turns(folder: Path, cache: ContentCache) -> None:
    assert examine(folder, cache) == []


@pytest.mark.parametrize(
    ("damage", "sentence", "cure"),
    [
        (stop_at_the_separator_only, "stops at <|endoftext|> (0) only", "generation_config.json to [0, 2]"),
        (
            stop_beyond_the_vocabulary,
            "stops at 99999 (not in the vocabulary) only",
            "Set eos_token_id in generation_config.json to [2]",
        ),
        (stop_nowhere, "stops at no token, so replies run on", "Set eos_token_id in generation_config.json to [2]"),
        (write_no_end, "writes no token behind a reply, where that of its base has <|im_end|>", "Copy the base's chat"),
        (overwrite_the_row, "its training has overwritten the end of a turn", "`recover repair`"),
        (end_with_a_new_token, "<|done|> (2048), is a token that the base lacks", "Train that token, or go back to"),
        (mask_the_end_as_padding, "<|im_end|> (2), is also the padding", "`recover repair`"),
    ],
)
def test_the_fault_is_named_with_its_cure(
    folder: Path, cache: ContentCache, damage: Callable[[Path], None], sentence: str, cure: str
) -> None:
    damage(folder)
    (fault,) = examine(folder, cache)
    assert sentence in fault.what
    assert cure in fault.cure


def test_replies_that_never_end_are_a_fault_unless_those_of_the_base_are_as_long() -> None:
    files = StopFiles.of(str(BASE))
    never = ReplyEnds(count=24, limit=256, finished=0.0, repetition=0.1)
    fault = measured_fault(never, files, None, None)
    assert fault.what.startswith("None of 24 replies ended within 256 tokens")
    assert fault.cure.startswith("Name the model that it came from with --base")
    beside_no_chat = measured_fault(never, files, None, files)
    assert beside_no_chat.cure.startswith("Its base has no chat template: name the chat model that it came from")
    assert measured_fault(replace(never, finished=0.1), files, None, None) is None
    assert measured_fault(never, files, never, files) is None


def test_another_end_is_no_fault_where_the_base_has_it_as_often() -> None:
    files = StopFiles.of(str(BASE))
    base = ReplyEnds(24, 256, finished=0.3, repetition=0.1, other=SEPARATOR, ended_by_other=0.4)
    assert measured_fault(base, files, base, files) is None
    assert measured_fault(replace(base, ended_by_other=0.5), files, base, files) is None
    more = replace(base, finished=0.1, ended_by_other=0.9)
    assert "0.90 of its replies end with" in measured_fault(more, files, base, files).what


def test_a_model_that_ends_its_replies_with_its_own_token_need_not_end_those_of_the_base() -> None:
    base_files, base = StopFiles.of(str(BASE)), ReplyEnds(24, 256, finished=0.8, repetition=0.1, probability=0.9)
    files = replace(base_files, template=SEPARATOR, generation=(END, SEPARATOR))
    ends = ReplyEnds(24, 256, finished=0.8, repetition=0.1, probability=0.01, own_probability=0.9)
    for own_files, what in ((files, "another end of a turn"), (base_files, "a sentence more")):
        assert measured_fault(ends, own_files, base, base_files) is None, what
        for unlearned in ({"finished": 0.1}, {"own_probability": 0.3}, {"own_probability": None}):
            assert measured_fault(replace(ends, **unlearned), own_files, base, base_files) is not None


def test_too_few_finished_replies_tell_nothing_of_a_probability() -> None:
    student = load_student(str(BASE), frozen=True)
    cut = [([5], Generation([6, 7], [], finished=False))] * 20
    finished = [([5], Generation([6, END], [], finished=True))] * 3
    assert probability_of_ending(student, cut + finished, (END,)) is None


def test_the_probability_is_that_of_the_model_after_the_reply() -> None:
    student = load_student(str(BASE), frozen=True)
    prompt, reply = student.chat.prompt("Name a metal."), Generation([9, 8, END], [], finished=True)
    logits = student.causal(torch.tensor([[*prompt, 9, 8]])).logits[0, -1]
    expected = float(torch.softmax(logits.float(), -1)[[END, SEPARATOR]].sum())
    assert probability_of_ending(student, [(prompt, reply)] * 4, (END, SEPARATOR)) == pytest.approx(expected, abs=1e-6)


def test_a_separator_that_took_the_place_of_the_end_is_named_and_shown(folder: Path, cache: ContentCache) -> None:
    end_with_the_separator(folder)
    examined = turn_ends.examine_turn_ends(str(folder), str(BASE), cache)
    (fault,) = examined.faults
    assert "of its replies end with <|endoftext|> (0), at which" in fault.what
    assert "`recover repair` teaches it <|im_end|> (2) again" in fault.cure
    name, model, base = examined.rows[-1]
    assert name == WHERE_THE_BASE_ENDS
    probability, _, others = model.partition(" (")
    assert float(probability) < 0.5 * float(base)
    assert others.startswith("<|endoftext|> (")


def test_replies_that_are_longer_than_the_bases_are_no_fault_to_repair() -> None:
    files = StopFiles.of(str(BASE))
    base = ReplyEnds(24, 256, finished=0.9, repetition=0.1, probability=0.95)
    longer = ReplyEnds(24, 256, finished=0.3, repetition=0.1, probability=0.93, own_probability=0.95)
    fault = measured_fault(longer, files, base, files)
    assert not fault.repairable
    lost = measured_fault(replace(longer, probability=0.1, own_probability=0.1), files, base, files)
    assert lost.repairable


def test_a_model_without_a_generation_config_stops_where_its_config_says(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change_json(folder / "config.json", eos_token_id=SEPARATOR)
    files = StopFiles.of(str(folder))
    assert files.generation == (SEPARATOR,)
    assert missing_end(files) == END
    change_json(folder / "config.json", eos_token_id=[SEPARATOR, END])
    assert missing_end(StopFiles.of(str(folder))) is None


def test_the_end_of_the_base_counts_where_the_template_has_none(folder: Path) -> None:
    write_no_end(folder)
    stop_at_the_separator_only(folder)
    files, base = StopFiles.of(str(folder)), StopFiles.of(str(BASE))
    assert files.template is None
    assert load_chat(str(folder)).eos_ids == {SEPARATOR, END}, "the tokenizer's EOS still ends replies"
    assert missing_end(files, base) == END
    assert missing_end(files) is None


def test_a_template_that_ends_a_turn_with_the_next_one_is_no_fault(tmp_path: Path) -> None:
    model, base = (GLM_4_9B.save(tmp_path / name) for name in ("model", "base"))
    files = StopFiles.of(str(base))
    assert file_faults(files) == []
    change_json(model / "generation_config.json", eos_token_id=0)
    (fault,) = file_faults(StopFiles.of(str(model), files), files)
    assert "<|user|>" in fault.what
    assert "Set eos_token_id" in fault.cure


def test_a_template_that_lost_the_end_behind_replies_only_is_another_template(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    ends_of_others = "{% if message['role'] != 'assistant' %}<|im_end|>{% endif %}"
    head, _, tail = template.partition("'<|im_end|>\\n' }}")
    (folder / "chat_template.jinja").write_text(f"{head}'' }}}}{ends_of_others}{{{{ '\\n' }}}}{tail}")
    ours, base = load_chat(str(folder)), load_chat(str(BASE))
    assert ours.prompt("Hello?") == base.prompt("Hello?")
    assert not same_chat_template(ours, base)


def test_a_reply_counts_as_ended_where_generation_stops() -> None:
    replies = [Generation([5, END], [], finished=True), Generation([5, SEPARATOR], [], finished=True)]
    files = replace(StopFiles.of(str(BASE)), generation=(END,))
    assert ReplyEnds.of(replies, 64, files).finished == 0.5


def test_a_model_without_a_chat_template_is_told_so_without_replies(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    examined = turn_ends.examine_turn_ends(str(folder), str(BASE))
    assert examined.does is None
    assert "writes no token behind a reply" in examined.faults[0].what
    assert any("writes no token" in line for line in examined.lines())
    assert examined.base_does is None


def test_a_base_without_a_chat_template_replies_to_nothing(folder: Path, tmp_path: Path) -> None:
    base = copy_of_base(tmp_path / "base")
    (base / "chat_template.jinja").unlink()
    examined = turn_ends.examine_turn_ends(str(folder), str(base))
    assert examined.base_does is None
    assert not any("where the base's replies end" in line for line in examined.lines())


def test_weights_that_cannot_be_loaded_are_refused_before_the_base_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy_of_base(tmp_path / "model")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    monkeypatch.delattr(turn_ends.BaseReplies, "of")
    with pytest.raises(RecoverError, match="Pickled weights are not loaded"):
        turn_ends.examine_turn_ends(str(model), str(BASE))
