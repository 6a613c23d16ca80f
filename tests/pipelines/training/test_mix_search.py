"""The search for the share of answers: which share is taken, and what an interruption costs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli import main
from pipelines.storage.content_cache import ContentCache
from pipelines.training.mix_search import SHARES, AnswersSearch, best_share, explain, search_share, trial_steps
from pipelines.training.probe_results import ProbeScores, Score
from tests.pipelines.options import set_options
from tests.pipelines.training.commands import data_of, recorded_run

SCORE = st.builds(Score, st.floats(0, 1), st.floats(0, 0.1))
WITH_KNOWLEDGE = st.builds(ProbeScores, SCORE, SCORE)
WITHOUT_KNOWLEDGE = st.builds(ProbeScores, SCORE, st.none())


def trials(*scores: tuple[float, float | None]) -> dict[float, ProbeScores]:
    """The (behaviour, knowledge) of each share, with standard errors of 0.02 and 0.05."""
    probed = [ProbeScores(Score(b, 0.02), None if k is None else Score(k, 0.05)) for b, k in scores]
    return dict(zip(SHARES, probed, strict=True))


@pytest.mark.parametrize(
    ("scores", "share"),
    [
        (trials((0.90, 0.8), (0.91, 0.8), (0.91, 0.8)), 0.0),
        (trials((0.60, 0.8), (0.89, 0.8), (0.90, 0.8)), 0.1),
        (trials((0.60, 0.8), (0.80, 0.8), (0.90, 0.8)), 0.3),
        (trials((0.60, 0.8), (0.80, 0.8), (0.90, 0.5)), 0.1),  # the best behaviour learned less
        (trials((0.60, 0.8), (0.80, 0.6), (0.90, 0.5)), 0.0),
        (trials((0.60, 0.8), (0.80, 0.8), (0.90, 0.7)), 0.3),  # the difference in knowledge is not significant
        (trials((0.60, None), (0.80, None), (0.90, None)), 0.3),
    ],
)
def test_the_smallest_share_that_does_as_well_as_any_is_taken(scores: dict[float, ProbeScores], share: float) -> None:
    assert best_share(scores) == share
    assert f"{scores[share].behaviour.value:.3f}" in explain(scores, share)


@given(st.lists(WITH_KNOWLEDGE, min_size=3, max_size=3) | st.lists(WITHOUT_KNOWLEDGE, min_size=3, max_size=3))
def test_every_smaller_share_behaves_worse_or_learned_less(probed: list[ProbeScores]) -> None:
    scores = dict(zip(SHARES, probed, strict=True))
    share = best_share(scores)
    most_knowledge = max((score.knowledge.value for score in probed if score.knowledge), default=0.0)
    for other, score in scores.items():
        worse = score.behaviour.value < scores[share].behaviour.value
        learned_less = score.knowledge is not None and score.knowledge.value < most_knowledge
        assert other >= share or worse or learned_less


def test_the_explanation_names_a_share_that_learned_less() -> None:
    scores = trials((0.60, 0.8), (0.80, 0.8), (0.90, 0.5))
    assert explain(scores, best_share(scores)).endswith("; 0.3 learned less of the documents")


@pytest.mark.parametrize(("steps", "expected"), [(1, 1), (8, 2), (111, 28), (9999, 100)])
def test_a_trial_takes_a_part_of_the_steps(steps: int, expected: int) -> None:
    assert trial_steps(steps) == expected


def test_after_an_interruption_finished_trials_are_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores, tried = trials((0.6, 0.8), (0.8, 0.8), (0.81, 0.8)), list[float]()

    def interrupted_once(share: float) -> ProbeScores:
        tried.append(share)
        if share == 0.3 and tried.count(0.3) == 1:
            raise KeyboardInterrupt
        return scores[share]

    cache = ContentCache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        search_share(interrupted_once, cache, ["one corpus"], 7)
    search = search_share(interrupted_once, cache, ["one corpus"], 7)
    assert tried == [0.0, 0.1, 0.3, 0.3]
    assert (search.share, search.steps) == (0.1, 7)
    assert search.tried["0.3"] == {"behaviour": 0.81, "knowledge": 0.8}
    assert AnswersSearch.from_json(json.loads(json.dumps(search.as_json()))) == search
    assert "  answers 0.1: behaviour 0.800 · knowledge 0.800 (cached)" in caplog.messages
    search_share(interrupted_once, cache, ["another corpus"], 7)
    assert tried[4:] == [0.0, 0.1, 0.3]


@pytest.mark.release
def test_mid_training_tries_the_shares_and_records_the_search(search_command: list[str]) -> None:
    planned = data_of(CliRunner().invoke(main, [*search_command, "--dry-run", "--json"]))
    assert planned["answers_search"].startswith("tries 0, 0.1, 0.3, each for 1/4 of")
    completed = CliRunner().invoke(main, [*search_command, "--json"])
    search = data_of(completed)["answers_search"]
    assert search["share"] in SHARES
    assert (search["steps"], set(search["tried"])) == (1, {"0", "0.1", "0.3"})
    assert "Trying shares of answers: 0, 0.1, 0.3 (3 short mid-trainings of 1 steps of 4)" in completed.stderr
    assert recorded_run(completed).inputs.answers_search == search
    second_cycle = CliRunner().invoke(main, [*search_command, "--json"])
    assert second_cycle.exit_code == 0, second_cycle.stderr
    assert "(cached)" not in second_cycle.stderr, "another cycle has other answers of the base"


def test_auto_leaves_to_a_search_what_is_not_set(empty_docs: Path) -> None:
    (empty_docs / "a.md").write_text("A harbour in the north.")
    shares = []
    for more in ([], ["--mix", "answers=0.1"], set_options("distill.warm_start=0.2")):
        command = ["cycle", "--docs", str(empty_docs), "--auto", *more, "--dry-run", "--json"]
        settings = data_of(CliRunner().invoke(main, command))["settings"]
        shares.append((settings["midtrain"]["mix"]["answers"], settings["distill"]["warm_start"]))
    assert shares == [("auto", "auto"), (0.1, "auto"), ("auto", 0.2)]


def test_an_invalid_share_is_a_one_line_error(empty_docs: Path) -> None:
    for share in ("half", "1"):
        completed = CliRunner().invoke(main, ["midtrain", "--docs", str(empty_docs), "--mix", f"answers={share}"])
        assert completed.exit_code == 1
        assert "midtrain.mix.answers must be" in completed.stderr
        assert len(completed.stderr.splitlines()) == 2  # the base's name, and the error
