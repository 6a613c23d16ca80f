import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from db.next_attempt import NextAttempt
from db.tables import Checkpoint
from evals.results import Result
from pipelines.cycle import Answer, Cycle
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.evaluation.checkpoint_measurement import store_results
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import Judgement, Verdict, judge_knowledge
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.repair import MOVES, REREAD, TEXTS, Move, RepairResult, _advice, _guard, _is_due, _job_of
from pipelines.settings.defaults import MEDIUM_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from recovery.lab import BASE
from tests.evals.fakes import graded, result
from tests.pipelines.options import error_of, recover
from tests.pipelines.project.checkpoints import promoted_cycle, record_checkpoint

LOST = Judgement(False, -0.3, -0.35, -0.03, 400, before=0.6)
KEPT = Judgement(True, 0.0, -0.01, -0.03, 400, before=0.6)
SCORES = {"behaviour": 0.6, "knowledge": None, "earlier": None, "retention": 0.9}
JOB = Job("repair", Settings(), student=3, id="abcd1234")
LORA = Settings(lora_rank=8)
CHECKPOINT = Checkpoint(id=7, role="recovered", run_id=7, path="/models/7")
MEDIUM, LARGE = MEDIUM_MODEL_PARAMETERS, MEDIUM_MODEL_PARAMETERS + 1


def verdict(behaviour: Judgement, passed: bool) -> Verdict:
    return Verdict(passed, "passed" if passed else "failed", behaviour, None, "instruction following is lower")


def move(name: str, *, passed: bool = False, behaviour: Judgement = LOST, share: float | None = None) -> Move:
    return Move(name, SCORES, verdict(behaviour, passed), CHECKPOINT, share, seconds=61.0)


def planned(name: str, *moves: Move, job: Job = JOB, can_probe: bool = True, parameters: int = LARGE) -> Job:
    """The job of a move after these moves, or after none but a look at the model."""
    share = next((each.share for each in moves if each.name == "interpolation"), None)
    return _job_of(job, name, share, can_probe=can_probe, parameters=parameters)


def chosen(job: Job, **distill: float | str) -> Job:
    """With these settings of the user."""
    settings = apply_overrides(job.settings, {"distill": distill})
    return replace(job, settings=settings, given={f"distill.{name}": value for name, value in distill.items()})


WITH_DOCUMENTS = replace(JOB, corpus=CorpusSnapshot(Path("docs"), "0" * 64, 3, Path("snapshot")))


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--set", "distill.beta=0.5", "with their own dials. Leave out distill.beta, or use"),
        ("--set", "distill.recipe=sdft", "with their own dials. Leave out distill.recipe, or"),
        ("--set", "distill.temperature=2", "The recipe opd needs rollouts at temperature 1."),
        ("--set", "report_to=nonsense", "The setting report_to must be none, wandb, trackio or tensorboard"),
        ("--prompts", "no-user.jsonl", 'no-user.jsonl has no "prompt"'),
    ],
)
def test_a_refused_repair_says_why_and_creates_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no-user.jsonl").write_text('{"messages": [{"role": "assistant", "content": "Hi"}]}')
    assert sentence in error_of(recover("repair", BASE, "--project", "project", "--json", option, value))
    assert not (tmp_path / "project").exists()


def test_a_lost_end_is_taught_in_a_few_steps_on_labels_at_a_rate_of_their_own() -> None:
    job = planned("ends", job=replace(JOB, settings=defaults_for(MEDIUM)), parameters=MEDIUM)
    pace = job.settings.distill
    assert (job.id, pace.recipe) == ("abcd1234-ends", "offpolicy")
    assert (pace.learning_rate, pace.rows, pace.steps) == (1e-3, 7, 24)
    assert planned("ends", job=chosen(JOB, steps=9)).settings.distill.steps == 9
    assert planned("ends", job=chosen(JOB, steps=160)).settings.distill.steps == 24, "others are to be longer"


