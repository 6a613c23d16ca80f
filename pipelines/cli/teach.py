"""The commands that change weights: midtrain, distill, cycle, demo."""

from pathlib import Path
from typing import Any

import click

from pipelines.cli import REJECTED, Answer, answers, main, options, say


@main.command()
@options.together(options.base, options.docs, options.questions, options.recipe, options.max_steps, options.seed)
@answers
def midtrain(
    project: Path | None,
    base: str | None,
    docs: Path,
    questions: Path | None,
    recipe: str | None,
    max_steps: int | None,
    seed: int,
) -> Answer:
    """Teach the current model the documents; its behaviour is expected to suffer.

    \b
    Example: recover midtrain --docs ./corpus
    """
    from pipelines.documents import read_corpus

    cycle = _cycle(project, base, questions, seed, midtrain={"recipe": recipe, "max_steps": max_steps})
    corpus = read_corpus(docs)
    _report_skipped(corpus.skipped)
    trained = cycle.check().open(corpus).midtrain(corpus)
    made = trained.checkpoint
    found = {
        "run": trained.run,
        "cycle": cycle.number,
        "checkpoint": made.reference,
        "path": made.path,
        "steps": trained.steps,
        "tokens": trained.tokens,
        "seconds": round(trained.seconds, 1),
    }
    return Answer(found, [f"{made.reference} is in {made.path}", "next: recover distill --teacher base"])


@main.command()
@options.together(
    options.base,
    click.option("--student", metavar="REF", help="What to repair [default: the latest mid-trained checkpoint]"),
    options.distilling,
)
@answers
def distill(
    project: Path | None,
    base: str | None,
    teacher: str,
    student: str | None,
    prompts: Path | None,
    questions: Path | None,
    recipe: str | None,
    max_steps: int | None,
    limit: int | None,
    ifeval_data: Path | None,
    seed: int,
) -> Answer:
    """Bring the behaviour back from a clean teacher, on what the student itself writes; then judge and promote.

    \b
    Examples: recover distill --teacher base
              recover distill --student ./my-finetune --teacher Qwen/Qwen3-8B
    """
    from pipelines.cycle import cycle_of
    from recovery.errors import RecoverError

    cycle = _cycle(
        project, base, questions, seed, limit, ifeval_data, distill={"recipe": recipe, "max_steps": max_steps}
    )
    restorer, asked = cycle.project.resolve(teacher), _prompts(prompts)
    cycle.check(restorer)
    found = cycle.project.resolve(student) if student else cycle.project.latest_midtrained()
    if found is None:
        raise RecoverError("nothing mid-trained waits here: run `recover midtrain --docs DIR`, or give --student REF")
    cycle.id, cycle.number = cycle_of(cycle.project, found)
    cycle.remember_questions(found)
    return _judged(cycle.recover(found, restorer, asked))


@main.command()
@options.together(
    options.base,
    options.docs,
    options.distilling,
)
@answers
def cycle(
    project: Path | None,
    base: str | None,
    docs: Path,
    teacher: str,
    prompts: Path | None,
    questions: Path | None,
    recipe: str | None,
    max_steps: int | None,
    limit: int | None,
    ifeval_data: Path | None,
    seed: int,
) -> Answer:
    """Teach the documents, measure, bring the behaviour back, measure again, promote or reject.

    \b
    Example: recover cycle --docs ./corpus --questions ./questions.jsonl
    """
    from pipelines.documents import read_corpus

    whole = _cycle(
        project, base, questions, seed, limit, ifeval_data, distill={"recipe": recipe, "max_steps": max_steps}
    )
    corpus = read_corpus(docs)
    _report_skipped(corpus.skipped)
    restorer, asked = whole.project.resolve(teacher), _prompts(prompts)
    return _judged(whole.check(restorer).open(corpus).run(corpus, restorer, asked))


@main.command()
@click.option("--quick", is_flag=True, help="One cycle instead of two.")
@options.seed
@answers
def demo(project: Path | None, quick: bool, seed: int) -> Answer:
    """The whole job on the built-in lab model: a new world's documents, damage, recovery, and a table.

    \b
    Example: recover demo --quick
    """
    from pipelines.demo import run_demo

    found, words = run_demo(project or Path("recover-demo"), quick=quick, seed=seed, say=say)
    return Answer(found, words)


def _cycle(
    folder: Path | None,
    base: str | None,
    questions: Path | None,
    seed: int,
    limit: int | None = None,
    ifeval_data: Path | None = None,
    **stages: dict[str, Any],
) -> Any:
    """A cycle on the project in `folder`, with the settings it will run under announced."""
    from pipelines.cycle import begin
    from pipelines.measuring import Measures

    measures = Measures("all", questions, ifeval_data, limit)
    wanted = {stage: {k: v for k, v in said.items() if v is not None} for stage, said in stages.items()}
    return begin(folder, base, measures, wanted, seed, say)


def _prompts(file: Path | None) -> list[str] | None:
    from pipelines.prompts import read_prompts

    return read_prompts(file) if file else None


def _report_skipped(skipped: list[tuple[Path, str]]) -> None:
    for path, reason in skipped[:10]:
        say(f"skipped {path}: {reason}")
    if len(skipped) > 10:
        say(f"skipped {len(skipped) - 10} more files")


def _judged(outcome: Any) -> Answer:
    from pipelines.tables import scores_table

    found = outcome.as_json()
    verdict = "promoted" if found["promoted"] else "rejected"
    words = [
        *scores_table({"clean": found["clean"], "mid-trained": found["damaged"], "recovered": found["recovered"]}),
        f"{verdict}: {outcome.verdict.reason}",
        f"{found['checkpoint']} is in {found['path']}",
    ]
    return Answer(found, words, 0 if found["promoted"] else REJECTED)
