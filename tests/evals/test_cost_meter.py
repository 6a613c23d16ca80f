from evals.results import Metric, Result, Tokens
from evals.subject import CostMeter, Subject, with_cost_meter
from evals.suites.knowledge import Question, measure_questions
from recovery.engines import Sampling
from tests.evals.fakes import fake_subject


def test_tokens_read_and_written_are_counted() -> None:
    meter, model = CostMeter(), fake_subject("four")
    subject = Subject(meter.wrap(model.engine), model.chat)
    subject.complete([[65, 66, 67], [65]], 99)
    subject.engine.logprobs([[1, 2, 3, 4, 5]])
    _, tokens = meter.cost()
    assert tokens == Tokens(read=3 + 1 + 5, written=2 * len("four."))  # includes the end-of-turn token
    subject.engine.continuation_logprobs([[1, 2], [1, 2], [3]], [[4], [5, 6], [7]])  # equal contexts are read once
    assert meter.cost()[1].read == 9 + 2 + 1 + 4
    subject.engine.generate([[65]], Sampling(2))
    assert meter.cost()[1].written == 12


def test_every_measurement_counts_its_own_tokens() -> None:
    subject = fake_subject("Ada")
    first, second = (measure_questions(subject, [Question("Who?", "Ada")], data="q") for _ in range(2))
    assert first.tokens == second.tokens
    prompt, reply = len("<user>Who?<assistant>"), len("Ada")
    assert first.tokens == Tokens(read=prompt + prompt + reply, written=reply + 1)
    repeated, cost = with_cost_meter(subject)
    assert cost()[1] == Tokens(0, 0)
    repeated.answer(["Who?"], 9)
    assert cost()[1] == Tokens(prompt, reply + 1)


def test_the_cost_is_in_the_json() -> None:
    metrics = {"match": Metric.from_passes([True])}
    row = Result("t", "behaviour", "d", metrics, [], {}, 2.0004, Tokens(300, 100)).to_json()
    assert row["cost"] == {"tokens_read": 300, "tokens_written": 100, "tokens_per_second": 200.0}
    assert Result("t", "behaviour", "d", metrics, [], {}, 2.0).to_json()["cost"] is None
