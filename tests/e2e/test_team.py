"""Two machines on one PostgreSQL record: two cycles at once, a machine that is lost, and one that was only cut off.

A machine is a process with a folder of its own; it shares the record and the store with the others, nothing else.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dashboard.pages import live_run
from dashboard.ui import polling
from db.engine import open_database
from db.queries import Reader
from db.tables import Lease, Table
from recovery.lab import make_world
from tests.dashboard.page_requests import browser_state, dashboard
from tests.e2e.command_line import RECOVER, Completed, recover
from tests.pipelines.project.machines import machine

pytestmark = [pytest.mark.release, pytest.mark.postgres]

SETTINGS = [
    *("midtrain.max_steps=6", "midtrain.learning_rate=3e-3"),  # so that something is lost
    *("distill.steps=9", "distill.rows=8", "distill.max_new_tokens=48", "distill.prompts=24"),
    *("distill.probe_every=6", "distill.probe_items=24", "gate.behaviour_margin=0.99", "gate.keep_knowledge=0.01"),
    *("gate.keep_retention=0", "gate.samples=0", "save_minutes=0", "store_minutes=0"),
]
IN_DISTILLATION = "  step 4/9"
LEASE_SECONDS = 5
NOT_REPRODUCIBLE = ("seconds", "per_second", "memory", "_bytes", "progress/")


@pytest.fixture(autouse=True)
def lease_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", str(LEASE_SECONDS))


@pytest.fixture
def reader(postgres_url: str) -> Iterator[Reader]:
    engine = open_database(postgres_url)
    yield Reader(engine)
    engine.dispose()


class Team:
    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url
        make_world(4241, size="quick").write(root / "world")

    def machine(self, name: str, project: str = "handbook", store: bool = True) -> Path:
        return machine(self.root / name, self.url, "../store" if store else None, project)

    def start_cycle(self, folder: Path) -> subprocess.Popen[bytes]:
        world = self.root / "world"
        files = ["--docs", str(world / "docs"), "--questions", str(world / "questions.jsonl"), "--limit", "20"]
        settings = [f"--set={setting}" for setting in SETTINGS]
        command = [*RECOVER, "cycle", *files, "--mix=documents", "--warm-start=off", *settings]
        with self.messages(folder).open("w") as messages:
            return subprocess.Popen(command, cwd=folder, stderr=messages, stdout=subprocess.DEVNULL)

    def messages(self, folder: Path) -> Path:
        return self.root / f"{folder.name}.log"

    def wait_for(self, process: subprocess.Popen[bytes], folder: Path, line_start: str) -> None:
        while f"\n{line_start}" not in (messages := self.messages(folder).read_text()):
            assert process.poll() is None, messages
            time.sleep(0.1)


@pytest.fixture
def team(tmp_path: Path, postgres_url: str) -> Team:
    return Team(tmp_path, postgres_url)


def wait_until_lost(folder: Path, project: str = "handbook") -> None:
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while any(lease["alive"] for lease in leases(folder, project)):
        assert time.monotonic() < deadline
        time.sleep(1)


def leases(folder: Path, project: str) -> list[dict[str, Any]]:
    return [lease for lease in recover(folder, "status").data["leases"] if lease["project"] == project]


def succeeds(completed: Completed) -> Any:
    assert completed.exit_code == 0, completed.stderr
    return completed.data


def live_page(reader: Reader, project: str) -> str:
    site = dashboard(reader, project)
    found = site.find_project()
    assert found is not None
    return "".join(map(str, live_run.render(polling.parse_request(site, found, browser_state()))[:1]))


def results(reader: Reader, name: str) -> dict[str, Any]:
    """What a project's only cycle left in the record: what must be equal after the same cycle."""
    project = reader.project(name)
    assert project is not None
    checkpoints = reader.checkpoints(project.id)
    runs = reader.runs(project.id)[::-1]
    return {
        "checkpoints": [
            (one.reference.split(":")[0], one.role, one.hash, one.step, one.verdict) for one in checkpoints
        ],
        "scores": [
            {suite: score.value for suite, score in stage.scores.items()} for stage in reader.stages(project.id)
        ],
        "runs": [(run.kind, run.status, run.inputs.stage, run.steps) for run in runs],
        "points": [
            [(p.step, p.name, p.value) for p in reader.points(run.id) if not any(x in p.name for x in NOT_REPRODUCIBLE)]
            for run in runs
        ],
        "rollouts": [[(one.step, one.position, one.text) for one in reader.rollouts(run.id)] for run in runs],
        "decisions": [(one.decision, one.why) for one in reader.promotions(project.id)],
    }