def test_replies_that_do_not_end_are_no_repair() -> None:
    passes = replace(move("interpolation", passed=True, share=0.3), ending=0.2)
    lost = replace(repaired(replace(move("none", passed=True), ending=0.1), passes), base_ending=0.9)
    assert lost.summary == "No move passed the gate with replies that end."
    assert lost.as_json()["repaired"] is None
    text = "\n".join(lost.lines())
    assert "base 0.90, as it is 0.10, interpolation towards the base by 0.3 0.20" in text
    assert "recover export" not in text
    back = replace(lost, moves=[lost.moves[0], replace(passes, ending=0.8)])
    assert back.summary.startswith("Repaired by interpolation")
    assert back.as_json()["moves"][1]["ending"] == 0.8
    never_lost = replace(lost, moves=[replace(move("none", passed=True), ending=0.7)])
    assert never_lost.summary == "Nothing to repair."


def test_interpolation_trains_nothing_and_its_share_is_where_the_others_begin() -> None:
    first = planned("interpolation")
    assert (first.id, first.command, first.student) == ("abcd1234-interpolation", "distill", 3)
    assert first.settings.distill.probe_every == Settings().distill.probe_every
    assert planned("interpolation", can_probe=False).settings.distill.warm_start == 0.3
    assert (first.settings.distill.steps, first.settings.distill.warm_start, first.settings.lora_rank) == (0, "auto", 0)
    moves = [move("none"), move("interpolation", share=0.5)]
    for name, recipe in (("answers", "offpolicy-kl"), ("opd", "opd")):
        later = planned(name, *moves).settings
        assert (later.distill.recipe, later.distill.warm_start) == (recipe, 0.5)
        assert later.distill.steps == JOB.settings.distill.steps
    unmoved = planned("opd", move("none"), move("interpolation", share=0.0))
    assert unmoved.settings.distill.warm_start == "off"


def test_every_move_learns_at_the_rate_of_its_own_recipe() -> None:
    medium = replace(JOB, settings=defaults_for(MEDIUM))
    paces = []
    for job in (medium, chosen(medium, learning_rate=1e-3, steps=9)):
        for name in ("answers", "opd"):
            own = planned(name, job=job, parameters=MEDIUM).settings.distill
            paces.append((own.learning_rate, own.rows, own.steps))
    assert paces == [(1e-3, 7, 80), (2e-5, 16, 80), (1e-3, 7, 9), (1e-3, 16, 9)]


def test_documents_and_answers_of_the_fine_tune_are_learned_again_while_it_is_distilled() -> None:
    shares = [planned(name, job=WITH_DOCUMENTS).settings.distill.documents for name in MOVES]
    assert shares == [REREAD, None, REREAD, None, None, REREAD]
    default = replace(WITH_DOCUMENTS, settings=defaults_for(MEDIUM))
    assert planned("answers", job=default, parameters=MEDIUM).settings.distill.documents == REREAD
    with_chats = replace(JOB, training_file=Path("chats.jsonl"))
    for job, share in ((with_chats, REREAD), (replace(JOB, start=3), REREAD), (JOB, None)):
        assert planned("answers", job=job).settings.distill.documents == share
    for share in (0.0, 0.4):
        assert planned("opd", job=chosen(with_chats, documents=share)).settings.distill.documents == share


@pytest.mark.parametrize("share", ["documents", "texts"])
def test_a_large_share_of_one_leaves_room_for_the_other_and_for_answers(share: str) -> None:
    distill = planned("answers", job=chosen(WITH_DOCUMENTS, **{share: 0.8})).settings.distill
    assert distill.documents_share + distill.texts_share == pytest.approx(0.9)


def test_texts_of_the_base_are_read_by_the_moves_that_train_for_long() -> None:
    shares = [planned(name).settings.distill.texts for name in MOVES]
    assert shares == [None, None, TEXTS, None, None, TEXTS]
    assert planned("answers", job=chosen(JOB, texts=0.0)).settings.distill.texts == 0.0


