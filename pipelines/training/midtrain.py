"""Mid-training: the student reads the new documents, beside a mix that keeps what it knows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from db.run_inputs import RunInputs
from db.views import Checkpoint
from pipelines.cache import ContentCache
from pipelines.documents import document_end, tokenize_documents
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.log import log
from pipelines.models import device, open_engine
from pipelines.project.runs import run_of_stage
from pipelines.settings import AUTO, fixed_answers_share, split_rows
from pipelines.synthetic.answers import answer_rows
from pipelines.synthetic.paraphrased_corpus import ParaphrasedCorpus
from pipelines.synthetic.prefixes import EARLIER_DOMAIN
from pipelines.synthetic.texts import GeneratedTexts
from pipelines.training.base_outputs import BaseOutputs
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.mix_search import SHARES, AnswersSearch, search_share, trial_steps
from pipelines.training.probe_results import ProbeScores
from pipelines.training.probes import MidtrainProbe
from pipelines.training.run import RunResult, TrainingRun, log_event_once
from pipelines.training.stage import Stage
from pipelines.training.teachers import Teachers
from recovery.models.chat import Chat
from recovery.models.students import Student, load_chat
from recovery.recipes import objective_of, recipe, signal_of
from recovery.states import Documents, FixedRows, Mixture, States
from recovery.teachers import Teacher
from recovery.train import Plan, train

Readable = CorpusSnapshot | ParaphrasedCorpus | GeneratedTexts


def midtrain(
    stage: Stage,
    corpus: CorpusSnapshot,
    start: Checkpoint,
    earlier: Sequence[CorpusSnapshot] = (),
    probe: MidtrainProbe | None = None,
) -> RunResult:
    """Train `start` on all tokens of the documents; `earlier` are the documents of earlier cycles."""
    settings = stage.settings.midtrain
    data = MidtrainData.of(stage, corpus, start, earlier)
    steps = settings.steps(len(data.documents.windows), data.documents.rows)
    search = answers_search(stage, data, steps, probe) if settings.mix.answers == AUTO else None
    share = search.share if search else fixed_answers_share(stage.settings)
    answers = data.answers(share)
    student, plan = stage.load_student(start), _plan(stage, steps)
    log.info(
        f"Mid-training on {corpus.files} file{'s' * (corpus.files != 1)}, {data.documents.tokens:,} tokens: "
        f"{steps} steps from {start.reference}{data.describe_mix(share if answers else 0.0)}"
    )
    inputs = RunInputs(
        job=stage.job.id,
        stage="midtrained",
        corpus=corpus.hash,
        questions=_path(stage.job.eval_plan.questions),
        passages=_path(stage.job.eval_plan.passages),
        mix=data.shares(share if answers else 0.0),
        answers_search=search.as_json() if search else None,
        paraphrases=data.paraphrase_counts,
    )
    with stage.recorded_run("midtrain", steps, inputs) as run:
        chosen = recipe(settings.recipe)
        teacher = data.teacher(student, bool(answers))
        training = TrainingRun(
            stage=stage,
            run=run,
            role="midtrained",
            start=start,
            student=student,
            states=data.states(answers),
            signal=signal_of(chosen, teacher),
            objective=objective_of(chosen),
            plan=plan,
            monitor=EarlyStopping(),
        )
        if search and search.tried:
            message = f"The share of answers, {search.share:g}, was chosen by trying {', '.join(search.tried)}"
            log_event_once(stage.project, run, message)
        return replace(training.run_to_end(), answers_search=search.as_json() if search else None)


@dataclass(frozen=True)
class MidtrainData:
    """The rows of every step: new documents and their paraphrases, documents of earlier cycles, the base's texts."""

    stage: Stage
    base: BaseOutputs
    start: Checkpoint
    documents: Documents
    beside: list[Documents] = field(default_factory=list)
    earlier_rows: int = 0
    earlier_corpora: int = 0
    text_rows: int = 0
    read: tuple[Readable, ...] = ()
    paraphrase_counts: dict[str, Any] | None = None

    @classmethod
    def of(
        cls, stage: Stage, corpus: CorpusSnapshot, start: Checkpoint, earlier: Sequence[CorpusSnapshot]
    ) -> "MidtrainData":
        settings, chat = stage.settings.midtrain, load_chat(start.path)
        base = BaseOutputs(stage.project, stage.settings, stage.generation_seed)
        texts = base.texts()
        shares = settings.mix.earlier if earlier else 0.0, settings.mix.texts if texts else 0.0
        earlier_rows, text_rows = split_rows(settings.rows, shares)
        new: list[Readable] = [corpus]
        counts = None
        if settings.mix.paraphrases:
            paraphrased = _paraphrase(stage, corpus)
            new.append(paraphrased)
            counts = paraphrased.counts.as_dict()
        documents = _documents(stage, chat, new, settings.rows - earlier_rows - text_rows)
        beside = []
        if earlier_rows:
            soft = _soft_earlier_rows(earlier_rows)
            beside.append(_documents(stage, chat, earlier, earlier_rows, soft=soft, domain=EARLIER_DOMAIN))
        if text_rows:
            beside.append(_documents(stage, chat, texts, text_rows, soft=text_rows))
        return cls(
            stage,
            base,
            start,
            documents,
            beside,
            earlier_rows,
            len(earlier),
            text_rows,
            (*new, *earlier),
            counts,
        )

    def answers(self, share: float) -> list[FixedRows]:
        """The base's answers, so many rows beside the documents that they make up the share of all taught tokens."""
        settings, seed = self.stage.settings.midtrain, self.stage.job.seed
        if not share:
            return []
        rows = self.base.answers_if_possible()
        return [answer_rows(rows, share, settings.rows * settings.window, seed=seed)] if rows else []

    def states(self, answers: Iterable[States]) -> Mixture:
        return Mixture(self.documents, *self.beside, *answers)

    def teacher(self, student: Student, has_answers: bool) -> Teacher | None:
        """Who gives the soft labels: the base of what it wrote, the last promoted model of earlier documents."""
        written_by_base = bool(self.text_rows) or has_answers
        promoted = self.start if self.earlier_rows else None
        if not self.stage.settings.midtrain.soft_labels or not (written_by_base or promoted):
            return None
        teachers = Teachers(self.stage.project.clean, promoted)
        if promoted and not written_by_base:  # no row is the base's
            teachers = Teachers(promoted)
        return teachers.load(student, device())

    def shares(self, answers: float) -> dict[str, float]:
        rows = self.stage.settings.midtrain.rows
        return {"answers": answers, "texts": self.text_rows / rows, "earlier": self.earlier_rows / rows}

    def describe_mix(self, answers: float) -> str:
        settings, parts = self.stage.settings.midtrain, list[str]()
        if self.earlier_rows:
            soft = f", {_soft_earlier_rows(self.earlier_rows)} of them with soft labels" if settings.soft_labels else ""
            plural = "us" if self.earlier_corpora == 1 else "ora"
            parts.append(
                f"{self.earlier_rows} of {settings.rows} rows from {self.earlier_corpora} earlier corp{plural}{soft}"
            )
        if self.text_rows:
            parts.append(f"{self.text_rows} of {settings.rows} rows from texts by the clean base")
        if answers:
            parts.append(f"{answers:.0%} answers by the clean base")
        return "".join(f"; {part}" for part in parts)


