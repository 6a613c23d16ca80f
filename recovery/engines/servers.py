"""vLLM servers that speak HTTP: requests with one key, and rows shared out over several servers.

A row is one request. If a server fails, the rows without an answer are asked for again, after a pause that doubles, of
the servers that answer: a caller gets all rows or none. Only the standard library is used; redirects are not followed
and proxies not used, so the key goes to the named server alone.
"""

import json
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

from recovery.errors import RecoverError, first_line
from recovery.progress import track

KEY = "RECOVER_ENGINE_KEY"
REQUESTS_AT_ONCE = 64  # to each server
TIMEOUT = 600.0  # seconds until an answer must be there
CONNECT_TIMEOUT = 10.0
PAUSES = (1.0, 2.0, 4.0, *[8.0] * 37)  # seconds: together five minutes
RESTART_SECONDS = 5.0  # no server starts again in less

ADDRESS = re.compile(r"https?://(\[[\da-fA-F:]+\]|[\w.-]+)(:\d{1,5})?")

log = logging.getLogger("recover")
T = TypeVar("T")


class Unavailable(Exception):
    """A server gave no usable answer, but may give one later."""


class Refused(Unavailable):
    def __init__(self, status: int, message: str):
        super().__init__(f"it answered {status}: {message}")
        self.status, self.message = status, message


def is_address(value: str | None) -> bool:
    return value is not None and value.startswith(("http://", "https://"))


def _has_port(address: str) -> bool:
    try:
        return urlsplit(address).port != 0
    except ValueError:  # a port above 65,535
        return False


def parse_addresses(value: str) -> list[str]:
    """The addresses in a list such as `http://one:8000,http://two:8000`; raises if one is no plain address."""
    listed = [address.strip().rstrip("/").removesuffix("/v1") for address in value.split(",")]
    for address in listed:
        if "@" in address:
            raise RecoverError(f"The address of a server must not hold a key or a password. Set {KEY} instead.")
        if not ADDRESS.fullmatch(address) or not _has_port(address):
            raise RecoverError(
                f"{address!r} is no address of a vLLM server. Write http://HOST:PORT, and a comma between several."
            )
    if len(set(listed)) < len(listed):
        raise RecoverError(f"The servers {value} have one address twice. Name each server once.")
    return listed