def test_a_share_that_was_given_is_taken_by_every_move() -> None:
    job = chosen(JOB, warm_start=0.3)
    none_helps = [move("none"), move("interpolation", share=0.0)]
    assert planned("ends", job=job).settings.distill.warm_start == "off", "the weights move once"
    assert planned("interpolation", job=job).settings.distill.warm_start == 0.3
    assert planned("answers", *none_helps, job=job).settings.distill.warm_start == 0.3
    assert planned("answers", *none_helps).settings.distill.warm_start == "off"
    unmoved = chosen(JOB, warm_start=0.0)
    assert planned("interpolation", job=unmoved).settings.distill.warm_start == 0.0
    assert planned("opd", move("interpolation", share=0.3), job=unmoved).settings.distill.warm_start == 0.0


@pytest.mark.parametrize(("name", "share"), [("average", 0.5), ("average-less", 0.3)])
def test_an_average_with_the_base_trains_nothing_and_has_its_own_share(name: str, share: float) -> None:
    for job in (JOB, chosen(JOB, warm_start=0.4), chosen(JOB, warm_start="off"), replace(JOB, settings=LORA)):
        average = planned(name, job=job).settings
        assert (average.distill.steps, average.distill.warm_start, average.lora_rank) == (0, share, 0)


@pytest.mark.parametrize(("knowledge", "due"), [(None, True), (KEPT, True), (LOST, False)])
def test_an_average_follows_where_there_is_new_knowledge_to_spare(knowledge: Judgement | None, due: bool) -> None:
    """And a smaller one only where the larger cost too much of it."""
    answers, average = (
        replace(trained, verdict=replace(trained.verdict, knowledge=knowledge))
        for trained in (move("answers"), move("average", share=0.5))
    )
    assert _is_due("average", [answers], "/models/base", is_lost=False) == due
    assert _is_due("average-less", [answers, average], "/models/base", is_lost=False) == (not due)
    assert not _is_due("average-less", [answers], "/models/base", is_lost=False)


@pytest.mark.parametrize(("below", "due"), [("base", True), ("copy", True), ("fine-tune", False)])
def test_only_an_adapter_on_the_base_is_averaged_with_it(tmp_path: Path, below: str, due: bool) -> None:
    for name in ("base", "copy", "fine-tune", "adapter"):
        (tmp_path / name).mkdir()
        save_file({"layer.weight": torch.full((2,), float(name == "fine-tune"))}, tmp_path / name / "model.safetensors")
    config = {"base_model_name_or_path": str(tmp_path / below)}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    trained = replace(move("answers"), checkpoint=Checkpoint(path=str(tmp_path / "adapter")))
    assert _is_due("average", [trained], str(tmp_path / "base"), is_lost=False) == due


def test_what_guards_the_new_knowledge_is_said(tmp_path: Path) -> None:
    chats, texts = tmp_path / "chats.jsonl", tmp_path / "texts.jsonl"
    chats.write_text('{"messages": []}\n')
    texts.write_text('{"text": "a"}\n')
    plans = [EvalPlan(questions=texts), EvalPlan(passages=texts), EvalPlan(passages=chats)]
    known = Judgement(True, 0.5, 0.5, 0.4, 100)
    assert [_guard(plan, known) for plan in plans] == ["questions", "documents", "answers"]
    assert [_guard(plan, replace(known, limit=0.0)) for plan in plans] == [""] * 3
    assert [_guard(plan, None) for plan in plans] == [None] * 3, "documents may have no names or numbers"


def repaired(*moves: Move, guard: str | None = None) -> RepairResult:
    return RepairResult(replace(JOB, model="./my-finetune"), "base", SCORES, guard, list(moves))


