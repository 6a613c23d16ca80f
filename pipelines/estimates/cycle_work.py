"""The stages of a first cycle on a base that is only known by its config: what is usual is taken for what is unknown.

`pipelines.estimates.job_work` counts what a job on a loaded base will do."""

from collections.abc import Iterator

from evals.counting_engine import Replies, Workload
from evals.suites.instruction_following import PUBLIC_NEW_TOKENS
from pipelines.documents.corpus_summary import midtraining_work
from pipelines.estimates.in_context_work import sampling_clean_replies, writing_prompts
from pipelines.estimates.work import TEXT, Generating, Loading, Measuring, StageWork, Training, Work, mean_length
from pipelines.machine.calibration import chance_of_end
from pipelines.settings.schema import Settings, fixed_answers_share
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from recovery.recipes import recipe

PROMPT_TOKENS = MAX_PROMPT_TOKENS // 4
PUBLIC_PROMPTS, PROBE_SHARE = 541, 0.2  # of the public IFEval, and the part that probes take
GENERAL_TOKENS = 641 * 4 * 32  # of the built-in questions on general knowledge, with four answers to each


def cycle_work(settings: Settings, tokens: int) -> Iterator[StageWork]:
    """The stages of `recover cycle` on documents of so many tokens."""
    midtrain, distill = midtraining_work(settings, tokens), settings.distill
    prompts, window = distill.prompts, settings.midtrain.window
    if settings.midtrain.mix.texts:
        count = settings.midtrain.generated_texts
        yield StageWork("write/texts", f"writing {count:,} texts", [Loading(), Generating(count, count, window, TEXT)])
    if fixed_answers_share(settings):
        parts: list[Work] = [Loading(2), writing_prompts(prompts), _replies(settings, prompts)]
        yield StageWork("write/answers", f"writing {prompts:,} prompts and answers", parts)
    by_label, by_teacher = midtrain.by_label / midtrain.steps, midtrain.by_teacher / midtrain.steps
    parts = [Loading(2), Training(midtrain.steps, by_label, by_teacher)]
    yield StageWork("midtrain", f"mid-training ({midtrain.steps:,} steps)", parts)
    measured = Workload([_public(1 - PROBE_SHARE * bool(distill.probe_every))], scored_tokens=GENERAL_TOKENS)
    parts = [part for _ in range(3) for part in (Loading(), Measuring(measured))]
    yield StageWork("measure", "measuring the clean, the mid-trained and the recovered model", parts)
    yield StageWork("write/prompts", f"writing {prompts:,} prompts", [Loading(), writing_prompts(prompts)])
    yield from _distilling(settings)


def _distilling(settings: Settings) -> Iterator[StageWork]:
    distill, chosen = settings.distill, recipe(settings.distill.recipe)
    steps = min(distill.steps, distill.max_steps or distill.steps)
    on_policy = round(chosen.on_policy_fraction * distill.rows)
    if on_policy < distill.rows and chosen.data != "conversations":
        count = min(distill.prompts, steps * distill.rows)
        yield StageWork("write/replies", f"writing {count:,} answers", [Loading(), _replies(settings, count)])
    limit = distill.max_new_tokens
    rows = distill.rows * (PROMPT_TOKENS + mean_length(chance_of_end(0, 0, limit), limit))
    documents = distill.documents_share / (1 - distill.documents_share) * distill.rows * settings.midtrain.window
    label, taught = (documents, rows) if chosen.scores_with_teacher else (rows + documents, 0.0)
    parts: list[Work] = [Loading(2), Training(steps, label, taught)]
    if on_policy:
        parts.append(Generating(on_policy, on_policy * PROMPT_TOKENS, limit, calls=steps))
        parts += sampling_clean_replies(PROMPT_TOKENS, limit) * chosen.scores_with_teacher
    if distill.probe_every:
        probes = 1 + (steps - 1) // distill.probe_every
        parts.append(Measuring(Workload([_public(PROBE_SHARE)]), probes))
    yield StageWork("distill", f"distilling ({steps:,} steps)", parts)


def _replies(settings: Settings, rows: int) -> Generating:
    return Generating(rows, rows * PROMPT_TOKENS, settings.distill.max_new_tokens)


def _public(share: float) -> Replies:
    rows = round(share * PUBLIC_PROMPTS)
    return Replies(rows, rows * PROMPT_TOKENS, PUBLIC_NEW_TOKENS)
