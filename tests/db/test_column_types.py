import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from db.column_types import PlainJson, UtcTime, storable
from db.tables import Checkpoint, Project
from db.tracker import Tracker
from tests.db.seeded import store_verdict

few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=zones)


@few
@given(time=times)
def test_a_time_stays_the_same_time(engine: Engine, time: datetime) -> None:
    with Session(engine) as session:
        session.add(Project(name="a", root=".", base="lab", created_at=time))
        session.flush()
        session.expire_all()
        stored = session.scalars(select(Project)).one().created_at
    assert stored == time
    assert stored.tzinfo is UTC


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        UtcTime().process_bind_param(datetime(2026, 1, 1), None)  # type: ignore[arg-type]


@few
@given(text=st.text(st.characters(), max_size=20))
def test_any_text_a_model_can_write_is_stored(engine: Engine, text: str) -> None:
    with Session(engine) as session:
        session.add(Project(name=text, root="\x00", base="\ud800"))
        session.flush()
        session.expire_all()
        stored = session.scalars(select(Project)).one()
        assert (stored.name, stored.root, stored.base) == (storable(text), "␀", "�")
    if "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert storable(text) == text


def test_json_turns_numbers_that_are_not_finite_into_null(engine: Engine, tracker: Tracker, project: int) -> None:
    verdict: dict[str, Any] = {
        "passed": True,
        "low": math.nan,
        "many": (1, 2.5, None, math.inf),
        "text": "a\x00b",
        "at": Path("/a"),
    }
    checkpoint = tracker.checkpoint(project, "recovered", "run-1")
    store_verdict(tracker, checkpoint, verdict)
    with Session(engine) as session:
        stored = session.scalars(select(Checkpoint)).one().verdict
    assert stored == {"passed": True, "low": None, "many": [1, 2.5, None, None], "text": "a␀b", "at": "/a"}


@few
@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_converting_to_plain_json_twice_changes_nothing(value: Any) -> None:
    once = PlainJson().process_bind_param(value, None)  # type: ignore[arg-type]
    assert PlainJson().process_bind_param(once, None) == once  # type: ignore[arg-type]