class Server:
    def __init__(self, address: str, timeout: float = TIMEOUT):
        self.address, self.timeout = address, timeout
        parts = urlsplit(address)
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self.host, self.port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self.model, self.max_tokens = "", 0  # what it was started with, and how long prompt and reply are together
        self.serves: object = None  # what it was last shown to serve; None after a failure
        self.adapter = ""  # the name of the adapter that was loaded into it
        self.answered_at = 0.0
        self.problem = ""  # why it was left out of the last call

    @property
    def may_have_restarted(self) -> bool:
        return time.monotonic() - self.answered_at > RESTART_SECONDS

    def call(self, path: str, body: dict[str, Any] | None = None, timeout: float = TIMEOUT) -> Any:
        """Return the answer to a GET, or to a POST of `body`: parsed JSON, or text where it is none."""
        sent = json.dumps(body).encode() if body is not None else b""
        key = _key()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        # A certificate is checked against the machine's authorities, or those in SSL_CERT_FILE.
        connection = self._connect(self.host, self.port, timeout=min(CONNECT_TIMEOUT, self.timeout))
        try:
            connection.connect()
            connection.sock.settimeout(min(timeout, self.timeout))
            connection.request("GET" if body is None else "POST", path, sent or None, headers)
            answer = connection.getresponse()
            received = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise RecoverError(
                f"The certificate of {self.address} cannot be verified ({error.verify_message}). If an authority of "
                "your own signed it, name that authority's file in SSL_CERT_FILE."
            ) from error
        except (OSError, HTTPException) as error:
            raise Unavailable(f"no answer: {first_line(error)}") from error
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise RecoverError(f"The server {self.address} refuses the key. Set {KEY} to the key it was started with.")
        if answer.status != 200:
            raise Refused(answer.status, _message(received, key))
        self.answered_at = time.monotonic()
        return _parsed(received)

    def complete(
        self, model: str, prompt: list[int], options: dict[str, Any], timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        """Return the one choice of a completion of token ids, after checking that it belongs to the request."""
        body = {"model": model, "prompt": prompt, "return_token_ids": True, **options}
        try:
            answer = self.call("/v1/completions", body, timeout)
        except Refused as error:
            if error.status in (404, 429) or error.status >= 500:  # an adapter is gone after a restart
                raise
            raise RecoverError(f"The server {self.address} refuses a request: {error.message}") from error
        try:
            (choice,) = answer["choices"]
            same = answer["model"] == model and choice["prompt_token_ids"] == prompt
        except (KeyError, TypeError, ValueError) as error:
            raise RecoverError(
                f"The server {self.address} does not answer with token ids. Use vLLM of version 0.32 or later."
            ) from error
        if not same:
            raise RecoverError(
                f"The server {self.address} answered for another model or prompt than it was asked for. "
                "Name the vLLM server itself, not a gateway that rewrites requests."
            )
        return dict(choice)


class Servers:
    def __init__(self, addresses: str, prepare: Callable[[Server], None]):
        self.servers, self._prepare = [Server(address, TIMEOUT) for address in parse_addresses(addresses)], prepare
        self._failure = ""

    def connect(self) -> None:
        """Raise where no server can be used."""
        self.run(lambda server, row: None, 1, "servers")

    def run(self, work: Callable[[Server, int], T], rows: int, units: str) -> list[T]:
        """Return `work(server, row)` of each row, from the servers that `prepare` raises nothing for.

        Where a server fails, the rows without a result are shared anew."""
        results: dict[int, T] = {}
        for pause in (0.0, *PAUSES):
            time.sleep(pause)
            try:
                if ready := [server for server in self.servers if self._is_ready(server)]:
                    _share(ready, work, rows, units, results)
                    return [results[row] for row in range(rows)]
            except Unavailable as error:
                self._failure = str(error)
        named = ", ".join(server.address for server in self.servers)
        raise RecoverError(
            f"No answer from {named} for {sum(PAUSES) / 60:.0f} minutes ({self._failure}). "
            "Start the server again; then run the command again, or go on with `recover resume`."
        )

    def _is_ready(self, server: Server) -> bool:
        try:
            self._prepare(server)
        except Unavailable as error:
            server.serves, self._failure = None, str(error)
            if server.problem != self._failure:
                server.problem = self._failure
                log.warning(f"The server {server.address} cannot be used now: {error}")
            return False
        server.problem = ""
        return True


def _share(
    servers: Sequence[Server], work: Callable[[Server, int], T], rows: int, units: str, results: dict[int, T]
) -> None:
    """Add the missing results, each row's by its own server, whatever the others do. The threads are daemons: none
    delays the end of a program."""
    missing = [row for row in range(rows) if row not in results]
    answers: SimpleQueue[tuple[Server, int, T | Exception]] = SimpleQueue()
    stopped, update = Event(), track(units, rows)

    def serve(server: Server, waiting: Iterator[int]) -> None:
        for row in waiting:  # which all threads of the server share
            if stopped.is_set():
                return
            try:
                answers.put((server, row, work(server, row)))
            except Exception as error:
                answers.put((server, row, error))

    for index, server in enumerate(servers):
        share = missing[index :: len(servers)]
        waiting = iter(share)
        for _ in range(min(len(share), REQUESTS_AT_ONCE)):
            Thread(target=serve, args=(server, waiting), daemon=True).start()
    try:
        while len(results) < rows:
            server, row, answer = answers.get()
            if isinstance(answer, Unavailable):
                server.serves = None
                while not answers.empty():  # what came meanwhile
                    _, row, answered = answers.get_nowait()
                    if not isinstance(answered, Exception):
                        results[row] = answered
                log.warning(f"The server {server.address} failed ({answer}); rows without an answer are repeated")
                raise answer
            if isinstance(answer, Exception):
                raise answer
            results[row] = answer
            update(len(results))
    finally:
        stopped.set()


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not all("!" <= character <= "~" for character in key):  # an error about the header would show it
        raise RecoverError(f"The key in {KEY} has a blank or a letter that no key has. Copy it again.")
    return key


def _parsed(received: bytes) -> Any:
    try:
        return json.loads(received)
    except ValueError:  # some answers are plain text
        return received.decode("utf-8", "replace")


def _message(received: bytes, key: str) -> str:
    """What a server says about an error, without the key, should it repeat it."""
    answer = _parsed(received)
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("detail", answer))
        answer = error.get("message", error) if isinstance(error, dict) else error
    line = first_line(ValueError(answer))
    return (line.replace(key, "…") if key else line)[:300]
