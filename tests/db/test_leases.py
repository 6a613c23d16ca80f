"""One process at a time writes to a project; a lease that expired can be taken over, and then the other is refused."""

import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.exc import DBAPIError

from db.column_types import now
from db.database_time import database_time, lease_seconds
from db.engine import open_database
from db.errors import RecordError
from db.leases import Lease, LeaseHeld, LeaseLost, take_lease
from db.queries import Reader
from db.tables import Lease as Row
from db.tracker import Tracker

HERE, THERE = Path("/here"), Path("/there")


def expire(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(update(Row).values(expires_at=database_time(-1)))


@pytest.fixture
def lease(engine: Engine, tracker: Tracker, project: int) -> Lease:
    lease = take_lease(engine, project, HERE, "recover cycle")
    tracker.hold(lease)
    return lease


def test_the_time_is_the_database_s(engine: Engine) -> None:
    with engine.connect() as connection:
        early, late = connection.execute(database_time().select()).scalar(), connection.scalar(database_time(90.5))
    assert early is not None
    assert late is not None
    assert abs((early - now()).total_seconds()) < 5
    assert (late - early).total_seconds() == pytest.approx(90.5, abs=2)


def test_a_lease_excludes_other_folders_until_it_expires(engine: Engine, project: int, lease: Lease) -> None:
    with pytest.raises(LeaseHeld, match=r"`recover cycle` \(process \d+ on .*lasts until .* UTC, in 1\d\d s"):
        take_lease(engine, project, THERE, "recover resume")
    expire(engine)
    taken = take_lease(engine, project, THERE, "recover resume")
    assert (lease.token, taken.token) == (1, 2)
    with pytest.raises(LeaseHeld, match="recover resume"):
        take_lease(engine, project, HERE, "recover cycle")


def test_the_folder_that_held_it_need_not_wait(engine: Engine, project: int, lease: Lease) -> None:
    with pytest.raises(LeaseHeld):  # perhaps another machine with the same name and path
        take_lease(engine, project, HERE, "recover resume")
    assert take_lease(engine, project, HERE, "recover resume", last_token=lease.token).token == 2


def test_two_projects_have_two_leases(engine: Engine, reader: Reader, tracker: Tracker, lease: Lease) -> None:
    other = tracker.project("other", THERE, "lab")
    take_lease(engine, other, THERE, "recover midtrain")
    assert [(one.project, one.command, one.alive) for one in reader.leases()] == [
        ("handbook", "recover cycle", True), ("other", "recover midtrain", True),
    ]  # fmt: skip


def test_every_write_renews_the_lease(engine: Engine, reader: Reader, tracker: Tracker, lease: Lease) -> None:
    expire(engine)
    assert [one.alive for one in reader.leases()] == [False]
    lease.job, lease.progress = "abc", {"stage": "distillation"}
    tracker.corpus("docs", "aaa", files=1, tokens=1)
    (shown,) = reader.leases()
    assert (shown.alive, shown.job, shown.progress) == (True, "abc", {"stage": "distillation"})


def test_a_command_that_writes_nothing_renews_its_lease_too(
    engine: Engine, reader: Reader, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", "0.4")
    with Tracker(engine, pause=0.02) as tracker:
        tracker.hold(take_lease(engine, project, HERE, "recover cycle"))
        time.sleep(1)
        (shown,) = reader.leases()
        assert shown.alive
        with pytest.raises(LeaseHeld):
            take_lease(engine, project, THERE, "recover resume")


def test_nothing_is_written_after_a_takeover(engine: Engine, reader: Reader, tracker: Tracker, project: int) -> None:
    run = tracker.start_run(project, "distill")
    with Tracker(engine, pause=60) as cut_off:
        cut_off.hold(take_lease(engine, project, HERE, "recover cycle"))
        cut_off.step(run, 0, {"loss": 1.0})
        expire(engine)
        take_lease(engine, project, THERE, "recover resume")
        for write in (
            lambda: cut_off.open_cycle(project),
            lambda: cut_off.finish_run(run, "failed"),
            lambda: cut_off.check_lease(strict=False),
            lambda: cut_off.step(run, 1, {"loss": 1.0}),
        ):
            with pytest.raises(LeaseLost, match=r"taken over this project: `recover resume` \(process"):
                write()
        assert cut_off.flush()
        cut_off.release()
    assert (reader.cycles(project), reader.points(run)) == ([], [])
    (row,) = reader.runs(project)
    assert row.status == "running"
    assert [one.command for one in reader.leases()] == ["recover resume"]


def test_telemetry_finds_out_that_the_lease_was_taken(engine: Engine, reader: Reader, project: int) -> None:
    with Tracker(engine, pause=0.02) as cut_off:
        run = cut_off.start_run(project, "distill")
        lease = take_lease(engine, project, HERE, "recover cycle")
        cut_off.hold(lease)
        expire(engine)
        take_lease(engine, project, THERE, "recover resume")
        cut_off.step(run, 0, {"loss": 1.0})
        deadline = time.monotonic() + 5
        while lease.lost is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(LeaseLost):
            cut_off.step(run, 1, {"loss": 1.0})
    assert reader.points(run) == []


def test_a_lease_that_was_released_is_free_and_not_listed(
    engine: Engine, reader: Reader, tracker: Tracker, project: int, lease: Lease
) -> None:
    tracker.release()
    assert reader.leases() == []
    assert take_lease(engine, project, THERE, "recover cycle").token == 2
    tracker.open_cycle(project)  # without a lease nothing is checked


def test_an_unavailable_record_is_no_takeover(engine: Engine, tracker: Tracker, lease: Lease) -> None:
    def rename(old: str, new: str) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")

    rename("leases", "away")
    tracker.check_lease(strict=False)
    with pytest.raises(RecordError, match="could not"):
        tracker.check_lease()
    rename("away", "leases")
    tracker.check_lease()


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_the_duration_must_be_a_number_of_seconds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", text)
    with pytest.raises(RecordError, match=f"RECOVER_LEASE_SECONDS is '{text}'"):
        lease_seconds()


@pytest.mark.release
@pytest.mark.postgres
def test_a_machine_that_is_cut_off_in_a_transaction_does_not_block_a_takeover(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", "1")
    engine = open_database(postgres_url)
    with Tracker(engine) as tracker:
        project = tracker.project("handbook", HERE, "lab")
    lease = take_lease(engine, project, HERE, "recover cycle")
    with engine.connect() as cut_off:
        lease.renew(cut_off)
        assert take_lease(engine, project, THERE, "recover resume").token == 2  # it waits for the transaction
        with pytest.raises(DBAPIError):
            cut_off.commit()
    engine.dispose()


def test_no_heartbeat_renews_a_lease_that_is_being_given_up(
    engine: Engine, reader: Reader, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", "0.04")  # a heartbeat every 10 ms
    with Tracker(engine, pause=0.001) as tracker:
        for number in range(20):
            tracker.hold(take_lease(engine, project, HERE, f"recover eval {number}"))
            time.sleep(0.01)
            tracker.release()
            time.sleep(0.01)
            assert reader.leases() == []


def test_only_the_command_that_holds_a_project_moves_its_folder(reader: Reader, tracker: Tracker, project: int) -> None:
    name = next(one.name for one in reader.projects() if one.id == project)
    before = next(one.root for one in reader.projects() if one.id == project)
    tracker.project(name, THERE, "lab", moves=False)
    assert next(one.root for one in reader.projects() if one.id == project) == before
    tracker.project(name, THERE, "lab")
    assert next(one.root for one in reader.projects() if one.id == project) == str(THERE)
