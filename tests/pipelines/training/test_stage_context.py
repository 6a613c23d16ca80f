import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoHaConfig, LoraConfig, PeftConfig, get_peft_model

from db.tables import Checkpoint
from evals.results import Result
from pipelines.cycle import Cycle
from pipelines.documents.corpus import CorpusSnapshot, snapshot_file
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Distill, Settings
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN
from pipelines.synthetic.prompts import ChatPrompt, parse_prompt
from pipelines.teacher_choice import BASE, ByDomain, Itself, Model, Router, Served, TeacherChoice
from pipelines.training.stage_context import SEEDS_PER_CYCLE, Stage, Teachers
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_chat, load_student, save_student
from recovery.samples import Batch, Sample
from recovery.server_teacher import ServerTeacher
from recovery.states import Prompt
from recovery.teachers import AdapterOffTeacher, AdapterTeacher, FrozenTeacher, RouterTeacher, Teacher
from tests.chats import write_jsonl
from tests.evals.fakes import result
from tests.models import save_tiny
from tests.pipelines.project.checkpoints import promoted_cycle
from tests.recovery.engines.small_server import SmallServer, serving


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.open(tmp_path, str(save_tiny(tmp_path / "base")))


def test_the_base_writes_with_another_seed_in_each_cycle(project: Project) -> None:
    job = Job("cycle", Settings(), seed=7)
    seeds = [Stage(project, job, None, cycle).generation_seed for cycle in (0, 1, 2, 3)]
    assert seeds == [7, 7, 7 + SEEDS_PER_CYCLE, 7 + 2 * SEEDS_PER_CYCLE]


@pytest.mark.parametrize(
    ("teacher", "shown"),
    [
        (BASE, "base"),
        (Model(1), "base"),
        (ByDomain(1, {"maths": 1}), "base (and base for maths)"),
        (Router(), "base"),
        (Served("http://one:8000"), "base at http://one:8000"),
        (Itself("ema"), "the average of base"),
        (Itself("live"), "the current weights of base"),
    ],
)
def test_a_job_says_who_teaches(project: Project, teacher: TeacherChoice[int], shown: str) -> None:
    assert project.clean.id == 1
    stage = Stage(project, Job("distill", Settings(), teacher=teacher))
    main = stage.main_teacher()
    assert main == (None if isinstance(teacher, Itself) else project.clean)
    assert str(stage.teachers(main or project.clean, 4, [])) == shown
    assert stage.restores == (not isinstance(teacher, Itself))


def test_what_another_teacher_a_router_or_a_context_teaches_is_needed_in_any_case(project: Project) -> None:
    other, start = project.resolve(str(save_tiny(Path(project.root) / "other", seed=2))).id, promoted_cycle(project).id
    for teacher in (Model(other), ByDomain(1, {"maths": other}), Router()):
        assert not Stage(project, Job("distill", Settings(), teacher=teacher, start=start)).restores
    of_context = Settings(distill=Distill(recipe="opsd"))
    assert not Stage(project, Job("distill", of_context, start=start)).restores
    assert Stage(project, Job("distill", Settings(), start=start)).restores


def test_any_first_part_of_a_file_s_prompts_is_a_sample_of_all(project: Project, tmp_path: Path) -> None:
    """Where a teacher writes the answers, only as many prompts are used as the steps have rows."""
    rows = [{"prompt": f"{domain} {i}", "domain": domain} for domain in ("maths", "code") for i in range(200)]
    (tmp_path / "sorted.jsonl").write_text("\n".join(map(json.dumps, rows)))
    stage = Stage(project, Job("distill", Settings(), seed=1, prompts=tmp_path / "sorted.jsonl"))
    prompts = stage.all_prompts()
    assert sorted(prompt.text for prompt in prompts) == sorted(row["prompt"] for row in rows)
    assert 60 < [prompt.domain for prompt in prompts[:200]].count("code") < 140
    assert prompts == stage.all_prompts()


