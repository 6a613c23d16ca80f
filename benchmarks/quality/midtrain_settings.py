"""What mid-training alone does under one setting and under another: manners lost, knowledge gained.

    python -m benchmarks.quality.midtrain_settings --try midtrain.cross_document_attention=true \\
        --try midtrain.cross_document_attention=false
    python -m benchmarks.quality.midtrain_settings --try midtrain.mix.answers=0 \\
        --try "midtrain.mix.answers=0.3 midtrain.max_steps=20"

Each `--try` is a mid-training from the clean base on the same new world's documents, by the product's own pipeline;
settings that belong together are parted by a space. `--worlds 311,312` repeats all of it on further worlds.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.common import table
from evals.drift.drift import MAX_NEW_TOKENS
from evals.drift.rollouts import reply_sample, sample_rollouts
from evals.drift.token_kl import token_kl
from evals.results import Result, main_result
from evals.stats.paired_tests import paired_test
from pipelines.cycle import run_job
from pipelines.evaluation.measure import measure_checkpoint
from pipelines.evaluation.plan import EvalPlan
from pipelines.models import device
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.project import Project
from pipelines.training.run import RunResult
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, make_world
from recovery.models.students import load_student

HEAD = ["world", "settings", "instructions", "lost (bounds)", "KL to clean", "new world", "own world", "steps", "s"]


def main(arguments: list[str] | None = None) -> list[list[str]]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--worlds", default="311")
    options.add_argument("--size", default="quick")
    options.add_argument("--items", type=int, default=500, help="at most so many a task")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--try", dest="tried", action="append", default=[], metavar="SETTINGS")
    asked = options.parse_args(arguments)
    rows: list[list[str]] = []
    for world in asked.worlds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rows += read(Path(folder), int(world), asked)
    table(HEAD, rows)
    return rows


def read(folder: Path, world: int, asked: argparse.Namespace) -> list[list[str]]:
    make_world(world, size=asked.size).write(folder)
    project = Project.open(folder, asked.base)
    measures = EvalPlan("all", folder / "questions.jsonl", limit=asked.items)
    clean = measure_checkpoint(project, project.clean, measures, None)
    rows = [[str(world), "clean", *_scores(clean, clean, 0.0), "", ""]]
    asking = [item.prompt for result in clean if result.task == "ifeval" for item in result.items]
    for settings in asked.tried or [""]:
        request = Request("midtrain", docs=folder / "docs", seed=asked.seed, dotted=tuple(settings.split()))
        made = run_job(project, prepare_job(project, request))
        assert isinstance(made, RunResult)
        found = measure_checkpoint(project, made.checkpoint, measures, None)
        drifted = _drifted(made.checkpoint.path, asked.base, asking)
        rows.append([str(world), settings, *_scores(clean, found, drifted), str(made.steps), f"{made.seconds:.0f}"])
        print(" · ".join(rows[-1]), flush=True)
    return rows


def _drifted(path: str, base: str, prompts: list[str]) -> float:
    """KL a token to the clean model on what the other writes to the prompts: it tells apart what scores cannot."""
    current, clean = (load_student(each, frozen=True, device=device()) for each in (path, base))
    written = sample_rollouts(TransformersEngine(current), current, prompts, MAX_NEW_TOKENS, seed=0)
    rows = [reply_sample(rollout) for rollout in written if rollout.reply]
    return token_kl(current, clean, rows)["kl_to_clean"].value


def _scores(clean: list[Result], found: list[Result], drifted: float) -> list[str]:
    before, after = (main_result(results, "behaviour") for results in (clean, found))
    assert before is not None
    assert after is not None
    pair = paired_test(before.passed_by_key(), after.passed_by_key())
    known = {r.task: f"{r.headline.value:.3f}" for r in found}
    lost = f"{pair.difference:+.3f} ({pair.low:+.3f} … {pair.high:+.3f})"
    return [
        f"{after.headline.value:.3f}",
        lost,
        f"{drifted:.4f}",
        known.get("closed_book", "-"),
        known.get("own_world", "-"),
    ]


if __name__ == "__main__":
    main()
