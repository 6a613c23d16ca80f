"""How long a job will take on this machine, stage by stage, and how much memory: known before it begins."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from db.errors import RecordError
from pipelines.documents import count_tokens, document_start
from pipelines.documents.passages import MIN_WORDS, passages_of
from pipelines.estimates.job_work import DocumentsSize, JobWork
from pipelines.estimates.memory import peak_memory, process_memory
from pipelines.estimates.shortening import shortening_advice
from pipelines.estimates.stage_times import StageTimes
from pipelines.estimates.work import PROMPT, REPLY, TEXT, mean_length
from pipelines.estimates.workloads import Workloads
from pipelines.jobs.job import Job
from pipelines.log import log
from pipelines.machine.calibration import Rates, ReplyStarts, calibrate, machine_id, relevant_settings
from pipelines.machine.resource_usage import OtherPrograms
from pipelines.progress import duration
from pipelines.project.project import Project
from pipelines.settings.engine_choice import choose_engine
from pipelines.stage_clock import StageEstimate
from pipelines.storage.content_cache import ContentCache
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS, user_turn
from recovery.errors import RecoverError, first_line
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat, parameters_of

SAMPLE_TEXTS = 200  # documents whose tokens are counted; those of the others follow from their characters
MAX_OTHER_LOAD = 0.2  # share of all cores; rates of a busier machine are not kept for the next command
SAMPLE_ITEMS = 20  # prompts of the suite behaviour, of which some show how long replies are


@dataclass(frozen=True)
class JobEstimate:
    stages: tuple[StageEstimate, ...]
    predicted: dict[str, float]  # seconds by the calibration alone
    peak_memory: float
    shorten: str | None
    times: StageTimes

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "peak_memory_bytes": round(self.peak_memory),
            "stages": [{"stage": stage.name, "seconds": round(stage.seconds, 1)} for stage in self.stages],
            "shorten": self.shorten,
            "text": str(self),
        }

    def __str__(self) -> str:
        """Such as "About 58 min: measuring the clean model 7 min, …; peak memory about 9 GB"."""
        stages = ", ".join(f"{stage.name} {duration(stage.seconds)}" for stage in self.stages if stage.seconds >= 0.5)
        return (
            f"About {duration(self.seconds)}{f': {stages}' if stages else ''}; "
            f"peak memory about {self.peak_memory / 1e9:.1f} GB"
        )

    def store_time(self, key: str, took: float) -> None:
        """Remember what a stage took, for the next estimate."""
        self.times.store(key, took, self.predicted.get(key, 0.0))


def try_estimate(project: Project, job: Job, texts: Iterable[str] | None) -> JobEstimate | None:
    """The estimate; None, with a message, where the model cannot be tried. No job fails for that."""
    try:
        return estimate_job(project, job, texts)
    except (RecoverError, RecordError, RuntimeError, OSError, ValueError) as error:
        log.warning(f"There is no estimate of how long it takes: {first_line(error)}")
        return None


def estimate_job(project: Project, job: Job, texts: Iterable[str] | None) -> JobEstimate:
    """`texts` are the documents of a job that mid-trains."""
    chat, resident = load_chat(project.base), process_memory()
    engine, parameters = choose_engine(job.settings.engine, parameters_of(project.base)), parameters_of(project.base)
    workloads, cache = Workloads(project, chat), ContentCache(project.home / "cache")
    key = [project.base_weights_id, machine_id(), relevant_settings(job.settings, engine)]
    rates = _rates(cache, key, project, job, engine, workloads)
    limit = job.settings.distill.max_new_tokens
    prompt_tokens = len(chat.prompt("")) + mean_length(rates.ends.get(PROMPT, 0.05), MAX_PROMPT_TOKENS)
    work = JobWork(
        project,
        job,
        documents_size(texts, chat) if texts is not None else None,
        workloads,
        mean_length(rates.ends[REPLY], limit),
        prompt_tokens,
    )
    planned = work.stages()
    times = StageTimes(cache.path("stage-times", key))
    predicted = {stage.key: stage.seconds(rates) for stage in planned}
    stages = tuple(
        StageEstimate(stage.key, stage.name, predicted[stage.key] * times.factor(stage.key)) for stage in planned
    )
    generating = sum(e.seconds for e, stage in zip(stages, planned, strict=True) if stage.generates)
    longest = max((reply.max_new_tokens for reply in work.measured.replies), default=limit)
    memory = peak_memory(project.base, job.settings, work.teachers, rates, prompt_tokens, max(longest, limit))
    advice = shortening_advice(job, stages, generating, engine, parameters)
    return JobEstimate(stages, predicted, resident + memory, advice, times)


def _rates(cache: ContentCache, key: list[Any], project: Project, job: Job, engine: str, workloads: Workloads) -> Rates:
    if cache.path("calibration", key).is_file():
        return Rates(**cache.get_or_write("calibration", key, dict))
    log.info("Trying the model for a few seconds, to estimate how long everything takes")
    others = OtherPrograms()
    rates = calibrate(project.base, job.settings, engine, _starts(project, job, workloads))
    if (share := others.share()) > MAX_OTHER_LOAD:
        log.warning(f"Other programs use {share:.0%} of the processor: the estimate is for a machine as busy as that")
    else:
        cache.get_or_write("calibration", key, rates.as_json)
    return rates


def _starts(project: Project, job: Job, workloads: Workloads) -> ReplyStarts:
    """What the calibration continues: prompts of the evaluation, an empty user turn, an empty document."""
    chat, settings = workloads.chat, job.settings
    plan = replace(
        job.eval_plan,
        suite="behaviour",
        limit=SAMPLE_ITEMS,
        split="all",
        earlier_questions=(),
        public_ifeval=bool(job.eval_plan.public_ifeval),
    )
    workload = workloads.of(plan)
    limit = max((replies.max_new_tokens for replies in workload.replies), default=settings.distill.max_new_tokens)
    starts: ReplyStarts = {
        REPLY: (workload.prompts or [chat.prompt("Hello!")], limit),
        TEXT: ([[document_start(chat)]], settings.midtrain.window),
    }
    with suppress(RecoverError):  # a base without a chat template cannot write prompts
        starts[PROMPT] = ([user_turn(chat)], MAX_PROMPT_TOKENS)
    return starts


def documents_size(texts: Iterable[str], chat: Chat) -> DocumentsSize:
    texts = iter(texts)
    sample = list(islice(texts, SAMPLE_TEXTS))
    characters, tokens = sum(map(len, sample)), count_tokens(sample, chat.tokenizer)
    passages = sum(1 for text in sample for _ in passages_of(text, MIN_WORDS))
    documents, all_characters = len(sample), characters
    for text in texts:
        documents += 1
        all_characters += len(text)
    scale = all_characters / max(1, characters)
    return DocumentsSize(round(tokens * scale) + documents, round(passages * scale))
