"""Time and peak memory of reading a folder of every format, twice, each time in a new process.

    python -m benchmarks.document_reading --megabytes 100 1000     # peak memory should not grow with the size
    python -m benchmarks.document_reading --fuzz 10000             # read that many damaged files without a crash

A twentieth of the files is damaged and a twentieth is a copy of another in capital letters.
"""

import csv
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.scripts import in_new_process, script_parser, table
from pipelines.documents.corpus import read_corpus
from pipelines.documents.tokenization import tokenize_documents
from recovery.lab import BASE
from recovery.models.students import load_chat
from tests.pipelines.documents.make import every_format, pdf, with_libraries

# Percent of the files; Word and PDF are by far the slowest to read.
SHARES = {"txt": 34, "md": 20, "rst": 4, "html": 14, "csv": 8, "json": 4, "jsonl": 8, "parquet": 4, "pdf": 2, "docx": 2}
DAMAGED, COPIED = 0.05, 0.05
PAGE = 24_000  # characters in an average file


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[], help="of text; one folder per size")
    parser.add_argument("--fuzz", type=int, default=0, help="read this many damaged files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for megabytes in args.megabytes:
            docs = Path(folder) / str(megabytes)
            fill(docs, megabytes << 20)
            rows.append(row(megabytes, docs))
        if rows:
            counts = ["MB", "files", "texts", "copies", "skipped"]
            table([*counts, "M tokens", "read s", "ids s", "peak MB", "same hash"], rows)
        if args.fuzz:
            fuzz(Path(folder) / "fuzz", args.fuzz)


def row(megabytes: int, docs: Path) -> list[str]:
    print(f"{megabytes:,} MB in {docs}, read twice", file=sys.stderr, flush=True)
    first, second = (in_new_process(measure_reading, docs, ids) for ids in (True, False))
    print(first, file=sys.stderr, flush=True)  # the table follows when all sizes are read, which takes hours
    same = first["hash"] == second["hash"]
    counts = [f"{first[name]:,}" for name in ("files", "texts", "copies", "skipped")]
    seconds = [f"{first[name]:.0f}" for name in ("read", "ids")]
    return [f"{megabytes:,}", *counts, f"{first['tokens'] / 1e6:.1f}", *seconds, f"{first['peak']:.0f}", str(same)]


def measure_reading(docs: Path, ids: bool) -> dict[str, Any]:
    """Read a folder: counts, seconds, and the growth of the process's peak memory in MB."""
    chat = load_chat(str(BASE))
    chat.tokenizer("warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    corpus = read_corpus(docs)
    read = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as cache:
        texts = corpus.texts if ids else []
        tokens = tokenize_documents(texts, chat.tokenizer, Path(cache), corpus.hash).tokens
    return {
        "files": corpus.files,
        "texts": len(corpus.texts),
        "copies": corpus.texts.copies,
        "skipped": len(corpus.skipped),
        "tokens": tokens,
        "read": read,
        "ids": time.perf_counter() - start - read,
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "hash": corpus.hash,
    }


def fill(docs: Path, size: int) -> None:
    """Write files with that many bytes of random words."""
    rng, size_so_far, number, last = random.Random(0), 0, 0, ""
    words = ["".join(rng.choices("abcdefghijklmnoprstuvwy", k=rng.randint(2, 10))) for _ in range(20_000)]
    kinds = list(SHARES)
    while size_so_far < size:
        folder = docs / f"{number // 500:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        text = " ".join(rng.choices(words, k=max(40, int(rng.gauss(PAGE / 7, PAGE / 14)))))
        if last and rng.random() < COPIED:
            text = last.upper()
        kind = rng.choices(kinds, list(SHARES.values()))[0]
        file = folder / f"{number:06d}.{kind}"
        save(file, text)
        if rng.random() < DAMAGED:
            file.write_bytes(damage(file.read_bytes(), rng))
        size_so_far, number, last = size_so_far + len(text), number + 1, text


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


def damage(content: bytes, rng: random.Random) -> bytes:
    """Truncate, or change some bytes."""
    if rng.random() < 0.5:
        return content[: rng.randrange(len(content) + 1)]
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 50)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def fuzz(folder: Path, count: int) -> None:
    every_format(folder / "whole")
    with_libraries(folder / "whole")
    originals = [(file, file.read_bytes()) for file in sorted((folder / "whole").iterdir())]
    rng, docs, start = random.Random(1), folder / "docs", time.perf_counter()
    docs.mkdir()
    (docs / "good.txt").write_text("good")
    for number, (file, content) in zip(range(count), cycle(originals), strict=False):
        (docs / f"{number:05d}{file.suffix}").write_bytes(damage(content, rng))
    corpus = read_corpus(docs)
    reasons = Counter(reason.split(":")[0].split("(")[0].strip() for _, reason in corpus.skipped)
    print(f"{count:,} damaged files in {time.perf_counter() - start:.0f} s: {len(corpus.texts):,} texts, and skipped:")
    for reason, times in reasons.most_common(12):
        print(f"  {times:6,}  {reason}")


if __name__ == "__main__":
    main()
