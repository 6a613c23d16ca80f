"""Libraries that only some formats need. Files of these formats are skipped where they are not installed."""

import importlib
from typing import Any

from pipelines.documents.splitting import Unreadable


def import_optional(name: str) -> Any:
    """Import a module of the extra "documents". Raise Unreadable if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unreadable("needs a library that is not installed: pip install 'recover[documents]'") from error
