import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from db.tables import RunInputs
from pipelines.gate.promotion import decide
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.schema import Distill, Settings
from pipelines.synthetic.base_outputs import DISTILL_SEED, BaseOutputs
from pipelines.training.distill import _texts, is_of_rejected_cycle, open_writer, recipe_states, those_that_end
from pipelines.training.stage_context import Stage, Teachers
from recovery.divergences import identity_of_stops, merge_stops
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.students import Student, load_chat
from recovery.recipes import objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import Prompt
from recovery.teachers import FrozenTeacher
from tests.gradients import gradient_of_step
from tests.models import save_tiny, tiny_student
from tests.pipelines.options import recover, set_options
from tests.pipelines.project.checkpoints import record_checkpoint, record_cycle
from tests.pipelines.training.commands import distill, midtrain, promote_a_cycle

OFF_POLICY = ("rows=8", "max_new_tokens=32", "prompts=16", "probe_every=0", "max_steps=1", "warm_start=off")


def test_a_cycle_stays_rejected_while_a_later_attempt_of_it_is_judged(project: Project) -> None:
    checkpoint = project.reader.checkpoint(record_cycle(project, "rejected"))
    assert is_of_rejected_cycle(project, checkpoint)
    (cycle,) = project.reader.cycles(project.id)
    project.tracker.reopen_cycle(cycle.id)
    assert is_of_rejected_cycle(project, checkpoint)
    decide(project, checkpoint, "promoted", "on second thoughts")
    assert not is_of_rejected_cycle(project, checkpoint)
    outside = project.reader.checkpoint(record_checkpoint(project, None, 5))
    project.tracker.promote(project.id, None, outside.id, "rejected", "ada", "reads badly")
    assert not is_of_rejected_cycle(project, outside)


@pytest.mark.slow
def test_the_teachers_answers_are_sampled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.training.distill.ANSWER_BLOCK", 4)
    settings = set_options(*(f"distill.{assignment}" for assignment in OFF_POLICY))
    command = ["distill", "--student", str(BASE), "--recipe", "gkd", "--limit", "2", "--json", *settings]
    caches = []
    for steps in (1, 2):
        more = set_options(f"distill.max_steps={steps}")
        completed = recover(*command, *more, "--project", tmp_path)
        assert completed.exit_code in (0, 3), completed.stderr
        assert json.loads(completed.stdout)["steps"] == steps
        files = (tmp_path / ".recover" / "cache").glob("answers-*.json")
        caches.append({file.name: (file.stat().st_mtime_ns, len(json.loads(file.read_text()))) for file in files})
    shorter, longer = caches
    assert [count for _, count in shorter.values()] == [4, 4]
    assert shorter.items() < longer.items(), "the prompts of both runs have the same answers, written once"


def test_labels_are_answers_that_end_where_there_are_any(caplog: pytest.LogCaptureFixture) -> None:
    short, cut = (Sample([5] * 5, [False] + [True] * 4, truncated=is_cut) for is_cut in (False, True))
    assert those_that_end([short, cut, short]) == [short, short]
    assert "1 of 3 answers are cut or end as documents do, and are left out" in caplog.text
    assert those_that_end([cut, cut]) == [cut, cut]
    assert "All answers are cut, after 4 tokens at most" in caplog.text
    assert those_that_end([]) == []


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


ROWS = 6


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return tiny_student(tmp_path / "student", seed=1)


def stage(rows: int = ROWS) -> Any:
    distill = Distill(rows=rows, max_new_tokens=4)
    return SimpleNamespace(
        settings=Settings(distill=distill), job=SimpleNamespace(seed=3), project=SimpleNamespace(base=str(BASE))
    )


