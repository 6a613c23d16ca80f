"""Which share of replay is taken, and what an interruption costs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli import main
from pipelines.project.project import Project
from pipelines.training.mix_search import SHARES, ProbeScores, Score, best_share, probe_steps, search_share, why

SCORES = st.builds(Score, st.floats(0, 1), st.floats(0, 0.1))
LOOKS = st.builds(ProbeScores, SCORES, SCORES)
BLIND = st.builds(ProbeScores, SCORES, st.none())


def looks(*found: tuple[float, float | None]) -> dict[float, ProbeScores]:
    """(behaviour, knowledge) of each share, give or take 0.02 and 0.05."""
    scores = [ProbeScores(Score(b, 0.02), None if k is None else Score(k, 0.05)) for b, k in found]
    return dict(zip(SHARES, scores, strict=True))


@pytest.mark.parametrize(
    ("found", "share"),
    [
        (looks((0.90, 0.8), (0.91, 0.8), (0.91, 0.8)), 0.0),
        (looks((0.60, 0.8), (0.89, 0.8), (0.90, 0.8)), 0.1),
        (looks((0.60, 0.8), (0.80, 0.8), (0.90, 0.8)), 0.3),
        (looks((0.60, 0.8), (0.80, 0.8), (0.90, 0.5)), 0.1),  # the best in manners learned less
        (looks((0.60, 0.8), (0.80, 0.6), (0.90, 0.5)), 0.0),
        (looks((0.60, 0.8), (0.80, 0.8), (0.90, 0.7)), 0.3),  # so few questions do not show it
        (looks((0.60, None), (0.80, None), (0.90, None)), 0.3),
    ],
)
def test_the_least_share_that_does_as_well_as_any(found: dict[float, ProbeScores], share: float) -> None:
    assert best_share(found) == share
    assert f"{found[share].behaviour.value:.3f}" in why(found, share)


@given(st.lists(LOOKS, min_size=3, max_size=3) | st.lists(BLIND, min_size=3, max_size=3))
def test_no_lesser_share_would_have_done(seen: list[ProbeScores]) -> None:
    found = dict(zip(SHARES, seen, strict=True))
    share = best_share(found)
    for other, look in found.items():
        worse = look.behaviour.value < found[share].behaviour.value
        less = look.knowledge is not None and look.knowledge.value < max(s.knowledge.value for s in seen if s.knowledge)
        assert other >= share or worse or less


def test_a_share_that_learned_less_is_named(tmp_path: Path) -> None:
    found = looks((0.60, 0.8), (0.80, 0.8), (0.90, 0.5))
    assert why(found, best_share(found)).endswith("; 0.3 learned less of the documents")


@pytest.mark.parametrize(("steps", "few"), [(1, 1), (8, 2), (111, 28), (9999, 100)])
def test_a_probe_takes_a_part_of_the_steps(steps: int, few: int) -> None:
    assert probe_steps(steps) == few


def test_what_was_tried_before_an_interruption_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found, tried = looks((0.6, 0.8), (0.8, 0.8), (0.81, 0.8)), list[float]()

    def cut_off(share: float) -> ProbeScores:
        if share == 0.3 and tried.count(0.3) == 0:
            tried.append(share)
            raise KeyboardInterrupt
        tried.append(share)
        return found[share]

    with pytest.raises(KeyboardInterrupt):
        search_share(cut_off, tmp_path, ["of this"])
    whole = search_share(cut_off, tmp_path, ["of this"])
    assert tried == [0.0, 0.1, 0.3, 0.3]
    assert whole["share"] == 0.1
    assert whole["tried"]["0.3"] == {"behaviour": 0.81, "knowledge": 0.8}
    assert "  replay 0.1: behaviour 0.800 · knowledge 0.800 (probed before)" in caplog.messages
    search_share(cut_off, tmp_path, ["of that"])
    assert tried[4:] == [0.0, 0.1, 0.3]


@pytest.mark.slow
def test_mid_training_tries_the_shares_and_says_what_it_took(tunes_answers: list[str]) -> None:
    ran = CliRunner().invoke(main, [*tunes_answers, "--dry-run", "--json"])
    assert json.loads(ran.stdout)["answers_search"].startswith("tries 0, 0.1, 0.3, each for 1/4 of")
    ran = CliRunner().invoke(main, [*tunes_answers, "--json"])
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)["answers_search"]
    assert found["share"] in SHARES
    assert (found["steps"], set(found["tried"])) == (1, {"0", "0.1", "0.3"})
    assert "trying replay of 0, 0.1, 0.3: 3 short mid-trainings of 1 steps, the whole takes 4" in ran.stderr
    project = Project.open_existing(None)
    run = project.reader.run(json.loads(ran.stdout)["run"])
    assert run is not None
    assert run.settings["replay"] == found
    another = CliRunner().invoke(main, [*tunes_answers, "--json"])
    assert "probed before" not in another.stderr, "another cycle has other words of the base to replay"


def test_one_switch_leaves_to_trying_what_is_not_given(no_docs: Path) -> None:
    (no_docs / "a.md").write_text("A harbour in the north.")
    wanted = []
    for more in ([], ["--mix", "answers=0.1"], ["--set", "distill.warm_start=0.2"]):
        ran = CliRunner().invoke(main, ["cycle", "--docs", str(no_docs), "--auto", *more, "--dry-run", "--json"])
        settings = json.loads(ran.stdout)["settings"]
        wanted.append((settings["midtrain"]["mix"]["answers"], settings["distill"]["warm_start"]))
    assert wanted == [("auto", "auto"), (0.1, "auto"), ("auto", 0.2)]


def test_what_is_no_share_is_one_sentence(no_docs: Path) -> None:
    for said in ("half", "1"):
        ran = CliRunner().invoke(main, ["midtrain", "--docs", str(no_docs), "--mix", f"answers={said}"])
        assert ran.exit_code == 1
        assert "midtrain.mix.answers must be" in ran.stderr