def answers_search(stage: Stage, data: MidtrainData, steps: int, probe: MidtrainProbe | None) -> AnswersSearch:
    """Choose the share of answers by short mid-trainings; a run that was started keeps the share it has."""
    started = run_of_stage(stage.project, stage.job.id, "midtrained")
    if started and started.inputs.answers_search:
        return AnswersSearch.from_json(started.inputs.answers_search)
    if probe is None:
        default = data.base.defaults.mix.answers
        assert default != AUTO
        log.info(f"There are too few questions to search the share of answers; taking the default, {default:g}")
        return AnswersSearch(float(default), {})
    trial = _trial(stage, data, trial_steps(steps), probe)
    lengths = f"{len(SHARES)} short mid-trainings of {trial_steps(steps)} steps"
    log.info(f"Trying shares of answers: {', '.join(f'{share:g}' for share in SHARES)} ({lengths} of {steps})")
    _ = data.base.answers  # a base that cannot answer is an error before anything is trained
    inputs = _search_inputs(stage, data, trial_steps(steps), probe)
    return search_share(trial, ContentCache(stage.project.home / "cache"), inputs, trial_steps(steps))


def _trial(stage: Stage, data: MidtrainData, steps: int, probe: MidtrainProbe) -> Callable[[float], ProbeScores]:
    def trial(share: float) -> ProbeScores:
        student, plan, chosen = (
            stage.load_student(data.start),
            _plan(stage, steps),
            recipe(stage.settings.midtrain.recipe),
        )
        states = data.states(data.answers(share))
        signal = signal_of(chosen, data.teacher(student, share > 0))
        for _ in train(student, states, signal, objective_of(chosen), plan):
            pass
        with open_engine(student, stage.settings.engine) as engine:
            return probe(student, engine)

    return trial


def _search_inputs(stage: Stage, data: MidtrainData, steps: int, probe: MidtrainProbe) -> list[Any]:
    """Everything that a trial's scores depend on, besides its share."""
    settings, weights = stage.settings, stage.project.weights_id(data.start)
    training = [settings.midtrain.model_dump(), settings.lora_rank, settings.bf16, settings.engine]
    answers = [
        stage.project.base_weights_id,
        stage.generation_seed,
        settings.distill.prompts,
        settings.distill.max_new_tokens,
    ]
    read = [corpus.hash for corpus in data.read]
    return [weights, read, steps, stage.job.seed, training, answers, probe.key(weights)]


def _paraphrase(stage: Stage, corpus: CorpusSnapshot) -> ParaphrasedCorpus:
    base = BaseOutputs(stage.project, stage.settings, stage.job.seed)
    paraphrased = base.paraphrases(corpus)
    log.info(f"The clean base writes up to {stage.settings.midtrain.mix.paraphrases} paraphrases of each passage")
    paraphrased.write(base.open_base)
    return paraphrased


def _documents(
    stage: Stage,
    chat: Chat,
    corpora: Iterable[Readable],
    rows: int,
    soft: int = 0,
    domain: str | None = None,
) -> Documents:
    settings, cache = stage.settings.midtrain, stage.project.home / "cache"
    tokenizer = chat.tokenizer
    ids = [
        document for corpus in corpora for document in tokenize_documents(corpus.texts, tokenizer, cache, corpus.hash)
    ]
    return Documents(
        ids,
        document_end(tokenizer),
        window=settings.window,
        rows=rows,
        seed=stage.job.seed,
        cross_document_attention=settings.cross_document_attention,
        begin_id=chat.document_bos,
        soft_rows=soft,
        domain=domain,
    )


def _soft_earlier_rows(rows: int) -> int:
    """Half (rounded up) of the earlier rows get soft labels from the last promoted model; the others, their tokens."""
    return -(-rows // 2)


def _plan(stage: Stage, steps: int) -> Plan:
    return stage.plan(steps, stage.settings.midtrain.learning_rate, warmup=min(10, steps // 10))


def _path(file: Any) -> str | None:
    return str(file.resolve()) if file else None