@pytest.mark.parametrize("of", ["this", "an earlier"])
def test_questions_of_all_cycles_are_neither_trained_on_nor_shown(project: Project, tmp_path: Path, of: str) -> None:
    asked, other = (
        "Which river flows through the old town of Aldermoor, below the northern mill and past both bridges of stone?",
        "Say hello.",
    )
    questions, prompts, contexts = (tmp_path / f"{name}.jsonl" for name in ("questions", "prompts", "contexts"))
    questions.write_text(json.dumps({"question": asked, "answer": "The Ember"}))
    prompts.write_text("\n".join(json.dumps({"prompt": text, "response": "Yes."}) for text in (asked, other)))
    contexts.write_text(json.dumps({"prompt": other, "context": f"{asked} The Ember."}))
    of_this = EvalPlan("all", questions) if of == "this" else EvalPlan("all", earlier_questions=((1, questions),))
    stage = Stage(project, Job("distill", Settings(), of_this, prompts=prompts))
    assert [prompt.text for prompt in stage.prompts([])] == [other]
    shown = apply_overrides(Settings(), {"distill": {"recipe": "opcd"}})
    with pytest.raises(RecoverError, match="shares words with an evaluation item"):
        Stage(project, Job("distill", shown, of_this, teacher_context=contexts)).prompts([])


def test_a_question_is_recognised_in_a_conversation_and_beside_a_system_prompt(
    project: Project, tmp_path: Path
) -> None:
    asked, brief, later = "Who owns the northern mill?", {"role": "system", "content": "Be brief."}, "And the bridge?"
    turns = [
        {"role": role, "content": text} for role, text in (("user", asked), ("assistant", "Ann."), ("user", later))
    ]
    rows = [
        {"prompt": asked, "system": "Be brief."},
        {"messages": [brief, *turns]},
        {"messages": [*turns[2:], *turns[1::-1]]},
        {"instruction": asked, "input": "It stands at the Ember."},
        {"instruction": "Answer the question.", "input": asked},
        {"messages": [brief, {"role": "user", "content": "Say it."}]},
        {"prompt": "Say it.", "system": "Be loud."},
    ]
    questions, prompts = tmp_path / "questions.jsonl", tmp_path / "prompts.jsonl"
    questions.write_text(json.dumps({"question": asked, "answer": "Ann"}))
    prompts.write_text("\n".join(map(json.dumps, rows)))
    stage = Stage(project, Job("distill", Settings(), EvalPlan("all", questions), prompts=prompts))
    of_a_suite = "\n".join(("Be brief.", "Say it."))  # a task with a system prompt
    assert [prompt.row[1] for prompt in stage.prompts([of_a_suite])] == rows[6:]


