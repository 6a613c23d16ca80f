"""One small file of each format."""

import csv
import json
from pathlib import Path

PDF_PAGE = b"BT /F1 12 Tf 20 100 Td (Said in a PDF.) Tj ET"


def every_format(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("txt", "md", "rst"):
        (folder / f"plain.{suffix}").write_text(f"Said in {suffix}.\n\nTwice.")
    (folder / "wide.txt").write_bytes("Said in UTF-16.".encode("utf-16"))
    (folder / "page.html").write_text(
        "<html><head><style>p {}</style></head><body><h1>A page</h1><p>Said in <b>HTML</b>,"
        ' <a href="http://x">linked</a>.</p><script>alert(1)</script><ul><li>one</li></ul></body></html>'
    )
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "town"], ["Ada", "Oslo, west"], ["Bo", ""]])
    (folder / "table.tsv").write_text("title\ttext\tnotes, or a, b\nHead\tBody of it\tnone\n")
    (folder / "rows.jsonl").write_text('{"text": "Said in JSONL."}\n\n{"a": 1, "b": null, "c": [2]}\n"a bare line"\n')
    (folder / "list.json").write_text(json.dumps([{"content": "Said in JSON."}, {"lone": "\ud800"}]))
    (folder / "paper.pdf").write_bytes(pdf(PDF_PAGE))


def with_libraries(folder: Path) -> None:
    import docx
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": ["Said in Parquet."], "n": [1]}), folder / "rows.parquet")
    letter = docx.Document()
    letter.add_heading("A letter", 2)
    letter.add_paragraph("Said in Word.")
    table = letter.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    letter.save(str(folder / "letter.docx"))


def pdf(page: bytes) -> bytes:
    """A minimal file with one line of text."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%s\nendstream" % (len(page), page),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(out)
    return out + b"xref\n0 6\n0000000000 65535 f \n%strailer\n<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        start,
    )