@pytest.mark.parametrize("name", ["in-context", "gkd"])
@pytest.mark.parametrize("rows", [ROWS, 5])
@pytest.mark.parametrize("answered", [60, 30])
def test_rollouts_and_answers_share_no_prompt_in_a_pass(student: Student, name: str, rows: int, answered: int) -> None:
    prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(60)]
    answers = [prompt.with_reply([5, 6]) for prompt in prompts[:answered]]
    states = recipe_states(stage(rows), recipe(name), TransformersEngine(student), prompts, answers)
    drawn = [row.prompt for step in range(answered // rows) for row in states.draw(student, step)]
    assert sorted(map(str, drawn)) == sorted(prompt.text for prompt in prompts[:answered])


@pytest.mark.parametrize(("name", "of_turns"), [("opd", False), ("grpo", True), ("rs-sft", True)])
def test_what_is_rewarded_ends_as_a_turn(student: Student, name: str, of_turns: bool) -> None:
    prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(60)]
    chosen = recipe(name)
    engine = TransformersEngine(student)
    (part,) = recipe_states(stage(8), chosen, engine, prompts, [], share=lambda sample: 1.0).parts
    rollouts = getattr(part, "states", part)
    assert rollouts.of_turns == of_turns


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_on_policy_fraction_weighs_rollouts_in_the_gradient(share: float, student: Student, tmp_path: Path) -> None:
    chosen, rows = recipe("opd", on_policy_fraction=share), 4
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=2)))
    prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(12)]
    answers = [prompt.with_reply([5, 6, 7]) for prompt in prompts] if share < 1 else []
    drawn = recipe_states(stage(rows), chosen, TransformersEngine(student), prompts, answers).draw(student, 0)
    own = int(share * rows)
    assert [row.logprobs is not None for row in drawn] == [True] * own + [False] * (rows - own)
    ours = gradient_of_step(student, drawn, signal_of(chosen, teacher), objective_of(chosen))
    losses = []
    for row in drawn:
        tokens = torch.tensor([row.tokens])
        whole = [model.causal(input_ids=tokens).logits[0].log_softmax(-1) for model in (student, teacher.model)]
        log_p, log_q = (merge_stops(x, student.stops) for x in whole)
        which = identity_of_stops(*(x[:, list(student.stops)] for x in whole))
        learned = torch.tensor(row.targets[1:])
        losses.append(((log_p.exp() * (log_p - log_q.detach())).sum(-1) + which)[:-1][learned])
    torch.cat(losses).mean().backward()
    reference = torch.cat([p.grad.flatten() for p in student.trainable() if p.grad is not None])
    assert reference.norm() > 0
    torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1e-5)


def test_a_writer_reads_no_token_that_only_the_student_has(tmp_path: Path, student: Student) -> None:
    teacher = save_tiny(tmp_path / "teacher", seed=2)
    student.chat.tokenizer.add_tokens(["<added>"])
    student.model.resize_token_embeddings(len(student.chat.tokenizer))
    teachers = Teachers(SimpleNamespace(path=str(teacher)))
    chosen = replace(recipe("continuation"), continued=(1, 2))
    with open_writer(chosen, teachers, student) as writer:
        assert student.vocabulary == len(student.chat.tokenizer) - 1
        added = len(student.chat.tokenizer) - 1
        prompts = [Prompt("say", student.chat.prompt("say"))]
        rollout = SimpleNamespace(tokens=[5, 6, added, 7], logprobs=[0.0] * 4, finished=True)
        engine: Any = SimpleNamespace(
            sync=lambda student: None, generate=lambda prompts, sampling: [rollout] * len(prompts)
        )
        states = recipe_states(stage(4), chosen, engine, prompts, [], writer)
        rows = states.draw(student, 0)
    assert len(rows) == 4
    assert all(added not in row.tokens for row in rows)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_texts_that_the_mix_had_are_not_labels_again(share: float, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(BaseOutputs, "texts", lambda base, is_default: base.seed)
    project = Project.open(tmp_path, str(save_tiny(tmp_path / "base")))
    cycle, _ = project.tracker.open_cycle(project.id)
    mix = RunInputs(mix={"answers": 0.3, "texts": share, "earlier": 0.0})
    run = project.tracker.start_run(project.id, "midtrain", cycle, inputs=mix)
    project.tracker.checkpoint(project.id, "midtrained", "m", parent=project.clean.id, run=run, cycle=cycle)
    start, chat = project.resolve("cycle:1/midtrained"), load_chat(project.base)
    seeds = [
        _texts(Stage(project, Job("distill", Settings(), seed=3)), checkpoint, recipe(name), chat)
        for checkpoint in (start, project.clean)
        for name in ("sft", "opd")
    ]
    assert seeds == [3 + DISTILL_SEED if share else 3, 3, 3, 3]