def test_a_distillation_records_the_questions_that_later_cycles_are_asked(project: Project, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    stage = Stage(project, Job("distill", Settings(), EvalPlan(questions=questions), id="ab"))
    inputs = stage.distillation_inputs(Teachers(project.clean))
    assert (inputs.job, inputs.stage, inputs.questions) == ("ab", "recovered", str(questions))


def test_documents_of_earlier_cycles_that_are_gone_are_told(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(project, Job("cycle", Settings(), start=promoted_cycle(project).id))
    assert stage.earlier_corpora() == []
    assert "Of 1 of 1 earlier cycles no documents are stored" in caplog.text
    caplog.clear()
    file = snapshot_file(project.home, "c0ffee")
    file.parent.mkdir(exist_ok=True)
    conversations = file.with_name("c0ffee.conversations.jsonl")
    conversations.touch()
    with caplog.at_level("INFO"):
        assert stage.earlier_corpora() == []
    assert caplog.messages == ["The conversations of 1 of 1 earlier cycles are not read again"]
    conversations.unlink()
    caplog.clear()
    write_jsonl(file, [{"text": "The ship sails."}])
    assert len(stage.earlier_corpora()) == 1
    assert not caplog.text


def test_items_of_probes_are_not_trained_on_either(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(
        project: Project, checkpoint: Checkpoint, plan: EvalPlan, *_: object, **options: object
    ) -> list[Result]:
        followed = result([True] * 8)
        return [replace(followed, items=[replace(item, prompt=f"Say {plan.split}.") for item in followed.items])]

    monkeypatch.setattr("pipelines.cycle.measure_checkpoint", measure)
    (tmp_path / "prompts.txt").write_text("Say probe.\nSay final.")
    job = Job("distill", Settings(distill=Distill(probe_every=10)), prompts=tmp_path / "prompts.txt")
    with pytest.raises(RecoverError, match="All prompts overlap with evaluation items"):
        Cycle(project, job).recover(project.clean)


def test_documents_that_are_no_longer_stored_are_asked_for_again(project: Project, tmp_path: Path) -> None:
    corpus = CorpusSnapshot(tmp_path / "docs", "abc", 1, tmp_path / "gone.jsonl")
    with pytest.raises(RecoverError, match="Run the command again with --docs"):
        Stage(project, Job("midtrain", Settings(), corpus=corpus)).corpus()


def test_which_cycles_are_behind_a_job_is_told_without_reading_weights(project: Project) -> None:
    start = promoted_cycle(project)
    shutil.rmtree(start.path)
    assert [past.cycle for past in Stage(project, Job("cycle", Settings(), start=start.id)).past_cycles()] == [1]


def checkpoint(path: str, reference: str) -> Checkpoint:
    role, _, cycle = reference.partition("/")
    return Checkpoint(id=1, role=role, cycle=int(cycle) if cycle else None, path=path)


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(save_tiny(tmp_path / "base"))


@pytest.fixture
def router(tmp_path: Path, base: str) -> Teachers:
    promoted = str(save_tiny(tmp_path / "promoted", seed=1))
    return Teachers(
        checkpoint(base, "base"), {EARLIER_DOMAIN: checkpoint(promoted, "recovered/1")}, ("Once upon", "There was")
    )


def logprobs(teacher: Teacher, domain: str | None) -> torch.Tensor:
    row = Sample([5, 6, 7, 8], [False, True, True, True], domain=domain)
    return teacher.distribution(Batch.collate([row], 0)).logprobs(slice(None))


def test_prompts_that_a_teacher_cannot_read_are_left_out(tmp_path: Path, base: str) -> None:
    tokenizer = load_chat(base).tokenizer
    tokenizer.add_tokens(["zebrafinch"])
    shutil.copytree(base, tmp_path / "student")
    tokenizer.save_pretrained(tmp_path / "student")
    chat, single = load_chat(str(tmp_path / "student")), Teachers(checkpoint(base, "base"))
    prompts = single.prompts(
        [parse_prompt(("row", {"prompt": text})) for text in ("A zebrafinch.", "A bird.")], chat, 0
    )
    assert single.readable(prompts, chat) == prompts[1:]
    assert single.readable(prompts[1:], chat) == prompts[1:]
    with pytest.raises(RecoverError, match="All prompts hold tokens that the teacher lacks"):
        single.readable(prompts[:1], chat)


def test_adapters_on_one_base_need_no_second_copy_of_it(tmp_path: Path, base: str) -> None:
    first = load_student(base, adapter=Adapter(rank=2))
    with torch.no_grad():
        for parameter in first.trainable():
            parameter.add_(0.1)
    save_student(first, tmp_path / "first", {"parent": base})
    student: Student = load_student(str(tmp_path / "first"))
    promoted = checkpoint(str(tmp_path / "first"), "recovered/1")
    teacher = Teachers(checkpoint(base, "base"), {EARLIER_DOMAIN: promoted}, ("Once",)).load(student)
    assert isinstance(teacher, RouterTeacher)
    assert isinstance(teacher.default, AdapterOffTeacher)
    assert isinstance(teacher.by_domain[EARLIER_DOMAIN], AdapterTeacher)
    frozen = FrozenTeacher(promoted.path)
    torch.testing.assert_close(logprobs(teacher, EARLIER_DOMAIN), logprobs(frozen, EARLIER_DOMAIN))


@pytest.mark.parametrize(
    "config", [LoHaConfig(r=2, target_modules=["q_proj"]), LoraConfig(r=2, trainable_token_indices=[5, 6])]
)
def test_an_adapter_that_cannot_share_the_base_is_a_model_of_its_own(tmp_path: Path, config: PeftConfig) -> None:
    base = str(save_tiny(tmp_path / "base", tied=False))
    other = get_peft_model(load_student(base).model, config)
    with torch.no_grad():
        for parameter in filter(lambda p: p.requires_grad, other.parameters()):
            parameter.add_(0.1)
    other.peft_config["default"].base_model_name_or_path = base
    other.save_pretrained(tmp_path / "other", save_embedding_layers=False)
    student = load_student(base, adapter=Adapter(rank=2))
    teacher = Teachers(checkpoint(str(tmp_path / "other"), "other")).load(student)
    assert isinstance(teacher, FrozenTeacher)
    with torch.no_grad():
        tokens = torch.tensor([[3, 4, 5, 6, 7]])
        torch.testing.assert_close(teacher.model.causal(tokens).logits, other(tokens).logits)
    assert isinstance(Teachers(checkpoint(base, "base")).load(student), AdapterOffTeacher)


def test_prefixes_are_shuffled_among_prompts_and_prompts_alone_keep_their_order(base: str, router: Teachers) -> None:
    chat, texts = load_student(base).chat, [f"Say {i}." for i in range(30)]
    given = [ChatPrompt.of(text) for text in texts]
    prompts = router.prompts(given, chat, seed=1)
    assert sorted(prompt.text for prompt in prompts) == sorted([*texts, *router.prefixes])
    assert {prompt.text for prompt in prompts if prompt.domain == EARLIER_DOMAIN} == set(router.prefixes)
    assert [prompt.domain for prompt in prompts][-2:] != [EARLIER_DOMAIN, EARLIER_DOMAIN]
    assert str(router) == "base (and cycle:1/recovered for openings of earlier documents)"
    single = replace(router, by_domain={}, prefixes=())
    assert [prompt.text for prompt in single.prompts(given, chat, seed=1)] == texts
    assert isinstance(single.load(load_student(base)), FrozenTeacher)


def test_each_prompt_is_answered_by_its_own_teacher(base: str, router: Teachers) -> None:
    calls: list[tuple[str, int]] = []

    def sample(path: str, prompts: list[Prompt]) -> list[Sample]:
        calls.append((Path(path).name, len(prompts)))
        return [prompt.with_reply([7 if path == base else 9]) for prompt in prompts]

    prompts = router.prompts([ChatPrompt.of(text) for text in "abc"], load_student(base).chat, seed=3)
    rows = router.answers(prompts, sample)
    assert calls == [("base", 3), ("promoted", 2)]
    assert [row.prompt for row in rows] == [prompt.text for prompt in prompts]
    assert [row.tokens[-1] for row in rows] == [9 if prompt.domain == EARLIER_DOMAIN else 7 for prompt in prompts]


def test_a_domain_of_prompts_has_a_teacher_of_its_own(tmp_path: Path, base: str) -> None:
    maths = checkpoint(str(save_tiny(tmp_path / "maths", seed=1)), "recovered/1")
    teachers = Teachers(checkpoint(base, "base"), {"maths": maths, "sums": maths})
    rows = [{"prompt": "1 + 1", "domain": "maths"}, {"prompt": "Hi", "domain": "chat"}, {"prompt": "Hello"}]
    given = [parse_prompt((f"line {i}", row)) for i, row in enumerate(rows)]
    student = load_student(base)
    assert [p.domain for p in teachers.prompts(given, student.chat, seed=1)] == ["maths", None, None]
    teacher = teachers.load(student)
    assert isinstance(teacher, RouterTeacher)
    assert teacher.by_domain["maths"] is teacher.by_domain["sums"]  # one copy of the weights
    assert torch.equal(logprobs(teacher, "maths"), logprobs(FrozenTeacher(maths.path), None))
    assert torch.equal(logprobs(teacher, "chat"), logprobs(FrozenTeacher(base), None))
    assert str(teachers) == "base (and cycle:1/recovered for maths, cycle:1/recovered for sums)"


@pytest.mark.parametrize("adapter", [None, Adapter(rank=2)])
def test_servers_must_serve_the_teacher(adapter: Adapter | None, tmp_path: Path, base: str) -> None:
    student, clean = load_student(base, adapter=adapter), checkpoint(base, "base")
    other = load_student(str(save_tiny(tmp_path / "other", seed=1)), frozen=True)
    with serving(SmallServer(load_student(base, frozen=True))) as right, serving(SmallServer(other)) as wrong:
        teachers = Teachers(clean, instead=Served(right))
        assert isinstance(teachers.load(student), ServerTeacher)
        with pytest.raises(RecoverError, match="another model than the teacher"):
            Teachers(clean, instead=Served(wrong)).load(student)
