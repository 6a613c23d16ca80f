"""A cache on disk for expensive results: each file is named by a hash of everything that decides its content.

The names in use are: `prompts-` and `answers-` (written by the clean base), `clean-replies-` (what a clean teacher's
replies are like), `separator-` (how likely a corpus is after each token that may end documents), `contexts-` (what only
a teacher reads), `lift-` (what that gives the teacher), `texts-` (the base's unprompted texts), `paraphrases-` (its
paraphrases of a corpus), `tokens-` (tokenized corpora) and `blocks-` (items of an unfinished evaluation).
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.storage.atomic_files import write_atomic


def content_hash(inputs: Any) -> str:
    """SHA-256 of a string, or of any other value's JSON."""
    text = inputs if isinstance(inputs, str) else json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ContentCache:
    folder: Path

    def path(self, kind: str, inputs: Any, suffix: str = ".json", digits: int = 16) -> Path:
        """Where the result of these inputs is stored, whether it exists or not: `<kind>-<hash><suffix>`."""
        return self.folder / f"{kind}-{content_hash(inputs)[:digits]}{suffix}"

    def get_or_write(self, kind: str, inputs: Any, compute: Callable[[], Any]) -> Any:
        """Return the stored JSON value of these inputs; compute and store it first if there is none."""
        path = self.path(kind, inputs)
        if not path.is_file():
            write_atomic(path, [json.dumps(compute(), ensure_ascii=False)])
        return json.loads(path.read_text(encoding="utf-8"))
