"""`recover demo`: two cycles on the built-in model, with a table of scores and three prompts answered side by side."""

import time
from pathlib import Path
from typing import Any

from pipelines.cycle import Outcome, run_job
from pipelines.evaluation.printed_tables import scores_table
from pipelines.log import log
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.lock import command_line, project_lock
from pipelines.project.project import Project
from recovery.lab import BASE, make_world

EXAMPLES = 3  # prompts in the output
ITEMS, SECONDARY_ITEMS = 400, 100  # per task; the gate does not judge the secondary ones
DOCUMENTS_ONLY = "midtrain.mix=documents"  # the demo shows what this costs
BRIEF = ("midtrain.epochs=4", "distill.steps=8", "distill.prompts=512", "distill.probe_every=0")  # so it takes minutes


def run_demo(folder: Path, *, quick: bool, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run two cycles (one with `quick`) as `recover cycle` does; returns the results as JSON and as lines of text."""
    started_at = time.perf_counter()
    outcomes = []
    for number in range(1 if quick else 2):
        world = make_world(1000 + 10 * seed + number, size="quick")
        corpus_folder = folder / f"world-{number + 1}"
        world.write(corpus_folder)
        log.info(f"Wrote documents with {len(world.questions())} invented facts to {corpus_folder / 'docs'}")
        request = Request(
            "cycle",
            docs=corpus_folder / "docs",
            teacher="base",
            questions=corpus_folder / "questions.jsonl",
            limit=ITEMS,
            secondary_limit=SECONDARY_ITEMS,
            assignments=(DOCUMENTS_ONLY, *BRIEF),
            seed=seed,
        )
        project = Project.open(folder, str(BASE))
        with project_lock(project.home, command_line()):
            outcome = run_job(project, prepare_job(project, request))
        assert isinstance(outcome, Outcome)
        outcomes.append(outcome)
    results = {
        "clean": outcomes[0].as_json()["clean"],
        "cycles": [{k: o.as_json()[k] for k in ("damaged", "recovered", "promoted")} for o in outcomes],
        "examples": side_by_side(outcomes[-1]),
        "seconds": round(time.perf_counter() - started_at, 1),
    }
    return results, _lines(results, folder)


def side_by_side(outcome: Outcome) -> list[dict[str, Any]]:
    """Prompts whose instructions the damaged model broke, with the answer of each model and whether it passed."""
    by_model = {"clean": outcome.clean, "mid-trained": outcome.damaged, "recovered": outcome.recovered}
    items = {
        model: {i.key: i for r in results if r.task == "ifeval" for i in r.items} for model, results in by_model.items()
    }
    broken = [k for k, item in items["mid-trained"].items() if not item.passed and items["clean"][k].passed]
    return [
        {
            "prompt": items["clean"][key].prompt,
            "answers": {
                model: {"text": by_key[key].answer, "followed": by_key[key].passed} for model, by_key in items.items()
            },
        }
        for key in broken[:EXAMPLES]
    ]


def _lines(results: dict[str, Any], folder: Path) -> list[str]:
    rows = {"clean": results["clean"]}
    for number, cycle in enumerate(results["cycles"], 1):
        rows |= {f"cycle {number}, mid-trained": cycle["damaged"], f"cycle {number}, recovered": cycle["recovered"]}
    lines = [*scores_table(rows), ""]
    for example in results["examples"]:
        lines += [f"» {example['prompt']}"]
        for model, answer in example["answers"].items():
            lines += [f"  {'✓' if answer['followed'] else '✗'} {model:<12} {_shorten(answer['text'])}"]
        lines += [""]
    return [*lines, f"{results['seconds']:.0f} s; to see the results: recover dashboard --project {folder}"]


def _shorten(text: str, width: int = 160) -> str:
    one_line = " ⏎ ".join(text.split("\n"))
    return one_line if len(one_line) <= width else one_line[: width - 1] + "…"
