"""Optional downloads: the public IFEval prompts and NLTK's sentence splitter.

Each is taken from a local cache or fetched within seconds. Without a network the caller gets a fallback or None.
"""

import contextlib
import functools
import io
import logging
import os
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

T = TypeVar("T")

CONNECT_SECONDS, PUNKT_SECONDS, HUB_SECONDS = 5.0, 20.0, 120.0


def run_with_timeout(seconds: float, fetch: Callable[[], T]) -> T | None:
    """Return what `fetch` returns, or None if it fails or takes longer.

    A thread enforces the limit, because DNS look-ups have no timeout of their own."""
    result: list[T] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            result.append(fetch())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0] if result else None


def is_reachable(url: str) -> bool:
    """Whether a HEAD request gets any answer, an HTTP error included. Uses the user's proxy if there is one."""

    def request() -> bool:
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_SECONDS).close()
        return True

    return bool(run_with_timeout(CONNECT_SECONDS, request))


def public_ifeval() -> list[dict[str, Any]] | None:
    """Load the public IFEval prompts from the hub (under HF_HUB_OFFLINE from its cache), or None if unavailable."""
    # The hub's client retries for half a minute before it fails, so it is only started if the hub answers.
    if _public_ifeval.cache_info().currsize or is_hub_offline() or is_hub_reachable():
        return run_with_timeout(HUB_SECONDS, _public_ifeval)
    return None


@functools.cache
def _public_ifeval() -> list[dict[str, Any]]:
    """Load the prompts once per process, so that a network that fails later does not matter."""
    import datasets  # type: ignore[import-untyped]

    return [dict(doc) for doc in datasets.load_dataset("google/IFEval", split="train")]


def is_hub_offline() -> bool:
    """Whether the user set HF_HUB_OFFLINE; the hub's client then reads its cache only."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def is_hub_reachable() -> bool:
    return is_reachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))


@functools.cache
def ifeval_checkers() -> tuple[ModuleType, str]:
    """Return lm-eval's IFEval module, made deterministic, and its sentence splitter ("punkt_tab" or "plain").

    On import the module would download punkt_tab without a timeout and print to standard output. Both are prevented.
    """
    import langdetect
    import nltk

    langdetect.DetectorFactory.seed = 0  # unseeded, verdicts on short texts differ between runs
    splitter = "punkt_tab" if has_punkt() or _fetch_punkt() else "plain"
    download, nltk.download = nltk.download, lambda *args, **kwargs: False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from lm_eval.tasks.ifeval import instructions_util, utils
    finally:
        nltk.download = download
    logging.getLogger("lm_eval.tasks.ifeval.instructions").setLevel(logging.CRITICAL)  # it logs whole answers
    if splitter == "plain":
        _use_plain_splitter(instructions_util)
    return utils, splitter


def has_punkt() -> bool:
    """Whether NLTK finds punkt_tab, which defines IFEval's sentence counts. Without it a plain splitter is used."""
    from nltk.tokenize import sent_tokenize

    try:
        return len(sent_tokenize("It works. It does.")) == 2
    except Exception:  # missing, half-written, or in a folder that nltk does not trust
        return False


def _fetch_punkt() -> bool:
    """Try to download punkt_tab; return whether it is there now."""
    import nltk

    if not is_reachable(nltk.downloader.Downloader.DEFAULT_URL):
        return False
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        run_with_timeout(PUNKT_SECONDS, lambda: nltk.download("punkt_tab", quiet=True))
    return has_punkt()


def _use_plain_splitter(instructions_util: Any) -> None:
    """Use IFEval's own rule-based sentence splitter, and split words without splitting sentences first."""
    import nltk

    sentences = SimpleNamespace(tokenize=instructions_util.split_into_sentences)
    instructions_util._get_sentence_tokenizer = lambda: sentences
    tokenize_words = functools.partial(nltk.word_tokenize, preserve_line=True)
    instructions_util.nltk = SimpleNamespace(word_tokenize=tokenize_words, tokenize=nltk.tokenize, data=nltk.data)