def test_the_end_shows_every_move_and_where_the_model_is() -> None:
    result = repaired(move("none"), move("interpolation", passed=True, behaviour=KEPT, share=0.5))
    text = "\n".join(result.lines())
    assert "interpolation towards the base by 0.5" in text
    assert "61 s  passed" in text
    assert "New knowledge is unguarded" in text
    assert "next: recover export run:7 --to ./repaired" in text
    data = result.as_json()
    assert (data["repaired"], data["move"], data["moves"][1]["share"]) == ("run:7", "interpolation", 0.5)


def test_nothing_to_repair_and_nothing_that_helped_are_sentences() -> None:
    nothing = repaired(move("none", passed=True))
    assert nothing.summary == "Nothing to repair."
    assert "export" not in "\n".join(nothing.lines())
    failed = repaired(move("none"), move("interpolation", share=0.0), move("opd"))
    assert "interpolation: no share helps" in "\n".join(failed.lines())
    assert move("interpolation").label() == "interpolation: not tried"
    assert move("average", share=0.5).label() == "training, averaged with the base by 0.5"
    assert move("average").label() == "average: not tried"
    assert failed.summary.startswith("No move passed the gate: ")
    assert failed.as_json()["repaired"] is None


def test_a_failed_repair_says_what_to_try_next() -> None:
    """By the training that came nearest: it says nothing of one that did worse."""
    nearest = NextAttempt(("more rows of texts by the base",), "", "--set distill.texts=0.4")
    other = NextAttempt(("more steps",), "", "--set distill.steps=80")
    near = replace(move("answers"), scores=SCORES | {"retention": 0.95}, next_attempt=nearest)
    failed = repaired(move("none"), near, replace(move("opd"), next_attempt=other))
    assert failed.lines()[-1] == (
        "next: the same `recover repair` with more rows of texts by the base: --set distill.texts=0.4"
    )
    asked_more = NextAttempt(("more items",), "", "--limit 6604")
    average = replace(move("average", share=0.5), next_attempt=asked_more)
    average = replace(average, verdict=replace(average.verdict, outcome="inconclusive"))
    undecided = replace(failed, moves=[*failed.moves, average])
    assert undecided.lines()[-1].endswith("the same `recover repair` with more items: --limit 6604")
    assert failed.as_json()["next_attempt"] == "--set distill.texts=0.4"
    assert "recover cycle --docs" in replace(failed, job=WITH_DOCUMENTS).lines()[-1]
    passed = replace(failed, moves=[*failed.moves[:2], move("opd", passed=True)])
    assert passed.as_json()["next_attempt"] is None
    assert not any("the same command" in line for line in passed.lines())


def knows(passed: int, asked: int = 100) -> Result:
    return result([n < passed for n in range(asked)], "closed_book", "knowledge")


def test_a_move_is_held_to_what_the_fine_tune_knew_also_behind_another_move() -> None:
    """A few steps for the ends of replies may cost knowledge; what begins with them must bring it back."""
    begun_there, held, learned_more = (
        Cycle(None, replace(JOB, student=None), known=known)._others([knows(2)], [knows(before)], [knows(55)])
        for known, before in ((None, 55), (0.8, 55), (0.5, 90))
    )
    assert (begun_there.best_knowledge, held.best_knowledge, learned_more.best_knowledge) == (0.55, 0.8, 0.5)
    assert not begun_there.fails(Settings().gate)
    assert held.fails(Settings().gate)
    assert not learned_more.fails(Settings().gate), "what a move learned beyond the fine-tune need not be kept"


