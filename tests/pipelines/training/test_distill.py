"""Distillation: the teachers' answers, and how far the default warm start goes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.cli import main
from pipelines.training.distill import those_that_end
from recovery.lab import BASE
from recovery.samples import Sample
from tests.pipelines.options import set_options
from tests.pipelines.training.commands import distill, midtrain, promote_a_cycle

OFF_POLICY = ("rows=8", "max_new_tokens=32", "prompts=16", "probe_every=0", "max_steps=1", "warm_start=off")


@pytest.mark.parametrize("recipe", ["offpolicy", "gkd"])
def test_the_teachers_answers_are_sampled_once(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.training.distill.ANSWER_BLOCK", 4)
    settings = set_options(*(f"distill.{assignment}" for assignment in OFF_POLICY))
    command = ["distill", "--student", str(BASE), "--recipe", recipe, "--limit", "2", "--json", *settings]
    caches = []
    for steps in (1, 1, 2):
        more = set_options(f"distill.max_steps={steps}")
        completed = CliRunner().invoke(main, [*command, *more, "--project", str(tmp_path)])
        assert completed.exit_code in (0, 3), completed.stderr
        assert json.loads(completed.stdout)["steps"] == steps
        files = (tmp_path / ".recover" / "cache").glob("answers-*.json")
        caches.append({file.name: (file.stat().st_mtime_ns, len(json.loads(file.read_text()))) for file in files})
    first, second, longer = caches
    assert first == second
    assert [count for _, count in first.values()] == [4, 4]
    assert first.items() < longer.items(), "the prompts of both runs have the same answers"


def test_labels_are_answers_that_end_where_there_are_any(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="recover")
    short, cut = (Sample([5] * (1 + length), [False] + [True] * length) for length in (3, 4))
    assert those_that_end([short, cut, short], 4) == [short, short]
    assert "1 of 3 answers are cut, and left out" in caplog.text
    assert those_that_end([cut, cut], 4) == [cut, cut]
    assert "All answers of the teacher are cut at 4 tokens" in caplog.text
    assert those_that_end([], 4) == []


@pytest.mark.slow
def test_the_default_warm_start_is_for_models_that_read_documents_alone(docs: Path) -> None:
    cases = (
        ("0", "Warm start: the weights moved by 0.3 towards those before its training"),
        ("0.3", "No warm start by default"),
    )
    for number, (texts, message) in enumerate(cases, 1):
        midtrained = midtrain(docs, *set_options("midtrain.mix.answers=0", f"midtrain.mix.texts={texts}"))
        assert midtrained.exit_code == 0, midtrained.stderr
        for student in ([], ["--student", f"cycle:{number}"]):  # the mid-training of a distilled model decides, too
            assert message in distill(*student).stderr


@pytest.mark.release
def test_the_default_warm_start_of_a_later_cycle_is_short_and_happens_once(docs: Path) -> None:
    promote_a_cycle(docs)
    midtrained = midtrain(docs, *set_options("midtrain.mix.answers=0"))
    assert midtrained.exit_code == 0, midtrained.stderr
    assert "Warm start: the weights moved by 0.2 towards those before its training" in distill().stderr
    assert "No warm start by default" in distill("--student", "cycle:2").stderr
