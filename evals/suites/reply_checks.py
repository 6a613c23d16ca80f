"""Whether a reply to a row of training data is right: by the row's `checks`, or by its short `answer`.

These are the checks of a suite of one's own (`evals.suites.custom_checks`). A solution that ends in `#### 42`, as in
GSM8K, has a short answer too.
"""

from collections.abc import Callable
from dataclasses import dataclass

from evals.jsonl import Row
from evals.subject import Answer
from evals.suites.answer_grading import last_number_matches, matches, normalized_words
from evals.suites.custom_checks import parse_task

MAX_ANSWER_WORDS = 8  # a longer answer is an example: a right reply need not contain it
FINAL_ANSWER = "####"
ANSWER_FIELDS = ("answer", "solution")
CHECK_FIELDS = ("checks", *ANSWER_FIELDS)  # of a row: all that decides which replies are right


@dataclass(frozen=True)
class ReplyCheck:
    passes: Callable[[Answer], bool]

    def __call__(self, text: str, finished: bool = True) -> bool:
        return self.passes(Answer(text, finished))


def reply_check(row: Row, prompt_text: str) -> ReplyCheck | None:
    """None if the row says nothing that a reply could be checked by."""
    location, fields = row
    if fields.get("checks"):
        checks = parse_task((location, {"prompt": prompt_text, "checks": fields["checks"]})).checks
        return ReplyCheck(lambda answer: all(passes(answer) for _, passes in checks))
    for name in ANSWER_FIELDS:
        text = str(fields.get(name) or "")
        reference = text.rpartition(FINAL_ANSWER)[2].strip() if FINAL_ANSWER in text else text.strip()
        is_short = 0 < len(normalized_words(reference)) <= MAX_ANSWER_WORDS
        if is_short and (name == "answer" or FINAL_ANSWER in text):
            return _by_reference(reference, prompt_text)
    return None


def _by_reference(reference: str, prompt_text: str) -> ReplyCheck:
    if _is_number(reference):
        return ReplyCheck(lambda answer: last_number_matches(answer.text, reference))
    return ReplyCheck(lambda answer: matches(answer.text, reference, prompt_text))


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True
