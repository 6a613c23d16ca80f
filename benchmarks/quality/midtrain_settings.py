"""Mid-training alone under different settings: instruction following lost, knowledge gained.

    python -m benchmarks.quality.midtrain_settings --try midtrain.cross_document_attention=true \\
        --try midtrain.cross_document_attention=false
    python -m benchmarks.quality.midtrain_settings --try midtrain.mix.answers=0 \\
        --try "midtrain.mix.answers=0.3 midtrain.max_steps=20"

Each `--try` is one mid-training of the clean base on the same new world's documents, with these settings (several are
separated by spaces). `--worlds 311,312` repeats everything on each world.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.common import table
from evals.drift.drift_measurement import MAX_NEW_TOKENS
from evals.drift.rollouts import reply_sample, sample_rollouts
from evals.drift.token_kl import token_kl
from evals.results import Result, main_result
from evals.stats.paired_comparison import paired_test
from pipelines.cycle import run_job
from pipelines.evaluation.checkpoint_measurement import measure_checkpoint
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.model_loading import device
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.training.training_run import RunResult
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, make_world
from recovery.models.students import load_student

HEAD = ["world", "settings", "instructions", "lost (bounds)", "KL to clean", "new world", "own world", "steps", "s"]


def main(arguments: list[str] | None = None) -> list[list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--worlds", default="311")
    parser.add_argument("--size", default="quick")
    parser.add_argument("--items", type=int, default=500, help="at most, per task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--try", dest="settings", action="append", default=[], metavar="SETTINGS")
    args = parser.parse_args(arguments)
    rows: list[list[str]] = []
    for world in args.worlds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rows += compare_settings(Path(folder), int(world), args)
    table(HEAD, rows)
    return rows


def compare_settings(folder: Path, world: int, args: argparse.Namespace) -> list[list[str]]:
    make_world(world, size=args.size).write(folder)
    project = Project.open(folder, args.base)
    plan = EvalPlan("all", folder / "questions.jsonl", limit=args.items)
    clean = measure_checkpoint(project, project.clean, plan, None)
    rows = [[str(world), "clean", *_scores(clean, clean, 0.0), "", ""]]
    prompts = [item.prompt for result in clean if result.task == "ifeval" for item in result.items]
    for settings in args.settings or [""]:
        request = Request("midtrain", docs=folder / "docs", seed=args.seed, assignments=tuple(settings.split()))
        trained = run_job(project, prepare_job(project, request))
        assert isinstance(trained, RunResult)
        results = measure_checkpoint(project, trained.checkpoint, plan, None)
        kl = kl_to_clean(trained.checkpoint.path, args.base, prompts)
        rows.append([str(world), settings, *_scores(clean, results, kl), str(trained.steps), f"{trained.seconds:.0f}"])
        print(" · ".join(rows[-1]), flush=True)
    return rows


def kl_to_clean(path: str, base: str, prompts: list[str]) -> float:
    """KL per token to the clean model, on the model's own replies; it shows differences that the scores do not."""
    current, clean = (load_student(model, frozen=True, device=device()) for model in (path, base))
    rollouts = sample_rollouts(TransformersEngine(current), current, prompts, MAX_NEW_TOKENS, seed=0)
    rows = [reply_sample(rollout) for rollout in rollouts if rollout.reply]
    return token_kl(current, clean, rows)["kl_to_clean"].value


def _scores(clean: list[Result], results: list[Result], kl: float) -> list[str]:
    before, after = (main_result(scores, "behaviour") for scores in (clean, results))
    assert before is not None
    assert after is not None
    pair = paired_test(before.passed_by_key(), after.passed_by_key())
    scores = {r.task: f"{r.headline.value:.3f}" for r in results}
    lost = f"{pair.difference:+.3f} ({pair.low:+.3f} … {pair.high:+.3f})"
    return [
        f"{after.headline.value:.3f}",
        lost,
        f"{kl:.4f}",
        scores.get("closed_book", "-"),
        scores.get("own_world", "-"),
    ]


if __name__ == "__main__":
    main()
