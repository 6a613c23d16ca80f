"""A temporary PostgreSQL server for tests of every package, in its own folder and reached through a socket there."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

try:
    import psycopg
except ImportError:  # an extra
    psycopg = None  # type: ignore[assignment]

Cluster = Path  # the folder that has the socket


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    if psycopg is None:
        _missing("psycopg is not installed: install recover's extra `postgres`")
    programs = _server_programs()
    if programs is None:
        _missing("no PostgreSQL server is installed here")
    with _cluster(programs) as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """The address of an empty database."""
    name = f"test_{uuid.uuid4().hex}"
    with _administrator(postgres_cluster) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield f"postgresql://recover@/{name}?host={postgres_cluster}"
    with _administrator(postgres_cluster) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _missing(problem: str) -> NoReturn:
    if os.environ.get("RECOVER_REQUIRE_POSTGRES") == "1":
        pytest.fail(f"RECOVER_REQUIRE_POSTGRES=1, but {problem}")
    pytest.skip(problem)


def _server_programs() -> Path | None:
    """The folder of initdb and postgres: Debian's, the newest release first, else the one on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -float(folder.parent.name))
    if on_path := shutil.which("initdb"):
        folders.append(Path(on_path).parent)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def _cluster(programs: Path) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="recover-pg-"))
    identity = _unprivileged(folder)
    data = folder / "data"
    try:
        initdb: list[Path | str] = [programs / "initdb", "-D", data]
        initdb += ["-U", "recover", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **identity)
        serve: list[Path | str] = [programs / "postgres", "-D", data, "-k", folder, "-F", "-c", "listen_addresses="]
        with open(folder / "log", "w") as log:
            server = subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log, **identity)
        try:
            _wait_for_server(folder, server)
            yield folder
        finally:
            server.send_signal(2)  # a fast shutdown: it does not wait for connections to end
            server.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Popen's options for another user, who then owns the folder: the server refuses to run as root."""
    if os.getuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _administrator(cluster: Cluster) -> Any:
    return psycopg.connect(host=str(cluster), user="recover", dbname="postgres", autocommit=True)


def _wait_for_server(folder: Path, server: subprocess.Popen[Any]) -> None:
    for _ in range(100):
        if server.poll() is not None:
            break
        try:
            _administrator(folder).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
