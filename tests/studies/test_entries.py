import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.results import Item, Metric, Result, item_key
from pipelines.cli.study import _claim_lines
from recovery.errors import RecoverError
from studies.declaration import Study
from studies.entries import ArmFiles, Entry, decode, encode, outcomes, passes, results_of
from tests.studies.declarations import about, study
from tests.studies.planted import ITEMS, planted_entries, planted_entry

PLANTED = {"clean": 0.90, "damaged": 0.50, "opd": 0.85, "off-policy": 0.85, "answers": 0.7}
ONE = study()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=5,
)


def files(folder: Path, declared: Study = ONE) -> ArmFiles:
    return ArmFiles(declared, folder, again=True)


@given(st.dictionaries(st.text(), JSON))
def test_an_entry_comes_back_from_its_file_as_it_was(entry: Entry) -> None:
    assert decode(encode(entry)) == entry
    assert encode(dict(reversed(entry.items()))) == encode(entry), "the same bytes in any order"


def test_the_header_of_a_file_has_no_time_and_no_name(tmp_path: Path) -> None:
    files(tmp_path).add(planted_entry(ONE, 1, "opd", 0.8))
    content = (tmp_path / "seed-1/opd.json.gz").read_bytes()
    assert content[3] == 0, "no flag, so no name"
    assert content[4:8] == b"\0\0\0\0"
    assert len(content) < 20_000, "2,000 items"


@pytest.mark.parametrize(
    ("planted", "verdicts"),
    [(PLANTED, ["supported", "cannot tell"]), (PLANTED | {"opd": 0.5}, ["refuted", "refuted"])],
)
def test_claims_from_files_are_those_of_the_fresh_entries(
    tmp_path: Path, planted: dict[str, float], verdicts: list[str]
) -> None:
    fresh = planted_entries(ONE, planted)
    for entry in fresh:
        assert files(tmp_path).add(entry) == entry
    results = results_of(ONE, files(tmp_path).entries())
    assert results == results_of(ONE, fresh) == results_of(ONE, reversed(fresh))
    first, second = results["claims"]
    assert [first["verdict"], second["verdict"]] == verdicts
    assert first["low"] < planted["opd"] - planted["damaged"] < first["high"]
    assert (first["source"], len(first["seeds"]), first["n"]) == (0.114, 3, ITEMS)
    assert ("seeds" in second["needed"]) == (verdicts[1] == "cannot tell")
    assert "outcomes" not in str(results["arms"]), "the record has no items"


def test_the_files_of_two_machines_are_merged_by_copying(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for machine, seeds in (("one", (1, 2)), ("other", (3,))):
        here = ArmFiles(ONE, tmp_path / machine, shared)
        for entry in planted_entries(ONE, PLANTED):
            if entry["seed"] in seeds:
                here.add(entry)
        here.share()
    assert len(ArmFiles(ONE, tmp_path / "third", shared).entries()) == 15
    assert ArmFiles(ONE, tmp_path / "third", shared, again=True).entries() == []


def test_a_file_that_does_not_belong_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "seed-1/opd.json.gz"
    other = study("distill.rows = 16", "distill.rows = 32")
    files(tmp_path).add(planted_entry(other, 1, "opd", 0.8))
    with pytest.raises(RecoverError, match=rf"of the declaration {other.hash}, and this study is {ONE.hash}\."):
        files(tmp_path).entry(1, "opd")
    file.write_bytes(encode(planted_entry(ONE, 2, "opd", 0.8)))
    with pytest.raises(RecoverError, match=r"of the arm opd of seed 2\. Move it"):
        files(tmp_path).entry(1, "opd")
    file.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(RecoverError, match=r"cannot be read.*Remove it, and run the study again\."):
        files(tmp_path).entry(1, "opd")


def test_values_that_were_chosen_stand_beside_the_arms(tmp_path: Path) -> None:
    here = ArmFiles(ONE, tmp_path / "here", tmp_path / "shared")
    here.add_tuned({"opd": {"distill.learning_rate": 1e-4}})
    here.share()
    there = replace(here, folder=tmp_path / "there")
    assert there.tuned() == {"opd": {"distill.learning_rate": 1e-4}}
    assert replace(there, again=True).tuned() is None


def test_keys_that_are_hashes_are_cut_where_they_stay_unique() -> None:
    hashes = ["0123456789ab", "fedcba987654"]
    assert outcomes([of(hashes)])["behaviour"]["ifeval"]["passed"] == ["01234567", "fedcba98"]
    assert outcomes([of(["65-150/0123456789ab"])])["behaviour"]["ifeval"]["passed"] == ["65-150/01234567"]
    alike = ["0123456789ab", "01234567ffff", "fedcba987654"]
    assert outcomes([of(alike)])["behaviour"]["ifeval"]["passed"] == alike, "all are kept whole"
    assert outcomes([of(["a-key-of-mine"])])["behaviour"]["ifeval"]["passed"] == ["a-key-of-mine"]


def test_items_that_are_graded_have_no_outcome() -> None:
    """None of them passes, so every difference would be zero, and any loss supported as none."""
    items = [Item(str(n), "", "", passed=False, verdicts={}) for n in range(4)]
    graded = Result("passages", "knowledge", "docs", {"bits_per_byte": Metric.from_values([1.2] * 4)}, items, {}, 1.0)
    assert outcomes([graded]) == {}


@given(st.dictionaries(st.text(max_size=14) | st.integers().map(lambda n: item_key(str(n))), st.booleans(), min_size=1))
def test_every_item_keeps_its_outcome(passed: dict[str, bool]) -> None:
    task = outcomes([of(list(passed), list(passed.values()))])["behaviour"]["ifeval"]
    kept = passes(task)
    assert len(kept) == len(passed)
    assert sum(kept.values()) == sum(passed.values())
    assert all(any(key.startswith(short) and kept[short] == value for short in kept) for key, value in passed.items())


def test_the_tasks_are_those_that_scores_and_claims_are_about() -> None:
    graded = replace(of(["a", "b"]), suite="retention", task="graded", metrics={"f1": Metric(0.4, 2, 0.1, (0.2, 0.6))})
    pooled = [replace(of(["a"]), suite="retention", task=task) for task in ("facts", "arithmetic")]
    second = replace(of(["a"]), task="mine")
    kept = outcomes([second, of(["a"]), graded, *pooled])
    assert {suite: list(tasks) for suite, tasks in kept.items()} == {
        "behaviour": ["ifeval"],
        "retention": ["facts", "arithmetic"],
    }


def of(keys: list[str], passed: list[bool] | None = None) -> Result:
    values = passed or [True] * len(keys)
    items = [Item(key, "", "", value) for key, value in zip(keys, values, strict=True)]
    return Result("ifeval", "behaviour", "lab", {"accuracy": Metric.from_passes(values)}, items, {}, 1.0)


def test_a_value_that_is_no_number_is_null_in_the_claims() -> None:
    diverging = about("token_entropy")
    entries = planted_entries(diverging, PLANTED)
    next(entry for entry in entries if (entry["seed"], entry["arm"]) == (2, "opd"))["values"]["token_entropy"] = (
        math.nan
    )
    shown, other = results_of(diverging, entries)["claims"]
    assert (shown["verdict"], shown["estimate"], shown["seeds"]) == ("cannot tell", None, [0.0, None, 0.0])
    assert other["estimate"] is not None
    json.dumps(shown, allow_nan=False)
    assert "no number" in _claim_lines(shown)[1]
