"""The suites by name: what `recover eval` and the cycle measure a checkpoint by."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from evals import lab
from evals.behaviour import measure_ifeval, prompt_of, read_prompts
from evals.knowledge import ask, read_questions
from evals.resources import public_ifeval
from evals.results import HEADLINES, Result
from evals.subject import Subject
from recovery.errors import RecoverError

SUITES = tuple(HEADLINES)


def measure(
    subject: Subject,
    suite: str = "all",
    *,
    limit: int | None = None,
    ifeval_data: str | Path | None = None,
    questions: str | Path | None = None,
    suites: Mapping[str, str] | None = None,
) -> list[Result]:
    """Measure one suite, or all that there is data for; at most `limit` items a task.

    `suites` is what the base's `recover.json` says it is to be measured by: per suite `lab`, `ifeval`, or lm-eval
    tasks by name or YAML file, several with commas. Unnamed, behaviour is the public IFEval and retention nothing."""
    if suite not in (*SUITES, "all"):
        raise RecoverError(f"there is no suite {suite!r}; choose from {', '.join(SUITES)} or all")
    if limit is not None and limit < 1:
        raise RecoverError("the limit must be at least 1 item a task")
    measured: list[Result] = []
    for name in SUITES if suite == "all" else (suite,):
        if name == "behaviour" and ifeval_data:
            prompts = read_prompts(ifeval_data)[:limit]
            measured.append(measure_ifeval(subject, prompts, data=Path(ifeval_data).name))
        elif name == "knowledge" and questions:
            measured.append(ask(subject, read_questions(questions)[:limit], data=Path(questions).name))
        else:
            measured += _measure_by_name(subject, name, _tasks(name, suites or {}), limit)
    if not measured:
        raise RecoverError(_MISSING[suite])
    return measured


_MISSING = {
    "knowledge": "knowledge is measured by questions on the documents; pass --questions FILE",
    "retention": 'this base names nothing to retain; add "suites": {"retention": "gsm8k"} to its recover.json',
}


def _tasks(suite: str, suites: Mapping[str, str]) -> list[str]:
    named = suites.get(suite, "ifeval" if suite == "behaviour" else "")
    return [task.strip() for task in named.split(",") if task.strip()]


def _measure_by_name(subject: Subject, suite: str, tasks: list[str], limit: int | None) -> list[Result]:
    measured: list[Result] = []
    for task in tasks:
        if task == "lab" and suite in lab.SUITES:
            measured += lab.SUITES[suite](subject, limit)
        elif task == "ifeval" and suite == "behaviour":
            measured.append(_public_or_lab(subject, limit))
        else:
            from evals.lm_tasks import run_task

            measured += run_task(subject, task, suite=suite, limit=limit)
    return measured


def _public_or_lab(subject: Subject, limit: int | None) -> Result:
    """The public prompts where they are to be had, else the lab's, and the result says so."""
    public = public_ifeval()
    if public is None:
        result = lab.instructions(subject, limit)
        return replace(result, settings=result.settings | {"instead_of": "the public IFEval, which is out of reach"})
    prompts = [prompt_of((f"public prompt {doc['key']}", doc)) for doc in public[:limit]]
    return measure_ifeval(subject, prompts, data="public")
