"""Libraries that only some formats need; what they would have read is skipped where they are not installed."""

import importlib
from typing import Any

from pipelines.documents.splitting import Unreadable


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unreadable("it needs a library that is not here: pip install 'recover[documents]'") from error
