"""The training mix: the rows that every step of mid-training reads, and who gives soft labels for them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from db.tables import Checkpoint
from pipelines.documents import tokenize_documents
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.log import log
from pipelines.settings.schema import split_rows
from pipelines.synthetic.answers import answer_rows
from pipelines.synthetic.paraphrased_corpus import ParaphrasedCorpus
from pipelines.synthetic.prefixes import EARLIER_DOMAIN
from pipelines.synthetic.unprompted_texts import GeneratedTexts
from pipelines.training.base_model_outputs import BaseOutputs
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers, TrainingSource
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import Recipe
from recovery.states import Documents, FixedRows, Mixture, States

Readable = CorpusSnapshot | ParaphrasedCorpus | GeneratedTexts


@dataclass(frozen=True)
class TrainingMix:
    """The rows of every step: new documents and their paraphrases, documents of earlier cycles, the base's texts."""

    stage: Stage
    base: BaseOutputs
    start: Checkpoint
    chat: Chat
    documents: Documents
    beside: list[Documents] = field(default_factory=list)
    earlier_rows: int = 0
    earlier_corpora: int = 0
    text_rows: int = 0
    paraphrase_counts: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        stage: Stage,
        corpus: CorpusSnapshot,
        start: Checkpoint,
        earlier: Sequence[CorpusSnapshot],
        measured: int | None = None,
    ) -> "TrainingMix":
        """`measured` is the token between documents, where the vocabulary does not decide it."""
        settings, chat = stage.settings.midtrain, load_chat(start.path)
        chat = chat if measured is None else chat.with_separator(measured)
        base = BaseOutputs(stage.project, stage.settings, stage.generation_seed, measured)
        texts = base.texts()
        shares = settings.mix.earlier if earlier else 0.0, settings.mix.texts if texts else 0.0
        earlier_rows, text_rows = split_rows(settings.step_rows, shares)
        new: list[Readable] = [corpus]
        counts = None
        if settings.mix.paraphrases:
            paraphrased = _paraphrase(stage, corpus)
            new.append(paraphrased)
            counts = paraphrased.counts.as_dict()
        documents = document_rows(stage, chat, new, settings.step_rows - earlier_rows - text_rows)
        beside = []
        if earlier_rows:
            soft = _soft_earlier_rows(earlier_rows)
            beside.append(document_rows(stage, chat, earlier, earlier_rows, soft=soft, domain=EARLIER_DOMAIN))
        if text_rows:
            beside.append(document_rows(stage, chat, texts, text_rows, soft=text_rows))
        return cls(
            stage,
            base,
            start,
            chat,
            documents,
            beside,
            earlier_rows,
            len(earlier),
            text_rows,
            counts,
        )

    def answers(self, share: float) -> list[FixedRows]:
        """The base's answers, so many rows beside the documents that they make up the share of all taught tokens."""
        settings, seed = self.stage.settings.midtrain, self.stage.job.seed
        if not share:
            return []
        rows = self.base.answers_if_possible()
        return [answer_rows(rows, share, settings.step_rows * settings.window, seed=seed)] if rows else []

    def states(self, answers: Iterable[States]) -> Mixture:
        return Mixture(self.documents, *self.beside, *answers)

    def teachers(self, has_answers: bool) -> Teachers | None:
        """Who gives the soft labels: the base of what it wrote, the last promoted model of earlier documents."""
        written_by_base = bool(self.text_rows) or has_answers
        promoted = self.start if self.earlier_rows else None
        if not self.stage.settings.midtrain.soft_labels or not (written_by_base or promoted):
            return None
        if promoted and not written_by_base:  # no row is the base's
            return Teachers(promoted)
        return Teachers(self.stage.project.clean, {EARLIER_DOMAIN: promoted} if promoted else {})

    def source(self, recipe: Recipe, has_answers: bool) -> TrainingSource:
        return TrainingSource(
            self.start.path,
            self.stage.adapter,
            self.stage.settings.bf16,
            recipe,
            self.teachers(has_answers),
            self.chat.separator,
        )

    def shares(self, answers: float) -> dict[str, float]:
        rows = self.stage.settings.midtrain.step_rows
        return {"answers": answers, "texts": self.text_rows / rows, "earlier": self.earlier_rows / rows}

    def describe(self, answers: float) -> str:
        settings, parts = self.stage.settings.midtrain, list[str]()
        if self.earlier_rows:
            soft = f", {_soft_earlier_rows(self.earlier_rows)} of them with soft labels" if settings.soft_labels else ""
            plural = "us" if self.earlier_corpora == 1 else "ora"
            corpora = f"{self.earlier_corpora} earlier corp{plural}"
            parts.append(f"{self.earlier_rows} of {settings.step_rows} rows from {corpora}{soft}")
        if self.text_rows:
            parts.append(f"{self.text_rows} of {settings.step_rows} rows from texts by the clean base")
        if answers:
            parts.append(f"{answers:.0%} answers by the clean base")
        return "".join(f"; {part}" for part in parts)


def _paraphrase(stage: Stage, corpus: CorpusSnapshot) -> ParaphrasedCorpus:
    base = BaseOutputs(stage.project, stage.settings, stage.job.seed)
    paraphrased = base.paraphrases(corpus)
    log.info(f"The clean base writes up to {stage.settings.midtrain.mix.paraphrases} paraphrases of each passage")
    paraphrased.write(base.open_base)
    return paraphrased


def document_rows(
    stage: Stage,
    chat: Chat,
    corpora: Iterable[Readable],
    rows: int,
    soft: int = 0,
    domain: str | None = None,
    use_labels: bool = False,
) -> Documents:
    settings, cache = stage.settings.midtrain, stage.project.home / "cache"
    tokenizer = chat.tokenizer
    ids = [
        document for corpus in corpora for document in tokenize_documents(corpus.texts, tokenizer, cache, corpus.hash)
    ]
    return Documents(
        ids,
        chat.separator,
        window=settings.window,
        rows=rows,
        seed=stage.job.seed,
        cross_document_attention=settings.cross_document_attention,
        begin_id=chat.document_bos,
        soft_rows=soft,
        domain=domain,
        use_labels=use_labels,
    )


def _soft_earlier_rows(rows: int) -> int:
    """Half (rounded up) of the earlier rows get soft labels from the last promoted model; the others, their tokens."""
    return -(-rows // 2)
