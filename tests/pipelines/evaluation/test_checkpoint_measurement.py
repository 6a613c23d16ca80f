import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from evals.results import Item, Result, main_result
from evals.splits import secondary_task_limit, split_of
from evals.subject import Answer, Subject
from evals.suites.config import load_suites
from pipelines.evaluation import evaluation_plan
from pipelines.evaluation.checkpoint_measurement import (
    StopRule,
    comparable_results,
    is_measured,
    measure_checkpoint,
    store_results,
)
from pipelines.evaluation.compare import compare_results
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.project.project import Project, weights_hash
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import Student
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject
from tests.pipelines.options import recover

pytestmark = pytest.mark.usefixtures("short_replies")


def test_plans_with_different_results_have_different_keys() -> None:
    plans = [EvalPlan(), EvalPlan(limit=300), EvalPlan(limit=300, secondary_limit=200), EvalPlan(split="probe")]
    assert len({plan.key("weights", "retention", {}) for plan in plans}) == len(plans)


def test_local_data_of_a_benchmark_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(suite: str, **named: str) -> str:
        return EvalPlan(suite).key("weights", suite, named)

    from_the_hub = key("piqa")
    monkeypatch.setenv("RECOVER_BENCHMARK_DATA", str(tmp_path))
    assert key("piqa") == from_the_hub
    (tmp_path / "piqa").mkdir()
    keys = [from_the_hub]
    for rows in ("1", "2"):
        (tmp_path / "piqa" / "validation.jsonl").write_text(rows)
        keys += [key("piqa"), key("retention", retention="general,piqa")]
    assert len(set(keys)) == 5


def test_the_verdict_has_all_items_of_retention_unless_probes_measure_it() -> None:
    keys = {split: EvalPlan(split=split).key("weights", "retention", {}) for split in ("all", "final", "probe")}
    assert keys["final"] == keys["all"] != keys["probe"]
    probed = [EvalPlan(probe_all=True, split=split).key("weights", "retention", {}) for split in ("all", "final")]
    assert probed[0] == keys["all"] != probed[1]
    subject = fake_subject("", likelihood=lambda text: -1.0)
    [final] = EvalPlan(split="final", limit=30).run_suite(subject, "retention", {})
    assert {split_of(item.key) for item in final.items} == {"probe", "final"}


def test_retention_is_measured_for_every_base_unless_it_names_nothing() -> None:
    assert EvalPlan().suites({}) == ["behaviour", "retention"]
    assert EvalPlan().suites({"retention": "lab"}) == ["behaviour", "retention"]
    assert EvalPlan().suites({"retention": ""}) == ["behaviour"]


def test_the_key_of_general_knowledge_changes_with_its_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases: list[dict[str, str]] = [{}, {"retention": "general,gsm8k"}, {"retention": "lab"}]

    def keys() -> list[str]:
        return [EvalPlan().key("weights", suite, named) for named in bases for suite in ("behaviour", "retention")]

    before = keys()
    (tmp_path / "facts.txt").write_text("other facts")
    monkeypatch.setattr(evaluation_plan, "FACTS", tmp_path / "facts.txt")
    changed = [a != b for a, b in zip(before, keys(), strict=True)]
    assert changed == [False, True, False, True, False, False]


def test_a_changed_task_file_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = Path(shutil.copytree(BASE, tmp_path / "base"))
    (base / "recover.json").write_text(json.dumps({"suites": {"behaviour": "checks.jsonl", "retention": ""}}))

    def evaluate(max_words: int) -> tuple[dict, str]:
        task = {"prompt": "Name a metal.", "checks": [{"max_words": max_words}]}
        (base / "checks.jsonl").write_text(json.dumps(task))
        ran = recover("eval", "base", "--base", base, "--json")
        [evaluation] = json.loads(ran.stdout)["evaluations"]
        return evaluation, ran.stderr

    first, _ = evaluate(1000)
    assert first["metrics"]["passed"]["value"] == 1.0
    assert "Reusing the stored results" in evaluate(1000)[1]
    changed, _ = evaluate(0)
    assert changed["metrics"]["passed"]["value"] == 0.0
    assert first["settings"].pop("content") != changed["settings"].pop("content")
    assert first["settings"] == changed["settings"]
    (base / "checks.jsonl").unlink()
    for command in (["eval", "base"], ["distill", "--student", "base"]):
        ran = recover(*command, "--json")
        assert ran.exit_code == 1
        assert f"The file {base / 'checks.jsonl'}, listed under suites in {base / 'recover.json'}" in ran.stderr


