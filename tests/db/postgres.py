"""A throw-away PostgreSQL cluster for the tests: in a folder of its own, reached through a socket in it."""

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
from typing import Any

import psycopg

Cluster = Path
"""Known by its folder, which is where its socket is."""


def server_programs() -> Path | None:
    """Where Debian hides them, the newest release first; else wherever they are on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -float(folder.parent.name))
    if on_path := shutil.which("initdb"):
        folders.append(Path(on_path).parent)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def cluster(programs: Path) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="recover-pg-"))
    who = _unprivileged(folder)
    data = folder / "data"
    try:
        initdb: list[Path | str] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "recover",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)
        serve: list[Path | str] = [programs / "postgres", "-D", data, "-k", folder, "-F", "-c", "listen_addresses="]
        with open(folder / "log", "w") as log:
            server = subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log, **who)
        try:
            _wait_until_up(folder, server)
            yield folder
        finally:
            server.send_signal(2)  # a fast shutdown: it does not wait for connections to end
            server.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(cluster: Cluster) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    with _administrator(cluster) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield f"postgresql://recover@/{name}?host={cluster}"
    with _administrator(cluster) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _unprivileged(folder: Path) -> dict[str, Any]:
    """The server refuses to run as root: hand the folder to somebody who is not, and say how to become them."""
    if os.getuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _administrator(cluster: Cluster) -> psycopg.Connection:
    return psycopg.connect(host=str(cluster), user="recover", dbname="postgres", autocommit=True)


def _wait_until_up(folder: Path, server: subprocess.Popen[Any]) -> None:
    for _ in range(100):
        if server.poll() is not None:
            break
        try:
            _administrator(folder).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
