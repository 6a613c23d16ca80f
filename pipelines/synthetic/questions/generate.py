"""From passages to questions worth asking: the base can answer them with the passage in view, and not without it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from evals.contamination import remove_contaminated
from evals.subject import Subject, strip_thinking
from evals.suites.answer_grading import normalized_words
from evals.suites.knowledge import Question, matches_reference
from pipelines.synthetic.filter_counts import Tally
from pipelines.synthetic.questions.parse import Draft, drafts_in, request
from pipelines.synthetic.questions.rules import same_question, why_not
from recovery.engines import Sampling
from recovery.errors import RecoverError

TRIED = 8  # passages about which a base that can write questions has written at least one
AT_ONCE = 16  # passages
ROOM, ANSWER_ROOM = 512, 64  # tokens
LEAKED = 8  # words in a row that a question shares with an evaluation item

WITH_PASSAGE = "Passage:\n{passage}\n\nAnswer in a few words, from the passage: {question}"

Passage = tuple[str, str]  # where it stands, what it says


@dataclass(frozen=True)
class Kept:
    question: str
    answer: str
    source: str
    passage: str


def ask_about(
    subject: Subject,
    passages: Iterable[Passage],
    report: Tally,
    *,
    each: int = 3,
    evaluations: Sequence[str] = (),
    seed: int = 0,
) -> Iterator[Kept]:
    """Questions as they are found, at most `each` a passage; none that repeats one of the evaluations' items."""
    judge = _Judge(subject, evaluations, report)
    waiting = iter(passages)
    while some := list(islice(waiting, TRIED if not report.passages else AT_ONCE)):
        asked = [subject.chat.prompt(request(passage, each)) for _, passage in some]
        sampling = Sampling(ROOM, temperature=0.7, seed=(seed * 1_000_003 + report.passages) % 2**31)
        replies = [strip_thinking(subject.chat.text(g.tokens)) for g in subject.engine.generate(asked, sampling)]
        drafts = [
            (place, draft) for place, reply in zip(some, replies, strict=True) for draft in drafts_in(reply)[:each]
        ]
        report.passages += len(some)
        report.written += len(drafts)
        if not report.written:
            raise RecoverError(
                f"the base wrote no question that can be read about the first {report.passages} passages, so it "
                "cannot write them: write some yourself (JSONL, a question and an answer a line, for --questions), "
                "name a more capable model with --base, or do without: then recall of the documents is measured"
            )
        for kept in judge.worth_asking(drafts):
            report.kept += 1
            yield kept


@dataclass
class _Judge:
    subject: Subject
    evaluations: Sequence[str]
    report: Tally
    asked: dict[frozenset[str], list[Draft]] = field(default_factory=dict)  # by their answers' words

    def worth_asking(self, drafts: list[tuple[Passage, Draft]]) -> list[Kept]:
        fine = [(passage, draft) for passage, draft in drafts if self._is_fine(draft, passage[1])]
        checked = remove_contaminated([d.question for _, d in fine], self.evaluations, LEAKED)
        leaked = {match.prompt for match in checked.contaminated}
        fine = self._dropping(fine, "an evaluation holds it", [d.question in leaked for _, d in fine])
        shown = [WITH_PASSAGE.format(passage=passage, question=d.question) for (_, passage), d in fine]
        fine = self._dropping(fine, "not answered with the passage in view", [not r for r in self._right(fine, shown)])
        bare = [d.question for _, d in fine]
        fine = self._dropping(fine, "known without the passage", self._right(fine, bare))
        return [Kept(d.question, d.answer, source, passage) for (source, passage), d in fine]

    def _is_fine(self, draft: Draft, passage: str) -> bool:
        reason = why_not(draft, passage)
        before = self.asked.setdefault(frozenset(normalized_words(draft.answer)), [])
        if not reason and any(same_question(draft, other) for other in before):
            reason = "asked already"
        if reason:
            self.report.dropped[reason] += 1
        else:
            before.append(draft)
        return not reason

    def _dropping(
        self, drafts: list[tuple[Passage, Draft]], reason: str, dropped: list[bool]
    ) -> list[tuple[Passage, Draft]]:
        if any(dropped):
            self.report.dropped[reason] += sum(dropped)
        return [draft for draft, gone in zip(drafts, dropped, strict=True) if not gone]

    def _right(self, drafts: list[tuple[Passage, Draft]], asked: list[str]) -> list[bool]:
        answers = self.subject.answer(asked, ANSWER_ROOM) if asked else []
        return [
            matches_reference(answer.text, Question(draft.question, draft.answer))
            for answer, (_, draft) in zip(answers, drafts, strict=True)
        ]
