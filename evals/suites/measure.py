"""The suites by name: what `recover eval` and the cycle measure a checkpoint by."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evals.downloads import public_ifeval
from evals.results import HEADLINES, Result, key_of
from evals.splits import Part, chosen, fewer, named_part
from evals.subject import Subject
from evals.suites import lab
from evals.suites.config import tasks
from evals.suites.custom_checks import measure_checks, read_tasks
from evals.suites.instruction_following import Prompt, measure_ifeval, prompt_of, read_prompts
from evals.suites.knowledge import Question, ask, read_questions
from evals.suites.passage_recall import bits_per_byte, clozes_of, read_passages, recall
from recovery.errors import RecoverError

SUITES = tuple(HEADLINES)


def measure(
    subject: Subject,
    suite: str = "all",
    *,
    limit: int | None = None,
    beside: int | None = None,
    ifeval_data: str | Path | None = None,
    questions: str | Path | None = None,
    passages: str | Path | None = None,
    suites: Mapping[str, str] | None = None,
    part: str = "all",
    public: bool | None = None,
) -> list[Result]:
    """Measure one suite, or all that there is data for; at most `limit` items a task, and where there is a limit at
    most `beside` of a task that no verdict is about (retention, the lab's refusals).

    `suites` is what the base's `recover.json` says it is to be measured by (`suites.config.suites_of(base)`): per suite
    `lab`, `ifeval`, a JSONL of tasks with checks, or lm-eval tasks by name or YAML file, several with commas. Unnamed,
    behaviour is the public IFEval and retention nothing. `passages` are texts of the
    documents' kind, best held back from them, which show knowledge without any manners. `part` is `probe` or `final`,
    a fifth of every task's items and the rest, or `all`. The lab's prompts stand in for the public IFEval out of reach,
    unless `public` was settled before (`is_public_in_reach`): what is held against each other must be the same."""
    if suite not in (*SUITES, "all"):
        raise RecoverError(f"there is no suite {suite!r}; choose from {', '.join(SUITES)} or all")
    if limit is not None and limit < 1:
        raise RecoverError("the limit must be at least 1 item a task")
    look = _Look(subject, limit, fewer(limit, beside), named_part(part), public)
    measured: list[Result] = []
    for name in SUITES if suite == "all" else (suite,):
        if name == "behaviour" and ifeval_data:
            measured.append(look.prompts(read_prompts(ifeval_data), data=Path(ifeval_data).name))
        elif name == "knowledge" and questions:
            measured.append(look.questions(read_questions(questions), data=Path(questions).name))
        else:
            measured += [result for task in _tasks(name, suites or {}) for result in look.by_name(name, task)]
        if name == "knowledge" and passages:
            measured += look.passages(read_passages(passages), data=Path(passages).name)
    if not measured:
        raise RecoverError(_MISSING[suite])
    return measured if part == "all" else [replace(r, settings=r.settings | {"part": part}) for r in measured]


def is_public_in_reach(suites: Mapping[str, str]) -> bool | None:
    """Whether the public IFEval can be had, where it is asked for."""
    return public_ifeval() is not None if "ifeval" in _tasks("behaviour", suites) else None


def instructions(
    suites: Mapping[str, str], ifeval_data: str | Path | None = None, limit: int | None = None
) -> tuple[list[Prompt], str] | None:
    """What behaviour is measured by and its name, where that is IFEval's instructions; None where it is not."""
    if ifeval_data:
        return read_prompts(ifeval_data)[:limit], Path(ifeval_data).name
    named = _tasks("behaviour", suites)
    if "ifeval" in named and (public := public_ifeval()) is not None:
        return [prompt_of((f"public prompt {doc['key']}", doc)) for doc in public][:limit], "public"
    return (lab.prompts(limit), "lab") if {"lab", "ifeval"} & set(named) else None


_MISSING = {
    "knowledge": "knowledge is measured by questions on the documents; pass --questions FILE",
    "retention": 'this base names nothing to retain; add "suites": {"retention": "gsm8k"} to its recover.json',
}


def _tasks(suite: str, suites: Mapping[str, str]) -> list[str]:
    return tasks(suites.get(suite, "ifeval" if suite == "behaviour" else ""))


@dataclass(frozen=True)
class _Look:
    """One model, and which items of every task it is asked."""

    subject: Subject
    limit: int | None
    beside: int | None
    part: Part
    public: bool | None

    def prompts(self, prompts: list[Prompt], *, data: str) -> Result:
        mine = chosen(prompts, lambda prompt: prompt.key, self.part, self.limit)
        return measure_ifeval(self.subject, mine, data=data)

    def questions(self, questions: list[Question], *, data: str) -> Result:
        mine = chosen(questions, lambda question: key_of(question.text), self.part, self.limit)
        return ask(self.subject, mine, data=data)

    def passages(self, passages: list[str], *, data: str) -> list[Result]:
        mine = chosen(passages, key_of, self.part, self.limit)
        with_clozes = any(clozes_of(passage) for passage in mine)
        return [measured(self.subject, mine, data=data) for measured in (recall, bits_per_byte)[not with_clozes :]]

    def by_name(self, suite: str, task: str) -> list[Result]:
        if task == "lab" and suite in lab.SUITES:
            return lab.SUITES[suite](self.subject, self.limit, self.beside, self.part)
        if task == "ifeval" and suite == "behaviour":
            return [self._public_or_lab()]
        limit = self.beside if suite == "retention" else self.limit
        if task.endswith(".jsonl"):
            mine = chosen(read_tasks(task), lambda each: each.key, self.part, limit)
            return [measure_checks(self.subject, mine, suite=suite, path=task)]
        from evals.harness.tasks import run_task

        return run_task(self.subject, task, suite=suite, limit=limit, part=self.part)

    def _public_or_lab(self) -> Result:
        """The public prompts where they are to be had, else the lab's, and the result says so."""
        public = public_ifeval() if self.public is not False else None
        if public is None and self.public:
            raise RecoverError(
                "the public IFEval, by which this was measured so far, is out of reach now: go on when the hub "
                "answers, or with HF_HUB_OFFLINE=1 where its cache holds google/IFEval"
            )
        if public is None:
            result = lab.instructions(self.subject, self.limit, self.part)
            return replace(
                result, settings=result.settings | {"instead_of": "the public IFEval, which is out of reach"}
            )
        mine = chosen(public, lambda doc: str(doc["key"]), self.part, self.limit)
        prompts = [prompt_of((f"public prompt {doc['key']}", doc)) for doc in mine]
        return measure_ifeval(self.subject, prompts, data="public")
