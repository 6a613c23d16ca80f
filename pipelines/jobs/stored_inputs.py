"""Copies in the project of what a job was given: whatever becomes of the user's files, it can be resumed."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from pipelines.documents.corpus import Corpus
from pipelines.documents.snapshot import CorpusSnapshot, save_snapshot
from pipelines.project.project import Project
from pipelines.storage.atomic_files import JsonLines, write_atomic
from pipelines.storage.content_cache import ContentCache
from pipelines.synthetic.prompts import read_prompts


def store_corpus(project: Project, corpus: Corpus) -> CorpusSnapshot:
    snapshot = save_snapshot(project.home, corpus)
    return replace(snapshot, path=corpus.path.resolve()) if corpus.path.exists() else snapshot  # else it is a hub id


def store_questions(project: Project, file: Path | None) -> Path | None:
    """A copy named by its content: later cycles are measured by it, whatever becomes of the user's file."""
    if file is None:
        return None
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    copy = project.home / "questions" / content / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return copy


def store_prompts(project: Project, file: Path | None) -> Path | None:
    if file is None:
        return None
    prompts = [prompt.row[1] for prompt in read_prompts(file)]
    content = "\n".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)  # names the file
    copy = ContentCache(project.home / "cache").path("prompts", content, ".jsonl")
    JsonLines(copy).write(prompts)
    return copy


def store_context(project: Project, file: Path | None) -> Path | None:
    if file is None:
        return None
    content = file.read_text(encoding="utf-8-sig")
    copy = ContentCache(project.home / "cache").path("contexts", content, file.suffix.lower())
    write_atomic(copy, [content])
    return copy