def test_few_items_are_not_split(tmp_path: Path) -> None:
    asked = [{"question": f"Who is {n}?", "answer": "Ada"} for n in range(60)]
    questions = write_jsonl(tmp_path / "few.jsonl", asked[:49])
    assert "fewer than 50 questions" in EvalPlan(questions=questions).split_problem({})
    passages = {n: write_jsonl(tmp_path / f"{n}.jsonl", [{"text": f"Text {i}."} for i in range(n)]) for n in (1, 9, 40)}
    problems = [EvalPlan(passages=file).split_problem({}) for file in passages.values()]
    assert [bool(problem) for problem in problems] == [True, True, False]
    tasks = write_jsonl(tmp_path / "one.jsonl", [{"prompt": "Say yes.", "checks": [{"contains": "yes"}]}])
    assert "too few tasks in one.jsonl" in EvalPlan().split_problem({"behaviour": str(tasks)})
    assert EvalPlan().split_problem({"behaviour": "lab"}) == ""
    enough = write_jsonl(tmp_path / "enough.jsonl", asked)
    assert EvalPlan(questions=enough).split_problem({"knowledge": str(tasks)}) == ""  # they replace the task file


def test_whether_the_public_prompts_are_reachable_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable = iter([False, True])
    monkeypatch.setattr(evaluation_plan, "is_public_ifeval_available", lambda named: next(reachable))
    without, with_public = (EvalPlan().with_public_ifeval_checked({}) for _ in range(2))
    assert (without.public_ifeval, with_public.public_ifeval) == (False, True)
    assert without.key("weights", "behaviour", {}) != with_public.key("weights", "behaviour", {})
    assert TypeAdapter(EvalPlan).validate_python(without.to_json()) == without
    own_prompts = EvalPlan(ifeval_data=Path("mine.jsonl"))
    assert own_prompts.with_public_ifeval_checked({}) == own_prompts


def test_a_higher_limit_reaches_what_is_generated_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.suites.suite_measurement.public_ifeval", lambda: [{"key": n} for n in range(541)])
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "Say {n}.", "checks": [{{"contains": "{n}"}}]}}\n' for n in range(120)))
    for plan in (EvalPlan(secondary_limit=300), EvalPlan(limit=100, secondary_limit=300)):
        assert plan.limit_for("behaviour", 541, 100, {}) == 541
        assert plan.limit_for("behaviour", 542, 100, {}) is None
        assert plan.limit_for("behaviour", 90_000, 100, {"behaviour": "lab"}) == 90_000
        assert plan.limit_for("behaviour", 900, 100, {"behaviour": "gsm8k"}) == (900 if plan.limit else None)
        assert plan.limit_for("retention", 600, plan.limit or 641, {}) == 600
        assert plan.limit_for("retention", 900, plan.limit or 641, {}) is None
        of_lab = plan.limit_for("retention", 700, 2 * (plan.limit or 300), {"retention": "lab"})
        assert of_lab == 700, "half of it of each of two tasks"
        assert plan.limit_for("retention", 587, 100, {"retention": "gsm8k"}) == (1174 if plan.limit else None)
        of_group = plan.limit_for("retention", 11_400, 5_700, {"retention": "mmlu"})
        assert of_group == (200 if plan.limit else None), "each of its 57 tasks has as many as the limit says"
        assert plan.limit_for("retention", 110, plan.limit or 120, {"retention": str(rows)}) == 110
        assert plan.limit_for("retention", 121, plan.limit or 120, {"retention": str(rows)}) is None


