"""The generated pages and their generators."""

from collections.abc import Callable
from pathlib import Path

from tests.docs.api import api
from tests.docs.reference import reference

DOCS = Path(__file__).parents[2] / "docs"
GENERATED: dict[Path, Callable[[], str]] = {DOCS / "reference.md": reference, DOCS / "api.md": api}
