"""The user's documents: a file or a folder of plain text and Markdown, in a fixed order, hashed as read."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from recovery.errors import RecoverError

SUFFIXES = {".txt", ".md", ".markdown", ".rst"}


@dataclass
class Corpus:
    path: Path
    texts: list[str]
    files: int
    skipped: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for text in self.texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        return digest.hexdigest()


def read_corpus(path: Path) -> Corpus:
    """Files that cannot be read are listed with the reason, never fatal; exact duplicates count once."""
    if not path.exists():
        raise RecoverError(f"there is nothing at {path}; give --docs a folder or a file of documents")
    root = path.resolve()
    inside = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
    # Hidden folders (.git, .venv, .recover) are not what anyone means by their documents.
    files = [p for p in inside if p == root or not any(part.startswith(".") for part in p.relative_to(root).parts)]
    corpus = Corpus(path, [], 0)
    seen: set[str] = set()
    for file in files:
        reason = _why_not(file, root)
        text = ""
        if not reason:
            try:
                text = file.read_text(encoding="utf-8-sig").strip()
                reason = "" if text else "empty"
            except (OSError, UnicodeDecodeError) as error:
                reason = f"unreadable: {error}"
        if reason:
            corpus.skipped.append((file, reason))
        elif text not in seen:
            seen.add(text)
            corpus.texts.append(text)
            corpus.files += 1
    if not corpus.texts:
        raise RecoverError(f"no readable document in {path}; put .txt or .md files in UTF-8 there")
    return corpus


def _why_not(file: Path, root: Path) -> str:
    if file.suffix.lower() not in SUFFIXES:
        return f"not a kind that is read here ({', '.join(sorted(SUFFIXES))})"
    if root.is_dir() and not file.resolve().is_relative_to(root):
        return "a link that leads out of the folder"
    return ""
