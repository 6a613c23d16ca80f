"""What would shorten a long job: only what applies to it, the largest gain first."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from pipelines.jobs.job import Job
from pipelines.progress import duration
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS
from pipelines.settings.schema import AUTO, fixed_answers_share
from pipelines.stage_clock import StageEstimate

LONG = 3600.0  # seconds: shorter jobs get no advice
WORTH = 0.15  # of the whole: a smaller gain is not mentioned
USUAL_LIMIT = 500  # items per task: more are worth their time only where the gate needs them


def shortening_advice(
    job: Job, stages: Sequence[StageEstimate], generating: float, engine: str, parameters: int
) -> str | None:
    """A sentence, or None for a short job. `generating` is the seconds that a faster engine would shorten."""
    total = sum(stage.seconds for stage in stages)
    if total < LONG:
        return None
    by_kind: dict[str, float] = {}
    for stage in stages:
        kind = stage.key.partition("/")[0]
        by_kind[kind] = by_kind.get(kind, 0.0) + stage.seconds
    ways = list(_ways(job, by_kind, generating, engine, parameters))
    worth = [text for seconds, text in sorted(ways, reverse=True) if seconds >= WORTH * total]
    return f"What would shorten it: {'; '.join(worth)}" if worth else None


def _ways(
    job: Job, by_kind: dict[str, float], generating: float, engine: str, parameters: int
) -> Iterator[tuple[float, str]]:
    """(the seconds it is about, the text)."""
    measuring, writing = by_kind.get("measure", 0.0), by_kind.get("write", 0.0)
    limit, settings = job.eval_plan.limit, job.settings
    if limit is None or limit > USUAL_LIMIT:
        yield measuring, f"fewer items with --limit {USUAL_LIMIT} (measuring takes {duration(measuring)})"
    if engine == "transformers" and parameters > SMALL_MODEL_PARAMETERS and find_spec("vllm") is None:
        yield generating, f"vLLM, which is not installed (generating takes {duration(generating)})"
    if job.prompts is None:
        half = settings.distill.prompts // 2
        yield writing, f"fewer prompts with --set distill.prompts={half} (writing takes {duration(writing)})"
    mix, training = settings.midtrain.mix, by_kind.get("midtrain", 0.0) + by_kind.get("search", 0.0)
    if job.command != "distill" and (mix.answers == AUTO or fixed_answers_share(settings) + mix.texts > 0.3):
        yield training + writing, "a smaller mix with --mix answers=0.1,texts=0.1, which protects less"