def test_two_cycles_at_once_and_a_machine_takes_over_the_cycle_of_one_that_was_lost(team: Team, reader: Reader) -> None:
    lost, other = team.machine("lost"), team.machine("other", project="novels")
    watcher = team.machine("watcher", store=False)
    killed, uninterrupted = team.start_cycle(lost), team.start_cycle(other)
    try:
        team.wait_for(killed, lost, IN_DISTILLATION)
        seen = recover(watcher, "status").data
        assert {(one["project"], one["pid"], one["alive"]) for one in seen["leases"]} == {
            ("handbook", killed.pid, True), ("novels", uninterrupted.pid, True),
        }  # fmt: skip
        assert {one["host"] for one in seen["leases"]} == {os.uname().nodename}
        assert seen["running"].startswith("recover cycle")
        assert seen["progress"]["total"]
        assert f"process {killed.pid}" in live_page(reader, "handbook")
        assert f"process {uninterrupted.pid}" in live_page(reader, "novels")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        lost.rename(team.root / "gone")
        there = team.machine("there")
        refused = recover(there, "resume")
        assert refused.exit_code == 1
        assert f"(process {killed.pid} on {os.uname().nodename}). Its lease lasts until" in refused.data["error"]
        wait_until_lost(watcher)
        assert "seems to have ended" in live_page(reader, "handbook")
        assert "seems to have ended" not in live_page(reader, "novels")
        assert recover(watcher, "status").data["running"] is None
        status = recover(there, "status").data
        assert (status["interrupted"], status["next"]) == (["cycle"], "recover resume")
        resumed = recover(there, "resume")
        assert succeeds(resumed)["promoted"]
        assert "Fetching run-" in resumed.stderr
        assert "step 6/6" not in resumed.stderr, "the mid-training was done"
        assert "Going on at step" in resumed.stderr
        assert uninterrupted.wait() == 0
    finally:
        for process in (killed, uninterrupted):
            process.kill()
            process.wait()
    assert results(reader, "handbook") == results(reader, "novels")
    assert recover(watcher, "status").data["leases"] == []
    elsewhere = team.machine("elsewhere")
    assert succeeds(recover(elsewhere, "show", "current"))["checkpoint"] == "cycle:1/recovered"
    assert recover(elsewhere, "resume").data["error"].startswith("No command was interrupted here.")


def test_a_machine_that_was_cut_off_writes_nothing_after_the_takeover(team: Team, reader: Reader) -> None:
    here, there = team.machine("here"), team.machine("there")
    cut_off = team.start_cycle(here)
    try:
        team.wait_for(cut_off, here, IN_DISTILLATION)
        cut_off.send_signal(signal.SIGSTOP)
        wait_until_lost(there)
        assert succeeds(recover(there, "resume"))["promoted"]
        before = record(reader), files(here / ".recover"), files(team.root / "store")
        cut_off.send_signal(signal.SIGCONT)
        assert cut_off.wait() == 1
    finally:
        cut_off.kill()
        cut_off.wait()
    messages = team.messages(here).read_text()
    assert messages.count("Error: ") == 1
    assert "Error: Another command has taken over this project: `recover resume" in messages
    assert (record(reader), files(here / ".recover"), files(team.root / "store")) == before
    status = recover(here, "status").data
    assert (status["current"], status["interrupted"], status["leases"]) == ("cycle:1/recovered", [], [])


def record(reader: Reader) -> dict[str, list[Any]]:
    with reader._engine.connect() as connection:
        tables = [table for table in Table.metadata.sorted_tables if table.name != Lease.__tablename__]
        return {table.name: sorted(map(repr, connection.execute(select(table)))) for table in tables}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Those of the lock apart, and the states of unfinished runs: one that was being written or sent at the cut may get
    its last file, under a name that nobody reads."""
    stats = {str(file.relative_to(folder)): file.stat() for file in folder.rglob("*") if file.is_file()}
    apart = re.compile(r"lock|(handbook/)?progress/")
    return {name: (s.st_size, s.st_mtime_ns) for name, s in stats.items() if not apart.match(name)}
