"""A folder with every format in it, a twentieth of its files broken: read twice, each time by a process of its own.

python -m benchmarks.speed.document_reading --megabytes 100 1000     # peak memory at two sizes: it should not grow
python -m benchmarks.speed.document_reading --fuzz 10000             # so many broken files, none of which may be fatal
"""

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import table
from pipelines.documents import read_corpus, tokenize_documents
from recovery.lab import BASE
from recovery.models.students import load_chat
from tests.pipelines.documents.make import every_format, pdf, with_libraries

# How many files of a hundred; Word and PDF are by far the slowest to read.
SHARES = {"txt": 34, "md": 20, "rst": 4, "html": 14, "csv": 8, "json": 4, "jsonl": 8, "parquet": 4, "pdf": 2, "docx": 2}
BROKEN, COPIED = 0.05, 0.05
PAGE = 24_000  # characters of an average file


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, nargs="+", default=[], help="of text; one folder for each")
    options.add_argument("--fuzz", type=int, default=0, help="read so many damaged files")
    options.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--ids", action="store_true", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.read:
        print(json.dumps(measured(asked.read, asked.ids)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for megabytes in asked.megabytes:
            docs = Path(folder) / str(megabytes)
            fill(docs, megabytes << 20)
            rows.append(row(megabytes, docs))
        if rows:
            head = [
                "MB",
                "files",
                "texts",
                "copies",
                "near",
                "skipped",
                "M tokens",
                "read s",
                "ids s",
                "peak MB",
                "same hash",
            ]
            table(head, rows)
        if asked.fuzz:
            fuzz(Path(folder) / "fuzz", asked.fuzz)


def row(megabytes: int, docs: Path) -> list[str]:
    print(f"{megabytes:,} MB lie in {docs}; they are read twice", file=sys.stderr, flush=True)
    first, second = (json.loads(_child("--read", str(docs), *ids)) for ids in (["--ids"], []))
    print(first, file=sys.stderr, flush=True)  # the table comes when all sizes are read, which takes hours
    same = first["hash"] == second["hash"]
    counts = [f"{first[name]:,}" for name in ("files", "texts", "copies", "near", "skipped")]
    seconds = [f"{first[name]:.0f}" for name in ("read", "ids")]
    return [f"{megabytes:,}", *counts, f"{first['tokens'] / 1e6:.1f}", *seconds, f"{first['peak']:.0f}", str(same)]


def measured(docs: Path, ids: bool) -> dict[str, object]:
    """What was read, and by how much the process grew over what it was before."""
    chat = load_chat(str(BASE))
    chat.tokenizer("warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    corpus = read_corpus(docs)
    read = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as cache:
        texts = corpus.texts if ids else []
        tokens = tokenize_documents(texts, chat.tokenizer, Path(cache), corpus.hash).tokens
    return {
        "files": corpus.files,
        "texts": len(corpus.texts),
        "copies": corpus.copies,
        "near": len(corpus.near_copies),
        "skipped": len(corpus.skipped),
        "tokens": tokens,
        "read": read,
        "ids": time.perf_counter() - started - read,
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "hash": corpus.hash,
    }


def fill(docs: Path, size: int) -> None:
    """So many bytes of invented prose; a twentieth of the files broken, a twentieth nearly copied."""
    dice, written, number, last = random.Random(0), 0, 0, ""
    words = ["".join(dice.choices("abcdefghijklmnoprstuvwy", k=dice.randint(2, 10))) for _ in range(20_000)]
    kinds = list(SHARES)
    while written < size:
        folder = docs / f"{number // 500:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        text = " ".join(dice.choices(words, k=max(40, int(dice.gauss(PAGE / 7, PAGE / 14)))))
        if last and dice.random() < COPIED:
            text = f"{last} Printed again."
        kind = dice.choices(kinds, list(SHARES.values()))[0]
        file = folder / f"{number:06d}.{kind}"
        save(file, text)
        if dice.random() < BROKEN:
            file.write_bytes(broken(file.read_bytes(), dice))
        written, number, last = written + len(text), number + 1, text


def save(file: Path, text: str) -> None:
    parts = [text[i : i + 2_000] for i in range(0, len(text), 2_000)]
    match file.suffix:
        case ".html":
            file.write_text("<html><body>" + "".join(f"<p>{part}</p>" for part in parts) + "</body></html>")
        case ".csv":
            with file.open("w", newline="") as out:
                csv.writer(out).writerows([["number", "text"], *enumerate(parts)])
        case ".json":
            file.write_text(json.dumps([{"text": part} for part in parts]))
        case ".jsonl":
            file.write_text("".join(json.dumps({"text": part}) + "\n" for part in parts))
        case ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table({"text": parts}), file)
        case ".pdf":
            lines = [b"(%s) Tj T*" % part.encode() for part in parts]
            file.write_bytes(pdf(b"BT /F1 12 Tf 14 TL 20 100 Td " + b"\n".join(lines) + b" ET"))
        case ".docx":
            import docx

            letter = docx.Document()
            for part in parts:
                letter.add_paragraph(part)
            letter.save(str(file))
        case _:
            file.write_text("\n\n".join(parts))


def broken(whole: bytes, dice: random.Random) -> bytes:
    """Cut short, or some bytes of it others."""
    if dice.random() < 0.5:
        return whole[: dice.randrange(len(whole) + 1)]
    damaged = bytearray(whole)
    for _ in range(dice.randint(1, 50)):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def fuzz(folder: Path, count: int) -> None:
    every_format(folder / "whole")
    with_libraries(folder / "whole")
    originals = [(file, file.read_bytes()) for file in sorted((folder / "whole").iterdir())]
    dice, docs, began = random.Random(1), folder / "docs", time.perf_counter()
    docs.mkdir()
    (docs / "good.txt").write_text("good")
    for number, (file, whole) in zip(range(count), _again(originals), strict=False):
        (docs / f"{number:05d}{file.suffix}").write_bytes(broken(whole, dice))
    corpus = read_corpus(docs)
    reasons = Counter(reason.split(":")[0].split("(")[0].strip() for _, reason in corpus.skipped)
    print(f"{count:,} damaged files in {time.perf_counter() - began:.0f} s: {len(corpus.texts):,} texts, and skipped:")
    for reason, times in reasons.most_common(12):
        print(f"  {times:6,}  {reason}")


def _again(originals: list[tuple[Path, bytes]]) -> Iterator[tuple[Path, bytes]]:
    while True:
        yield from originals


def _child(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.speed.document_reading", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
