"""What the checkers would like from outside: found, else fetched within seconds, else done without — and said so."""

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


def within(seconds: float, fetch: Callable[[], T]) -> T | None:
    """What `fetch` returns, or None where it fails or takes longer: name look-ups know no timeout of their own."""
    result: list[T] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            result.append(fetch())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0] if result else None


def reachable(url: str) -> bool:
    """One quick knock, through the user's proxy if there is one; any answer will do."""

    def knock() -> bool:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_SECONDS).close()
        except urllib.error.HTTPError:
            return True
        return True

    return bool(within(CONNECT_SECONDS, knock))


def public_ifeval() -> list[dict[str, Any]] | None:
    """The public prompts from the hub (under HF_HUB_OFFLINE from its cache); None where they are not to be had."""
    # The hub's client retries for half a minute before it gives up; it need not begin where nobody answers.
    return within(HUB_SECONDS, _public_ifeval) if _had() or hub_is_off() or reachable_hub() else None


@functools.cache
def _public_ifeval() -> list[dict[str, Any]]:
    """Asked for once a process: what was had cannot be lost on the way."""
    import datasets  # type: ignore[import-untyped]

    return [dict(doc) for doc in datasets.load_dataset("google/IFEval", split="train")]


def _had() -> bool:
    return _public_ifeval.cache_info().currsize > 0


def hub_is_off() -> bool:
    """By the user's own wish: the hub's client then looks into its cache at once."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def reachable_hub() -> bool:
    return reachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))


@functools.cache
def ifeval_checkers() -> tuple[ModuleType, str]:
    """lm-eval's IFEval module, made repeatable, and the sentence splitter it works with ("punkt_tab" or "plain").

    When imported it would download punkt_tab, without a timeout, and say so on standard output: it is kept from both.
    """
    import langdetect
    import nltk

    langdetect.DetectorFactory.seed = 0  # unseeded, verdicts on short texts differ from run to run
    splitter = "punkt_tab" if has_punkt() or _fetches_punkt() else "plain"
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
    """The tables that IFEval's sentence counts are defined by; without them a plainer splitter stands in."""
    from nltk.tokenize import sent_tokenize

    try:
        return len(sent_tokenize("It works. It does.")) == 2
    except Exception:  # missing, half-written, or in a folder nltk does not trust: all the same here
        return False


def _fetches_punkt() -> bool:
    import nltk

    if not reachable(nltk.downloader.Downloader.DEFAULT_URL):
        return False
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        within(PUNKT_SECONDS, lambda: nltk.download("punkt_tab", quiet=True))
    return has_punkt()


def _use_plain_splitter(instructions_util: Any) -> None:
    """IFEval's own splitter by rules for sentences, and words without looking for sentences first."""
    import nltk

    sentences = SimpleNamespace(tokenize=instructions_util.split_into_sentences)
    instructions_util._get_sentence_tokenizer = lambda: sentences
    words = functools.partial(nltk.word_tokenize, preserve_line=True)
    instructions_util.nltk = SimpleNamespace(word_tokenize=words, tokenize=nltk.tokenize, data=nltk.data)
