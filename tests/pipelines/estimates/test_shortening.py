import pytest

from pipelines.estimates import shortening
from pipelines.estimates.shortening import shortening_advice
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.jobs.job import Job
from pipelines.settings.defaults import defaults_for
from pipelines.stage_clock import StageEstimate

MEDIUM = 135_000_000


def stages(measuring: float = 600, writing: float = 600, training: float = 600) -> list[StageEstimate]:
    return [
        StageEstimate("measure/clean", "measuring", measuring),
        StageEstimate("write/prompts", "writing", writing),
        StageEstimate("midtrain", "mid-training", training),
    ]


def advice(job: Job, plan: list[StageEstimate], generating: float = 0.0, parameters: int = MEDIUM) -> str | None:
    return shortening_advice(job, plan, generating, "transformers", parameters)


def test_a_short_job_gets_no_advice() -> None:
    assert advice(Job("cycle", defaults_for(MEDIUM)), stages()) is None


def test_what_takes_longest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortening, "find_spec", lambda name: None)
    job = Job("cycle", defaults_for(MEDIUM), EvalPlan(limit=2000))
    text = advice(job, stages(measuring=7200, writing=3600), generating=9000)
    assert text == (
        "What would shorten it: vLLM, which is not installed (generating takes 2.5 h); "
        "fewer items with --limit 500 (measuring takes 2.0 h); "
        f"fewer prompts with --set distill.prompts={job.settings.distill.prompts // 2} (writing takes 60 min)"
    )


def test_only_what_applies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortening, "find_spec", lambda name: object())
    few = Job("cycle", defaults_for(MEDIUM), EvalPlan(limit=100))
    assert advice(few, stages(measuring=7200, writing=10), generating=7000) is None
    mixed = Job("cycle", defaults_for(1000), EvalPlan(limit=100))
    text = advice(mixed, stages(measuring=100, writing=10, training=7200), parameters=1000)
    assert text == "What would shorten it: a smaller mix with --mix answers=0.1,texts=0.1, which protects less"