def test_an_attempt_that_goes_on_from_a_rejected_one_is_held_to_the_mid_trained_model(project: Project) -> None:
    """Else the knowledge that the first attempt lost would be gone from the limit, too."""
    cycle, number = project.tracker.open_cycle(project.id)
    midtrained, other = (
        project.tracker.checkpoint(project.id, "midtrained", name, parent=project.clean.id, cycle=cycle)
        for name in ("m1", "m2")
    )
    first = project.tracker.checkpoint(project.id, "recovered", "r1", parent=midtrained, cycle=cycle)
    for checkpoint, passed in ((midtrained, 90), (first, 60), (other, 99)):
        store_results(project, project.reader.checkpoint(checkpoint), None, "key", [knows(passed)])
    attempt = Cycle(project, replace(JOB, student=first), cycle=cycle, cycle_number=number)
    others = attempt._others([knows(2)], [knows(60)], [knows(59)])
    assert others.best_knowledge == 0.9
    assert others.fails(Settings().gate)
    fewer = knows(49, 50)
    assert attempt._others([knows(2)], [fewer], [fewer]).best_knowledge == 1.0, "all of these 50, it knew"
    outside = Cycle(project, replace(JOB, student=project.tracker.checkpoint(project.id, "external", "./mine")))
    assert outside._others([knows(2)], [knows(60)], [knows(59)]).best_knowledge == 0.6
    assert Cycle(project, replace(JOB, student=midtrained)).known_before(knows(90)) == []


@pytest.mark.parametrize(
    ("base", "fine_tune", "now", "passed"),
    [
        (0.4, 0.6, 0.5901, True),  # 95 % of what it gained
        (0.4, 0.6, 0.5899, False),
        *((0.12, fine_tune, now, True) for fine_tune in (0.05, 0.12, 0.125) for now in (fine_tune, 0.04)),
    ],
)
def test_likelihood_is_judged_by_what_the_fine_tune_gained(
    base: float, fine_tune: float, now: float, passed: bool
) -> None:
    """Preferences often make the preferred answers less likely; a loss of that is no loss of knowledge."""
    answers = graded([now] * 4, "answers", "knowledge", "likelihood")
    assert judge_knowledge(answers, 0.95, fine_tune, "gate.keep_knowledge", floor=base).passed is passed


@pytest.mark.parametrize(("objection", "decision"), [("", "promoted"), ("its replies do not end", "rejected")])
def test_a_move_that_passes_the_gate_is_not_promoted_if_its_replies_do_not_end(objection: str, decision: str) -> None:
    decided = list[Any]()
    tracker = SimpleNamespace(promote=lambda *row: decided.append(row))
    reader = SimpleNamespace(promotions=lambda project: [])
    project = SimpleNamespace(id=1, tracker=tracker, reader=reader)
    promoted, text = Cycle(project, JOB, objection=lambda checkpoint: objection)._decide(
        SimpleNamespace(id=7), verdict(KEPT, passed=True)
    )
    assert (promoted, decided[0][3]) == (decision == "promoted", decision)
    assert text == (f"not promoted: {objection}" if objection else "promoted")
    assert not objection or objection in decided[0]


def test_a_move_that_was_measured_again_is_decided_again_and_else_keeps_its_decision(project: Project) -> None:
    recovered = project.reader.checkpoint(record_checkpoint(project, None, 4))
    lost, kept = verdict(LOST, passed=False), verdict(KEPT, passed=True)
    diverged = replace(lost, knowledge=replace(LOST, value=math.nan))
    for _ in range(2):  # the record has no NaN
        assert Cycle(project, JOB)._decide(recovered, diverged) == (False, "not promoted")
    assert len(project.reader.promotions(project.id)) == 1
    assert Cycle(project, JOB)._decide(recovered, kept) == (True, "promoted")
    assert Cycle(project, JOB)._decide(recovered, lost)[0] is True, "what was promoted stays promoted"
    assert len(project.reader.promotions(project.id)) == 2
    project.tracker.promote(project.id, None, recovered.id, "rejected", "ada", "it stutters")
    assert Cycle(project, JOB)._decide(recovered, kept)[0] is False, "a person has decided since"
    undecided = project.reader.checkpoint(record_checkpoint(project, None, 5))
    project.tracker.promote(project.id, None, undecided.id, "promoted", "ada", "it reads well")
    assert Cycle(project, JOB)._decide(undecided, lost)[0] is True, "before there was a verdict"


