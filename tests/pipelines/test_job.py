import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.tables import Run, RunInputs
from pipelines.documents.corpus import CorpusSnapshot, snapshot_file
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.job import Job, unfinished_jobs
from pipelines.project.locations import relocate
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from pipelines.teacher_choice import BASE, NAMED, ByDomain, Model, Served, TeacherChoice, named_checkpoints
from recovery.errors import RecoverError

SHARES = st.floats(0, 0.4)
IDS = st.integers(1, 9)
TEACHERS: st.SearchStrategy[TeacherChoice[int]] = st.one_of(
    st.sampled_from([BASE, *NAMED.values()]),
    st.builds(Model, IDS),
    st.builds(ByDomain, IDS, st.dictionaries(st.text(min_size=1), IDS, min_size=1)),
    st.builds(Served, st.text(min_size=1)),
)
SETTINGS = st.builds(
    lambda answers, texts, earlier, warm_start, rank, beta, epochs: apply_overrides(
        Settings(lora_rank=rank),
        {
            "midtrain": {"mix": {"answers": answers, "texts": texts, "earlier": earlier}},
            "distill": {"warm_start": warm_start, "beta": beta, "epochs": epochs},
        },
    ),
    SHARES,
    SHARES,
    SHARES,
    SHARES | st.sampled_from(["off", "auto", "default"]),
    st.integers(0, 128),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(1, 4),
)


def snapshot(home: Path) -> CorpusSnapshot:
    return CorpusSnapshot(Path("/d"), "abc", 2, home / "documents" / "abc.jsonl")


def test_a_job_is_read_back_unchanged_until_it_is_deleted(tmp_path: Path) -> None:
    first = Job("midtrain", Settings(lora_rank=0), seed=3, corpus=snapshot(tmp_path), start=1).save(tmp_path)
    second = Job("distill", Settings(), EvalPlan(suite="behaviour")).save(tmp_path)
    assert unfinished_jobs(tmp_path) == [first, second]
    first.delete(tmp_path)
    assert unfinished_jobs(tmp_path) == [second]
    second.delete(tmp_path)
    second.delete(tmp_path)  # as after a kill between its end and its deletion
    assert unfinished_jobs(tmp_path) == []


def test_a_file_that_is_no_job_is_a_one_sentence_error(tmp_path: Path) -> None:
    job = Job("midtrain", Settings(), id="bad").save(tmp_path)
    file = tmp_path / "jobs" / "bad.json"
    without_settings = {name: value for name, value in job.as_json().items() if name != "settings"}
    changed = ({"settings": {"rank": 1}}, {"teacher": {"kind": "model", "checkpoint": "run:1"}}, {"teacher": 1})
    contents = [("{", ""), (json.dumps(without_settings), "unknown or missing: settings")]
    contents.append((json.dumps(job.as_json() | {"limit": 3}), "unknown or missing: limit"))
    contents += [(json.dumps(job.as_json() | change), next(iter(change))) for change in changed]
    for content, reason in contents:
        file.write_text(content)
        with pytest.raises(RecoverError, match="Delete the file and run the command again") as refused:
            unfinished_jobs(tmp_path)
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)


@given(SETTINGS, st.none() | IDS, st.none() | IDS, TEACHERS, st.booleans(), st.sampled_from(["cycle", "repair"]))
def test_json_round_trip(
    settings: Settings,
    start: int | None,
    student: int | None,
    teacher: TeacherChoice[int],
    has_prompts: bool,
    command: str,
) -> None:
    home = Path("/home/ada/project/.recover")
    file = home / "questions" / "q.jsonl"
    plan = EvalPlan("all", file, limit=5, secondary_limit=3, split="final", earlier_questions=((1, home / "q"),))
    job = Job(
        command,
        settings,
        plan,
        seed=4,
        given={"distill.rows": 8, "midtrain.mix.texts": 0.5},
        corpus=snapshot(home) if start else None,
        start=start,
        student=student,
        teacher=teacher,
        prompts=home / "cache" / "prompts.jsonl" if has_prompts else None,
    )
    values = json.loads(json.dumps(job.as_json()))
    assert Job.from_json(values, home) == job
    assert isinstance(values["teacher"]["kind"], str)
    assert job.checkpoints == {id for id in (start, student, *named_checkpoints(teacher)) if id}


def test_files_of_a_project_that_was_moved_or_copied_are_located_in_its_new_folder(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / ".recover", tmp_path / "new" / ".recover"
    for name in ("questions", "cache"):
        (new / name).mkdir(parents=True)
        (new / name / "file.jsonl").touch()
    asked, found = (home / "questions" / "file.jsonl" for home in (old, new))
    gone = tmp_path / "gone.jsonl"
    plan = EvalPlan(questions=asked, ifeval_data=Path("/data/ifeval.jsonl"), earlier_questions=((1, asked), (2, gone)))
    job = Job(
        "cycle", defaults_for(SMALL_MODEL_PARAMETERS), plan, corpus=snapshot(old), prompts=old / "cache/file.jsonl"
    )
    moved = Job.from_json(job.as_json(), new)
    assert moved.eval_plan == replace(plan, questions=found, earlier_questions=((1, found), (2, gone)))
    assert moved.prompts == new / "cache" / "file.jsonl"
    assert (moved.corpus.file, moved.corpus.path) == (new / "documents" / "abc.jsonl", Path("/d"))
    asked.parent.mkdir(parents=True)
    asked.touch()
    assert Job.from_json(job.as_json(), new).eval_plan.questions == found, "a copy does not read from the original"
    missing = asked.with_name("other.jsonl")
    assert relocate(new, missing) == missing


def test_documents_go_with_the_job_unless_they_are_to_be_kept_or_others_need_them(tmp_path: Path) -> None:
    """And with them what was made from them."""
    cache, documents = tmp_path / "cache", tmp_path / "documents"
    stored = [snapshot_file(tmp_path, "ab12"), documents / "ab.conversations.jsonl"]
    stored += [cache / name for name in ("tokens-ab12-1.u32", "passage-questions-ab12-1.json")]
    of_others = cache / "tokens-cd34-1.u32"
    for file in (*stored, of_others):
        file.parent.mkdir(exist_ok=True)
        file.write_text("text")
    job = Job("cycle", Settings(keep_documents=False), corpus=CorpusSnapshot(Path("docs"), "ab12", 1, stored[0]))
    job = replace(job, training_file=stored[1]).save(tmp_path)

    def kept(*runs: Run, by: Job = job) -> list[bool]:
        by.delete(tmp_path, runs)
        return [file.exists() for file in stored]

    assert kept(by=replace(job, settings=Settings(keep_documents=True))) == [True] * 4
    unfinished = replace(job, id="other", settings=Settings()).save(tmp_path)
    assert kept() == [True] * 4
    unfinished.delete(tmp_path)
    inputs = RunInputs(corpus="ab12", conversations=f"/moved/.recover/documents/{stored[1].name}")
    assert kept(Run(settings={"keep_documents": True}, inputs=inputs)) == [True] * 4
    assert kept(Run(settings={"keep_documents": False}, inputs=inputs)) == [False] * 4
    assert of_others.exists()
