"""Stream data sets of the Hugging Face hub row by row, without downloading all of it."""

import os
import re
from collections.abc import Iterator
from typing import Any

from evals.downloads import is_reachable
from recovery.errors import RecoverError, hub_problem

HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?(:(?P<split>\w+))?")


def is_hub_id(reference: str) -> bool:
    """Whether the reference has the form `org/name`, `org/name@revision` or `org/name:split`."""
    return HUB_ID.fullmatch(reference) is not None


def dataset_rows(reference: str) -> Iterator[dict[str, Any]]:
    import datasets  # type: ignore[import-untyped]

    parts = HUB_ID.fullmatch(reference)
    assert parts is not None
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if not offline and not is_reachable(os.environ.get("HF_ENDPOINT", "https://huggingface.co")):
        raise RecoverError(
            f"There is no file or folder {reference}, and the hub, where it may be a data set, cannot be reached. "
            "Give a folder or a file."
        )
    try:
        yield from datasets.load_dataset(
            parts["name"], revision=parts["revision"], split=parts["split"] or "train", streaming=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise RecoverError(
            f"There is no file or folder {reference}, and it cannot be read as a data set of the hub "
            + hub_problem(error, "Give a folder or a file.")
        ) from error