def test_an_attempt_that_would_drop_a_promoted_cycle_is_left_to_a_person(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    older = project.tracker.checkpoint(project.id, "midtrained", "m1", parent=project.clean.id, cycle=cycle)
    current = promoted_cycle(project)
    recovered = project.reader.checkpoint(record_checkpoint(project, cycle, 4, parent=older))
    promoted, text = Cycle(project, JOB)._decide(recovered, verdict(KEPT, passed=True))
    assert not promoted
    assert project.current.id == current.id
    assert "it has not learned cycle 2, as the current model has" in project.reader.promotions(project.id)[0].why
    assert verdict(KEPT, passed=True).headline(text).startswith("Not promoted: it has not learned cycle 2, as")
    assert Cycle(project, JOB)._decide(recovered, verdict(KEPT, passed=True)) == (False, text), "when it is resumed"
    third = project.reader.checkpoint(record_checkpoint(project, cycle, 5, parent=older))
    answered = Cycle(project, JOB, answer=Answer(True, "a person"))._decide(third, verdict(KEPT, passed=True))
    assert answered == (True, "promoted")


def advised(job: Job, judged: Verdict, steps: int, known: float | None = None, *recovered: Result) -> str | None:
    """The flags that are advised after a move of so many steps, which its probes ended."""
    distilled = SimpleNamespace(steps=steps, stopped="probes")
    outcome = SimpleNamespace(distilled=distilled, verdict=judged, clean=[], recovered=recovered)
    advice = _advice(job, outcome, known)
    return advice.flags if advice else None


def test_what_a_repair_advises_changes_something() -> None:
    """Rows of documents only where there are any, and only more steps than were planned."""
    short = replace(verdict(KEPT, passed=False), knowledge=Judgement(False, 0.5, 0.5, 0.6, 100))
    assert "distill.steps=15" in str(advised(JOB, short, 30))
    assert "distill.documents=0.2" in str(advised(WITH_DOCUMENTS, short, 30))
    lost, probed = verdict(LOST, passed=False), chosen(JOB, steps=100, probe_every=10)
    assert advised(probed, lost, 30) is None, "the same probes would end it as early again"
    assert advised(probed, lost, 100) == "--set distill.steps=200"
    limited = replace(chosen(JOB, steps=100, probe_every=0, max_minutes=5.0), given={"distill.max_minutes": 5.0})
    assert advised(limited, lost, 30) == "--set distill.max_minutes=none --set distill.steps=100"
    came_back_lower = replace(lost, behaviour=replace(LOST, came_back=-0.1))
    assert advised(limited, came_back_lower, 30) is None, "a lower rate would be that of all moves"


def test_what_was_moved_without_a_training_may_need_more_items_and_nothing_else() -> None:
    unsure = verdict(replace(LOST, unsure=True, needed=6604, needed_limit=6604), passed=False)
    averaged = chosen(JOB, steps=0)
    limited = replace(averaged, given={"distill.max_minutes": 5.0})
    for job in (averaged, limited):  # a person's limit of the time is lifted only for a longer training
        assert advised(job, unsure, 0) == "--limit 6604"
    assert advised(averaged, verdict(LOST, passed=False), 0) is None


@pytest.mark.parametrize(("known", "is_advised"), [(0.056, True), (0.2, False)])
def test_where_far_more_is_known_than_the_fine_tune_knew_fewer_rows_of_documents_are_advised(
    known: float, is_advised: bool
) -> None:
    short = replace(verdict(KEPT, passed=False), retention=Judgement(False, -0.041, -0.059, -0.045, 641, unsure=True))
    after = graded([0.297], "answers", "knowledge", "likelihood")
    flags = str(advised(chosen(WITH_DOCUMENTS, documents=0.2, texts=0.2), short, 80, known, after))
    assert ("--set distill.documents=0.05" in flags) == is_advised
    assert "--set distill.texts=0.4" in flags
