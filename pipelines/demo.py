"""The whole job on the built-in model: new documents, damage, recovery, a table, and three prompts side by side."""

import time
from pathlib import Path
from typing import Any

from pipelines.cycle import Outcome, run_job
from pipelines.evaluation.tables import scores_table
from pipelines.log import log
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.lock import command_line, held
from pipelines.project.project import Project
from recovery.lab import BASE, make_world

SHOWN, ITEMS, FEW_ITEMS = 3, 600, 400
DOCUMENTS_ONLY = "midtrain.mix=documents"  # the demo shows what this costs
BRIEF = ("midtrain.epochs=5", "distill.steps=10", "distill.prompts=640", "distill.probe_items=200")  # somebody waits


def run_demo(folder: Path, *, quick: bool, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Two cycles (one, if quick) through the very pipeline that `recover cycle` runs."""
    started = time.perf_counter()
    outcomes = []
    for number in range(1 if quick else 2):
        world = make_world(1000 + 10 * seed + number, size="quick")
        corpus_folder = folder / f"world-{number + 1}"
        world.write(corpus_folder)
        log.info(f"a new world: {len(world.questions())} facts in {corpus_folder / 'docs'}")
        request = Request(
            "cycle",
            docs=corpus_folder / "docs",
            teacher="base",
            questions=corpus_folder / "questions.jsonl",
            limit=FEW_ITEMS if quick else ITEMS,
            dotted=(DOCUMENTS_ONLY, *BRIEF),
            seed=seed,
        )
        project = Project.open(folder, str(BASE))
        with held(project.home, command_line()):
            done = run_job(project, prepare_job(project, request))
        assert isinstance(done, Outcome)
        outcomes.append(done)
    last = outcomes[-1]
    found = {
        "clean": outcomes[0].as_json()["clean"],
        "cycles": [{k: o.as_json()[k] for k in ("damaged", "recovered", "promoted")} for o in outcomes],
        "examples": side_by_side(last),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return found, _words(found, folder)


def side_by_side(outcome: Outcome) -> list[dict[str, Any]]:
    """Prompts whose instructions the damaged model broke, with every model's answer and verdict."""
    by_name = {"clean": outcome.clean, "mid-trained": outcome.damaged, "recovered": outcome.recovered}
    items = {
        name: {i.key: i for r in results if r.task == "ifeval" for i in r.items} for name, results in by_name.items()
    }
    broken = [k for k, item in items["mid-trained"].items() if not item.passed and items["clean"][k].passed]
    return [
        {
            "prompt": items["clean"][key].prompt,
            "answers": {name: {"text": of[key].answer, "followed": of[key].passed} for name, of in items.items()},
        }
        for key in broken[:SHOWN]
    ]


def _words(found: dict[str, Any], folder: Path) -> list[str]:
    rows = {"clean": found["clean"]}
    for number, cycle in enumerate(found["cycles"], 1):
        rows |= {f"cycle {number}, mid-trained": cycle["damaged"], f"cycle {number}, recovered": cycle["recovered"]}
    lines = [*scores_table(rows), ""]
    for example in found["examples"]:
        lines += [f"» {example['prompt']}"]
        for name, answer in example["answers"].items():
            lines += [f"  {'✓' if answer['followed'] else '✗'} {name:<12} {_short(answer['text'])}"]
        lines += [""]
    return [*lines, f"{found['seconds']:.0f} s; look at it: recover dashboard --project {folder}"]


def _short(text: str, width: int = 160) -> str:
    flat = " ⏎ ".join(text.split("\n"))
    return flat if len(flat) <= width else flat[: width - 1] + "…"
