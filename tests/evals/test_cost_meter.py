from evals.cost_meter import CostMeter, with_cost_meter
from evals.results import Metric, Result, Tokens
from evals.subject import Subject
from evals.suites.knowledge import Question, measure_questions
from recovery.engines import Sampling
from tests.evals.fakes import fake_subject


def test_what_is_read_and_written_is_counted() -> None:
    meter, model = CostMeter(), fake_subject("four")
    subject = Subject(meter.over(model.engine), model.chat)
    subject.complete([[65, 66, 67], [65]], 99)
    subject.engine.logprobs([[1, 2, 3, 4, 5]])
    _, tokens = meter.spent()
    assert tokens == Tokens(read=3 + 1 + 5, written=2 * len("four."))  # the end of a reply is a token, too
    subject.engine.generate([[65]], Sampling(2))
    assert meter.spent()[1].written == 12


def test_each_measurement_counts_its_own() -> None:
    subject = fake_subject("Ada")
    first, second = (measure_questions(subject, [Question("Who?", "Ada")], data="q") for _ in range(2))
    assert first.tokens == second.tokens
    asked, answered = len("<user>Who?<assistant>"), len("Ada")
    assert first.tokens == Tokens(read=asked + asked + answered, written=answered + 1)
    again, spent = with_cost_meter(subject)
    assert spent()[1] == Tokens(0, 0)
    again.answer(["Who?"], 9)
    assert spent()[1] == Tokens(asked, answered + 1)


def test_the_cost_is_told_with_the_numbers() -> None:
    metrics = {"match": Metric.from_passes([True])}
    told = Result("t", "behaviour", "d", metrics, [], {}, 2.0004, Tokens(300, 100)).to_json()
    assert told["cost"] == {"tokens_read": 300, "tokens_written": 100, "tokens_per_second": 200.0}
    assert Result("t", "behaviour", "d", metrics, [], {}, 2.0).to_json()["cost"] is None
