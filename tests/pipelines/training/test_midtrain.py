"""How `recover midtrain` reads: documents apart from each other, or in other words besides, where the base can."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evals.subject import Subject
from pipelines import prepare_job as beginning
from pipelines.cli import main
from pipelines.project.project import Project
from pipelines.training import stages
from tests.evals.fakes import fake_subject
from tests.pipelines.synthetic.test_paraphrased_corpus import backwards


def midtrain(docs: Path, *more: str) -> Result:
    short = ["--set", "midtrain.max_steps=1", "--mix", "documents"]
    return CliRunner().invoke(main, ["midtrain", "--docs", str(docs), *short, *more, "--json"])


def test_read_apart_the_first_token_of_a_document_is_no_target(docs: Path) -> None:
    across, apart = (
        midtrain(docs, "--set", f"midtrain.cross_document_attention={value}") for value in ("true", "false")
    )
    window, rows = (_settings(apart)["midtrain"][name] for name in ("window", "rows"))
    learned = [json.loads(ran.stdout)["tokens"] for ran in (across, apart)]
    assert learned[0] <= window * rows
    assert learned[0] * 0.9 < learned[1] < learned[0]
    assert (
        "midtrain.cross_document_attention must be true or false"
        in midtrain(docs, "--set", "midtrain.cross_document_attention=maybe").stderr
    )


def test_the_lab_base_cannot_reword_and_nothing_is_begun(docs: Path, tmp_path: Path) -> None:
    ran = midtrain(docs, "--set", "midtrain.mix.paraphrases=1")
    assert ran.exit_code == 1
    assert "stood the test" in json.loads(ran.stdout)["error"]
    assert "leave the paraphrases away, or name a more capable model with --base" in ran.stderr
    project = Project.open_existing(None)
    assert list(project.reader.runs(project.id)) == list(project.reader.cycles(project.id)) == []
    assert not list((tmp_path / ".recover" / "jobs").glob("*"))


def test_rewordings_are_read_beside_the_documents_and_counted(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(path: str, engine: str) -> Any:
        raise AssertionError("written twice")

    @contextmanager
    def capable(path: str, engine: str) -> Iterator[Subject]:
        yield fake_subject(backwards)

    plain, reworded = midtrain(docs), _with(capable, docs, monkeypatch)
    tally = _settings(reworded)["reworded"]
    assert 0 < tally["kept"] <= tally["written"] == tally["passages"]
    assert f"{tally['kept']} of {tally['written']} paraphrases of {tally['passages']} passages" in reworded.stderr
    assert "reworded" not in _settings(plain)
    assert 1.2 * _tokens(plain) < _tokens(reworded) <= 2.2 * _tokens(plain)
    again = _with(nobody, docs, monkeypatch)
    assert _settings(again)["reworded"] == tally
    assert _tokens(again) == _tokens(reworded)


def _with(open_subject: Any, docs: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    for module in (beginning, stages):
        monkeypatch.setattr(module, "open_subject", open_subject)
    return midtrain(docs, "--set", "midtrain.mix.paraphrases=1")


def _tokens(ran: Result) -> int:
    (told,) = re.findall(r"([\d,]+) tokens: 1 steps", ran.stderr)
    return int(told.replace(",", ""))


def _settings(ran: Result) -> dict[str, Any]:
    """Of the run, as they are on record."""
    assert ran.exit_code == 0, ran.stderr
    project = Project.open_existing(None)
    run = project.reader.run(json.loads(ran.stdout)["run"])
    assert run is not None
    return run.settings
