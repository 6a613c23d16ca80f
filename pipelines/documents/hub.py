"""Data sets of the Hugging Face hub, row after row, without a copy of the whole."""

import os
import re
from collections.abc import Iterator
from typing import Any

from evals.downloads import is_reachable
from recovery.errors import RecoverError

HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?(:(?P<split>\w+))?")


def is_hub_id(reference: str) -> bool:
    """`org/name`, `org/name@revision`, `org/name:split`."""
    return HUB_ID.fullmatch(reference) is not None


def rows_of(reference: str) -> Iterator[dict[str, Any]]:
    import datasets  # type: ignore[import-untyped]

    named = HUB_ID.fullmatch(reference)
    assert named is not None
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if not offline and not is_reachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co")):
        raise RecoverError(
            f"there is nothing at {reference}, and the hub, where it may be a data set, is out of reach; "
            "give a folder or a file"
        )
    try:
        yield from datasets.load_dataset(
            named["name"], revision=named["revision"], split=named["split"] or "train", streaming=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RecoverError(
            f"there is nothing at {reference}, and as a data set of the hub it cannot be read ({first}); "
            "give a folder or a file"
        ) from error