def test_a_suite_is_stored_as_soon_as_it_is_measured(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, run_suite = EvalPlan(limit=4), EvalPlan.run_suite

    def interrupted(self: EvalPlan, subject: Any, suite: str, *args: Any) -> Any:
        if suite == "behaviour":  # it comes last
            raise KeyboardInterrupt
        return run_suite(self, subject, suite, *args)

    monkeypatch.setattr(EvalPlan, "run_suite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure_checkpoint(project, project.clean, plan, None)
    suites = plan.suites(load_suites(str(BASE)))
    missing = [suite for suite in suites if not is_measured(project, project.clean, replace(plan, suite=suite))]
    assert missing == ["behaviour"]


PLAN = EvalPlan("behaviour", limit=16, secondary_limit=1)
REFUSALS = secondary_task_limit(PLAN.limit, PLAN.secondary_limit)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts the model was asked at once, in each call."""
    counts: list[int] = []
    answer = Subject.answer

    def counting(self: Subject, prompts: Sequence[Any], max_new_tokens: int) -> list[Answer]:
        if len(prompts) != REFUSALS:  # they are not asked in blocks
            counts.append(len(prompts))
        return answer(self, prompts, max_new_tokens)

    monkeypatch.setattr(Subject, "answer", counting)
    return counts


def rule(n: int) -> StopRule:
    return StopRule(4, 16, lambda items: len(items) >= n)


def measure(project: Project, rule: StopRule | None) -> Result:
    return main_result(measure_checkpoint(project, project.clean, PLAN, None, rule=rule), "behaviour")


def test_what_was_asked_is_reused_where_it_is_enough(project: Project, calls: list[int]) -> None:
    first = measure(project, rule(8))
    assert (len(first.items), first.settings["of"]) == (8, 16)
    assert calls == [4, 4]
    assert measure(project, rule(8)).items == measure(project, rule(4)).items == first.items
    assert calls == [4, 4]
    more = measure(project, rule(12))
    assert more.items[:8] == first.items
    assert calls == [4, 4, 4]
    whole = measure(project, None)  # in their own order
    assert len(whole.items) == 16
    assert {item.key: item.passed for item in more.items}.items() <= whole.passed_by_key().items()
    assert calls == [4, 4, 4, 16]
    assert measure(project, rule(8)).items == whole.items  # all of them were asked


def test_one_block_is_asked_where_the_other_suites_fail_anyway(project: Project, calls: list[int]) -> None:
    """The other suites are measured before; their stored results decide the same."""
    plan, seen = replace(PLAN, suite="all"), list[set[str]]()

    def fails_anyway(others: list[Result]) -> bool:
        seen.append({result.suite for result in others})
        return True

    rule = StopRule(4, 16, lambda items: False, fails_anyway)
    for _ in range(2):
        main = main_result(measure_checkpoint(project, project.clean, plan, None, rule=rule), "behaviour")
        assert (len(main.items), main.settings["of"]) == (4, 16)
    assert seen == [{"retention"}] * 2
    assert [n for n in calls if n in (4, 16)] == [4]


def test_an_interruption_costs_at_most_one_block(project: Project, calls: list[int]) -> None:
    def interrupted(items: list[Item]) -> bool:
        if len(items) == 8:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        measure(project, StopRule(4, 16, interrupted))
    [progress] = (project.home / "cache").glob("blocks-*.jsonl")
    assert len(progress.read_text().splitlines()) == 8
    with progress.open("a") as file:
        file.write('{"key": "half a li')
    resumed = measure(project, rule(12))
    assert calls == [4, 4, 4]
    assert not progress.exists()
    again = Project.open(project.root.parent / "again", str(BASE))
    uninterrupted = measure(again, rule(12))
    assert resumed.items == uninterrupted.items
    assert resumed.metrics == uninterrupted.metrics


def test_all_blocks_are_the_whole_measurement(project: Project, calls: list[int]) -> None:
    in_blocks = measure(project, rule(1000))
    assert calls == [4, 4, 4, 4]
    assert measure(project, None).items == in_blocks.items
    assert calls == [4, 4, 4, 4]


def test_the_weights_of_a_model_from_outside_are_hashed_once(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    checkpoint, hashed = project.resolve(str(model)), list[Path]()

    def counting(folder: Path) -> str:
        hashed.append(folder)
        return weights_hash(folder)

    monkeypatch.setattr("pipelines.project.project.weights_hash", counting)
    assert measure_checkpoint(project, checkpoint, PLAN, None, rule=rule(8))
    assert hashed == [model]


def test_a_comparison_pairs_the_prompts_that_both_were_asked(project: Project) -> None:
    few = measure(project, rule(8))
    whole = measure(project, None)
    [comparison] = compare_results([whole], [few])
    assert comparison.pair.n == 8
    [comparable] = comparable_results(project, project.clean, [few])
    assert comparable.items == whole.items
    of_file = replace(few, data="before.jsonl", settings=few.settings | {"content": "ab"})
    store_results(project, project.clean, None, "key", [of_file])
    [renamed] = comparable_results(project, project.clean, [replace(of_file, data="after.jsonl")])
    assert renamed.items == few.items
    of_another_file = replace(few, settings=few.settings | {"content": "the file has changed"})
    assert comparable_results(project, project.clean, [of_another_file]) == []


def test_results_of_another_engine_or_precision_are_neither_reused_nor_paired(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some greedy replies of it differ."""
    few = measure(project, rule(8))
    whole = measure(project, None)
    assert few.settings["engine"] == whole.settings["engine"] == "transformers torch.float32"
    assert is_measured(project, project.clean, PLAN, "transformers")
    assert not any(is_measured(project, project.clean, PLAN, engine) for engine in ("vllm", "http://localhost:1"))
    of_vllm = replace(few, settings=few.settings | {"engine": "vllm torch.float32"})
    assert comparable_results(project, project.clean, [of_vllm]) == []
    monkeypatch.setattr("pipelines.model_loading.frozen_dtype", lambda path: torch.bfloat16)
    assert not is_measured(project, project.clean, PLAN)


def test_where_vllm_refuses_results_name_the_library_that_answered(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(student: Student) -> None:
        raise RecoverError("vLLM cannot serve this model.")

    monkeypatch.setattr("pipelines.model_loading.choose_engine", lambda name, _: "vllm" if name == "auto" else name)
    monkeypatch.setattr("pipelines.model_loading.VllmEngine", refuse)
    assert measure(project, None).settings["engine"] == "transformers torch.float32"
    assert is_measured(project, project.clean, PLAN), "it would be refused again"
