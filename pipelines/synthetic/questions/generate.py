"""Generate closed-book questions from passages, and keep those that the base answers only with the passage."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from evals.contamination import remove_contaminated
from evals.subject import Subject, strip_thinking
from evals.suites.answer_grading import normalized_words
from evals.suites.knowledge import Question, matches_reference
from pipelines.synthetic.filter_counts import FilterCounts
from pipelines.synthetic.questions.parse import Draft, parse_drafts, question_prompt
from pipelines.synthetic.questions.question_filters import is_same_question, rejection_reason
from recovery.engines import Sampling
from recovery.errors import RecoverError

FIRST_BATCH = 8  # passages: a capable base has written at least one question about these
BATCH = 16  # passages
MAX_REPLY_TOKENS, MAX_ANSWER_TOKENS = 512, 64
ALTERNATIVE = (
    "Write questions yourself for --questions (JSONL with a question and an answer in each line), "
    "name a more capable model with --base, or do without: then recall of the documents is measured."
)
LEAKED_WORDS = 8  # consecutive words that a question shares with an evaluation item

OPEN_BOOK_PROMPT = "Passage:\n{passage}\n\nAnswer in a few words, from the passage: {question}"

Passage = tuple[str, str]  # (source, text)


@dataclass(frozen=True)
class GeneratedQuestion:
    question: str
    answer: str
    source: str
    passage: str


def generate_questions(
    subject: Subject,
    passages: Iterable[Passage],
    counts: FilterCounts,
    *,
    per_passage: int = 3,
    evaluation_items: Sequence[str] = (),
    seed: int = 0,
    alternative: str = ALTERNATIVE,
) -> Iterator[GeneratedQuestion]:
    """Yield the questions that pass all filters, and add to `counts`.

    No question repeats one of the evaluation items. Raises, with the `alternative` as advice, if the base writes no
    question about the first passages."""
    filters = _Filters(subject, evaluation_items, counts)
    remaining = iter(passages)
    while batch := list(islice(remaining, BATCH if counts.passages else FIRST_BATCH)):
        prompts = [subject.chat.prompt(question_prompt(text, per_passage)) for _, text in batch]
        sampling = Sampling(MAX_REPLY_TOKENS, temperature=0.7, seed=(seed * 1_000_003 + counts.passages) % 2**31)
        replies = [strip_thinking(subject.chat.text(g.tokens)) for g in subject.engine.generate(prompts, sampling)]
        drafts = [
            (passage, draft)
            for passage, reply in zip(batch, replies, strict=True)
            for draft in parse_drafts(reply)[:per_passage]
        ]
        counts.passages += len(batch)
        counts.written += len(drafts)
        if not counts.written:
            raise RecoverError(
                "The base is not capable of writing questions: its replies on the first "
                f"{counts.passages} passages contain no question. {alternative}"
            )
        for question in filters.accept(drafts):
            counts.kept += 1
            yield question


@dataclass
class _Filters:
    subject: Subject
    evaluation_items: Sequence[str]
    counts: FilterCounts
    by_answer: dict[frozenset[str], list[Draft]] = field(default_factory=dict)  # drafts that passed the rules

    def accept(self, drafts: list[tuple[Passage, Draft]]) -> list[GeneratedQuestion]:
        """The drafts that pass all filters, the cheap ones first."""
        drafts = [(passage, draft) for passage, draft in drafts if self._passes_rules(draft, passage[1])]
        checked = remove_contaminated([d.question for _, d in drafts], self.evaluation_items, LEAKED_WORDS)
        leaked = {match.prompt for match in checked.contaminated}
        drafts = self._drop(drafts, "repeats an evaluation item", [d.question in leaked for _, d in drafts])
        open_book = [OPEN_BOOK_PROMPT.format(passage=text, question=d.question) for (_, text), d in drafts]
        wrong = [not correct for correct in self._grade(drafts, open_book)]
        drafts = self._drop(drafts, "not answered with the passage", wrong)
        closed_book = [d.question for _, d in drafts]
        drafts = self._drop(drafts, "answered without the passage", self._grade(drafts, closed_book))
        return [GeneratedQuestion(d.question, d.answer, source, text) for (source, text), d in drafts]

    def _passes_rules(self, draft: Draft, passage: str) -> bool:
        reason = rejection_reason(draft, passage)
        same_answer = self.by_answer.setdefault(frozenset(normalized_words(draft.answer)), [])
        if not reason and any(is_same_question(draft, other) for other in same_answer):
            reason = "repeats another question"
        if reason:
            self.counts.dropped[reason] += 1
        else:
            same_answer.append(draft)
        return not reason

    def _drop(
        self, drafts: list[tuple[Passage, Draft]], reason: str, dropped: list[bool]
    ) -> list[tuple[Passage, Draft]]:
        if any(dropped):
            self.counts.dropped[reason] += sum(dropped)
        return [draft for draft, drop in zip(drafts, dropped, strict=True) if not drop]

    def _grade(self, drafts: list[tuple[Passage, Draft]], prompts: list[str]) -> list[bool]:
        """Whether the base's answer to each prompt is correct."""
        answers = self.subject.answer(prompts, MAX_ANSWER_TOKENS) if prompts else []
        return [
            matches_reference(answer.text, Question(draft.question, draft.answer))
            for answer, (_, draft) in zip(answers, drafts, strict=True)
        ]
