"""`measure`: measure a checkpoint on the suites behaviour (instruction following), knowledge and retention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evals.benchmarks import BENCHMARKS, local_folder
from evals.downloads import public_ifeval
from evals.results import Metric, Result, Tokens, item_key
from evals.splits import Blocks, Split, secondary_task_limit, select_items
from evals.subject import Subject
from evals.suites import lab
from evals.suites.config import SUITES, file_hash, is_task_file, task_names
from evals.suites.custom_checks import measure_checks, read_tasks
from evals.suites.general import general_questions, measure_general
from evals.suites.instruction_following import Prompt, measure_ifeval, parse_prompt, read_prompts
from evals.suites.knowledge import measure_questions, read_questions
from evals.suites.training_texts import (
    conversation_key,
    find_clozes,
    has_conversations,
    measure_answers,
    measure_bits_per_byte,
    measure_cloze,
    read_conversations,
    read_passages,
)
from recovery.errors import RecoverError

DEFAULT_TASKS = {  # of a base that names none for the suite
    "behaviour": "ifeval",
    "retention": "general",
    **{name: benchmark.tasks for name, benchmark in BENCHMARKS.items()},
}


def measure(
    subject: Subject,
    suite: str = "all",
    *,
    limit: int | None = None,
    secondary_limit: int | None = None,
    ifeval_data: str | Path | None = None,
    questions: str | Path | None = None,
    passages: str | Path | None = None,
    suites: Mapping[str, str] | None = None,
    split: Split = "all",
    public: bool | None = None,
    blocks: Blocks | None = None,
) -> list[Result]:
    """Measure one suite, all suites that there is data for, or a benchmark of `evals.benchmarks`.

    `limit`: items per task. `secondary_limit`: a lower limit of retention (but not of its task `general`) and of the
    lab's refusals, or half of `limit` if that is more; it applies only together with `limit`.
    `ifeval_data`: prompts in IFEval's format, in place of the behaviour suite. `questions`: questions with answers, in
    place of the knowledge suite. `passages`: texts like the documents, best held out from them, which show knowledge
    independently of instruction following.
    `suites`: the task spec of each suite from the base's `recover.json` (`suites.config.load_suites(base)`): `lab`,
    `ifeval`, `general`, a JSONL file of prompts with checks, or lm-eval tasks by name or YAML file, separated by
    commas. The default is the public IFEval for behaviour and `general` (built-in general knowledge) for retention.
    `split`: `probe` (a fifth of every task's items), `final` (the rest) or `all`.
    `public`: True uses the public IFEval or fails, False uses generated prompts instead, None the public ones if they
    are available. Settle it once (`is_public_ifeval_available`) for results that are to be compared.
    `blocks`: ask the main task of behaviour in blocks, until they are enough. A task of lm-eval is asked in full."""
    if suite not in (*SUITES, *BENCHMARKS, "all"):
        raise RecoverError(f"There is no suite {suite!r}. Choose from {', '.join([*SUITES, *BENCHMARKS])} or all.")
    if limit is not None and limit < 1:
        raise RecoverError("The limit must be at least 1 item per task.")
    suites = suites or {}
    run = _SuiteRun(subject, limit, secondary_task_limit(limit, secondary_limit), split, public)
    results: list[Result] = []
    for name in SUITES if suite == "all" else (suite,):
        if name == "behaviour" and ifeval_data:
            prompts = select_items(read_prompts(ifeval_data), lambda prompt: prompt.key, split, limit)
            result = measure_ifeval(subject, prompts, data=Path(ifeval_data).name, blocks=blocks)
            results += of_file(ifeval_data, [result])
        elif name == "knowledge" and questions:
            asked = select_items(read_questions(questions), lambda question: item_key(question.text), split, limit)
            results += of_file(questions, [measure_questions(subject, asked, data=Path(questions).name)])
        else:
            for task in suite_tasks(name, suites):
                is_main = name == "behaviour" and task == main_prompt_task(suites)
                results += run.task(name, task, blocks if is_main else None)
        if name == "knowledge" and passages:
            results += of_file(passages, run.training_texts(Path(passages)))
    if not results:
        raise RecoverError(_NO_DATA.get(suite) or f"This base leaves the suite {suite} empty in its recover.json.")
    return results if split == "all" else [replace(r, settings=r.settings | {"part": split}) for r in results]


def of_file(file: str | Path, results: Sequence[Result]) -> list[Result]:
    """The results, with the hash of their file: those of another file of the same name are not compared with them."""
    content = {"content": item_key(file_hash(Path(file)))}  # an lm-eval task has a hash of each of its files
    return [replace(result, settings=result.settings | content) for result in results]


def suite_tasks(suite: str, suites: Mapping[str, str]) -> list[str]:
    """Return the tasks of a suite: those that the base's `recover.json` names, else the default."""
    return task_names(suites.get(suite, DEFAULT_TASKS.get(suite, "")))


def main_prompt_task(suites: Mapping[str, str]) -> str | None:
    """The task of behaviour that the gate judges, if it is one of prompts; None if it is a task of lm-eval."""
    tasks = suite_tasks("behaviour", suites)
    # `main_result` finds it by its name, and a file's is without the end.
    is_main = lambda task: task in ("ifeval", "lab") or Path(task).name == "ifeval.jsonl"  # noqa: E731
    main = next(filter(is_main, tasks), tasks[0] if tasks else "")
    return main if main in ("ifeval", "lab") or main.endswith(".jsonl") else None


def count_prompts(
    suites: Mapping[str, str], ifeval_data: str | Path | None, limit: int | None, split: Split, public: bool | None
) -> int | None:
    """How many prompts `measure` would ask for the task that the gate judges; None for a task of lm-eval."""
    task = None if ifeval_data else main_prompt_task(suites)
    docs = public_ifeval() if task == "ifeval" and public is not False else None
    if ifeval_data:
        keys = [prompt.key for prompt in read_prompts(ifeval_data)]
    elif task is None:
        return None
    elif task.endswith(".jsonl"):
        keys = [item.key for item in read_tasks(task)]
    elif docs is not None:
        keys = [str(doc["key"]) for doc in docs]
    else:  # generated
        return limit or (lab.DEFAULT_INSTRUCTIONS if task == "lab" else lab.DEFAULT_NATURAL)
    return len(select_items(keys, str, split, limit))


def count_retention_items(
    suites: Mapping[str, str], limit: int | None, secondary_limit: int | None, split: Split
) -> int | None:
    """How many items of retention `measure` would ask, where a task of lm-eval has as many as its limit allows; None
    without a limit if there is such a task."""
    beside, count = secondary_task_limit(limit, secondary_limit), 0
    for task in suite_tasks("retention", suites):
        if task == "lab":
            count += lab.count_retention_items(beside)
        elif task == "general":
            count += len(select_items([question.key for question in general_questions()], str, split, limit))
        elif task.endswith(".jsonl"):
            count += len(select_items([item.key for item in read_tasks(task)], str, split, beside))
        elif beside is None:
            return None
        else:
            count += beside
    return count


def is_public_ifeval_available(suites: Mapping[str, str]) -> bool | None:
    """Whether the public IFEval can be loaded; None if the suites do not use it."""
    return public_ifeval() is not None if "ifeval" in suite_tasks("behaviour", suites) else None


def ifeval_prompts(
    suites: Mapping[str, str], ifeval_data: str | Path | None = None, limit: int | None = None
) -> tuple[list[Prompt], str] | None:
    """Return the behaviour suite's IFEval prompts and the name of their data; None if the suite uses none."""
    if ifeval_data:
        return read_prompts(ifeval_data)[:limit], Path(ifeval_data).name
    names = suite_tasks("behaviour", suites)
    if "ifeval" in names and (docs := public_ifeval()) is not None:
        return [parse_prompt((f"Public prompt {doc['key']}", doc)) for doc in docs][:limit], "public"
    if "lab" in names:
        return lab.instruction_prompts(limit), "lab"
    return (lab.instruction_prompts(limit, natural=True), "lab-natural") if "ifeval" in names else None


_NO_DATA = {
    "knowledge": "Knowledge is measured with questions on the documents. Pass --questions FILE.",
    "behaviour": 'This base leaves the suite behaviour empty. Write "behaviour": "ifeval" in its recover.json.',
    "retention": 'This base leaves the suite retention empty. Write "retention": "general" in its recover.json.',
    "all": "This base leaves all suites empty. Name a task under suites in its recover.json, or pass --questions FILE.",
}


@dataclass(frozen=True)
class _SuiteRun:
    """Measures one model, with the same limits and split for every task."""

    subject: Subject
    limit: int | None
    secondary_limit: int | None
    split: Split
    public: bool | None

    def training_texts(self, file: Path) -> list[Result]:
        """Score the answers of a file of conversations, or passages."""
        if has_conversations(file):
            chosen = select_items(read_conversations(file), conversation_key, self.split, self.limit)
            return [measure_answers(self.subject, chosen, data=file.name)]
        passages = select_items(read_passages(file), item_key, self.split, self.limit)
        has_clozes = any(map(find_clozes, passages))
        tasks = [measure_cloze, measure_bits_per_byte] if has_clozes else [measure_bits_per_byte]
        return [measure_task(self.subject, passages, data=file.name) for measure_task in tasks]

    def task(self, suite: str, task: str, blocks: Blocks | None) -> list[Result]:
        if task == "lab":
            return lab.measure_suite(suite, self.subject, self.limit, self.secondary_limit, self.split, blocks)
        if task == "ifeval" and suite == "behaviour":
            return [self._ifeval(blocks)]
        if task == "general" and suite == "retention":
            return [measure_general(self.subject, self.limit, self.split)]
        limit = self.secondary_limit if suite == "retention" else self.limit
        if task.endswith(".jsonl"):
            selected = select_items(read_tasks(task), lambda item: item.key, self.split, limit)
            return of_file(task, [measure_checks(self.subject, selected, suite=suite, path=task, blocks=blocks)])
        from evals.harness import run_task

        results = run_task(self.subject, task, suite=suite, limit=limit, split=self.split)
        if source := task if is_task_file(task) else local_folder(task):
            results = of_file(source, results)
        return [_as_one_task(task, results)] if suite in BENCHMARKS and len(results) > 1 else results

    def _ifeval(self, blocks: Blocks | None) -> Result:
        """Measure on the public prompts if available, else on the lab's; the settings then say so."""
        docs = public_ifeval() if self.public is not False else None
        if docs is None and self.public:
            raise RecoverError(
                "The public IFEval, which the earlier measurements used, is unavailable now. Continue when the hub "
                "answers, or with HF_HUB_OFFLINE=1 if its cache has google/IFEval."
            )
        if docs is None:
            result = lab.measure_instructions(self.subject, self.limit, self.split, blocks, natural=True)
            instead = {"instead_of": "the public IFEval, which is out of reach"}
            return replace(result, settings=result.settings | instead)
        selected = select_items(docs, lambda doc: str(doc["key"]), self.split, self.limit)
        prompts = [parse_prompt((f"Public prompt {doc['key']}", doc)) for doc in selected]
        return measure_ifeval(self.subject, prompts, data="public", blocks=blocks)


def _as_one_task(group: str, results: list[Result]) -> Result:
    """The share of all items of a group that passed, and each task's share."""
    items, name = [item for result in results for item in result.items], next(iter(results[0].metrics))
    metrics = {f"{name}/{result.task.removeprefix(f'{group}_')}": result.headline for result in results}
    metrics = {name: Metric.from_passes([item.passed for item in items])} | metrics
    tokens = Tokens(*(sum(getattr(r.tokens, part) for r in results) for part in ("read", "written")))
    return replace(results[0], task=group, metrics=metrics, items=items, tokens=tokens,
                   seconds=sum(result.seconds for result in results))  # fmt: skip
