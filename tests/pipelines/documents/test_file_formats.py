import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents import file_formats
from pipelines.documents.corpus import read_corpus
from pipelines.documents.file_formats import Unreadable, documents_in, row_text, rows_of, split_document
from tests.pipelines.documents.make import every_format, with_libraries


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("bs4", "markdownify", "pypdf", "docx", "pyarrow"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("formats")
    every_format(folder)
    with_libraries(folder)
    return folder


def test_every_format_is_read(folder: Path) -> None:
    documents = {file.name: list(documents_in(file)) for file in folder.iterdir()}
    assert documents == {
        "plain.txt": ["Said in txt.\n\nTwice."],
        "plain.md": ["Said in md.\n\nTwice."],
        "plain.rst": ["Said in rst.\n\nTwice."],
        "wide.txt": ["Said in UTF-16."],
        "page.html": ["# A page\n\nSaid in **HTML**, linked.\n\n* one"],
        "table.csv": ["name: Ada\ntown: Oslo, west", "name: Bo"],
        "table.tsv": ["Head\n\nBody of it"],
        "rows.jsonl": ["Said in JSONL.", "a: 1\nc: [2]", "a bare line"],
        "list.json": ["Said in JSON.", "lone: \ud800"],
        "paper.pdf": ["Said in a PDF."],
        "rows.parquet": ["Said in Parquet."],
        "letter.docx": ["## A letter\n\nSaid in Word.\n\nleft | right"],
    }
    corpus = read_corpus(folder)
    assert corpus.files == len(documents)
    assert not corpus.skipped


def test_files_of_a_missing_library_are_skipped_with_a_hint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(file_formats.importlib, "import_module", missing)
    corpus = read_corpus(folder)
    reasons = {path.name: reason for path, reason in corpus.skipped}
    assert set(reasons) == {"page.html", "paper.pdf", "letter.docx", "rows.parquet"}
    assert all("recover's extra `documents`" in reason for reason in reasons.values())


def test_broken_files_of_every_format_are_never_fatal(folder: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    (tmp_path / "good.txt").write_text("good")
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for number in range(12):
            broken = bytearray(content[: rng.randrange(len(content))] if number % 2 else content)
            for _ in range(rng.randint(1, 20)):
                if broken:
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
            (tmp_path / f"{file.stem}-{number}{file.suffix}").write_bytes(broken)
    corpus = read_corpus(tmp_path)
    assert "good" in list(corpus.texts)
    assert corpus.hash == read_corpus(tmp_path).hash
    assert all(reason for _, reason in corpus.skipped)


def test_parquet_that_lost_a_page_says_so(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": [f"Row {n} of many." for n in range(1000)]}), file)
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    with pytest.raises(Unreadable, match="not Parquet, or a part of it is missing"):
        list(documents_in(file))


def test_a_document_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as bomb:
        for number in range(9):
            bomb.writestr(f"word/{number}.xml", bytes(8 << 20))
    with pytest.raises(Unreadable, match="unpacks to more than"):
        list(documents_in(tmp_path / "bomb.docx"))


def test_files_that_are_read_as_a_whole_have_a_size_limit(tmp_path: Path) -> None:
    for name, size in (("page.html", 17 << 20), ("list.json", 65 << 20)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        with pytest.raises(Unreadable, match="too large"):
            list(documents_in(tmp_path / name))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab \n"), max_size=30), max_size=12), st.integers(4, 40))
def test_the_parts_of_a_long_document_have_all_its_text(pieces: list[str], max_characters: int) -> None:
    parts = list(split_document(pieces, max_characters))
    assert all(0 < len(part) <= max_characters for part in parts)
    assert "".join("".join(parts).split()) == "".join("".join(pieces).split())
    if len(text := "".join(pieces)) <= max_characters:
        assert parts == [text.strip()][: bool(text.strip())]


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)), st.text())
def test_any_row_becomes_a_text(value: Any, name: str) -> None:
    assert isinstance(row_text(value), str)
    assert isinstance(row_text({name: value}), str)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"question": "Q?", "answer": "A", "content": None}, "question: Q?\nanswer: A"),
        ({"content": {"a": 1}, "body": None}, 'content: {"a": 1}'),
        *((row, "") for row in (None, {"text": None, "id": 5}, {"id": 6, "Content": " "}, {"text": "", "body": []})),
    ],
)
def test_a_row_without_its_text_is_no_document_and_one_with_an_unused_text_column_is(row: Any, text: str) -> None:
    assert row_text(row) == text


def test_a_page_that_cannot_be_read_is_left_out() -> None:
    class Page:
        def __init__(self, number: int):
            self.number = number

        def extract_text(self) -> str:
            if self.number in (2, 4):
                raise ValueError("LZW code 511")
            return f"Page {self.number}."

    parts = split_document(file_formats._page_texts(map(Page, range(1, 6))))
    assert next(parts) == "Page 1.\n\nPage 3.\n\nPage 5."
    with pytest.raises(Unreadable, match="2 of 5 pages cannot be read; the first is page 2"):
        next(parts)


def test_nul_characters_in_a_row_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "One\\u0000."}\n{"text": "Two."}\n')
    assert list(documents_in(tmp_path / "rows.jsonl")) == ["One.", "Two."]


def test_a_merged_cell_is_written_once(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    letter = docx.Document()
    table = letter.add_table(2, 3)
    for cell, text in zip(table.rows[1].cells, "abc", strict=True):
        cell.text = text
    table.cell(0, 0).merge(table.cell(0, 2)).text = "Prices"
    letter.save(str(tmp_path / "prices.docx"))
    assert list(documents_in(tmp_path / "prices.docx")) == ["Prices |  | \na | b | c"]


def test_all_text_of_a_word_file_is_read(tmp_path: Path) -> None:
    """Also what is in content controls, tracked insertions, smart tags and tables in cells; not what was deleted."""
    docx, oxml = pytest.importorskip("docx"), pytest.importorskip("docx.oxml")
    ns = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'

    def run(text: str, tag: str = "t") -> str:
        return f"<w:r><w:{tag}>{text}</w:{tag}></w:r>"

    letter = docx.Document()
    for xml in (
        f"<w:sdt {ns}><w:sdtContent><w:p>{run('In a form.')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p {ns}>{run('one ')}<w:ins>{run('two ')}</w:ins><w:del>{run('never ', 'delText')}</w:del>"
        f"<w:moveFrom>{run('elsewhere ')}</w:moveFrom>"
        f"<w:sdt><w:sdtContent>{run('three ')}<w:smartTag>{run('four')}</w:smartTag></w:sdtContent></w:sdt></w:p>",
    ):
        letter.element.body.insert(len(letter.element.body) - 1, oxml.parse_xml(xml))
    controlled = f"<w:sdt><w:sdtContent><w:tc><w:p>{run('cell')}</w:p></w:tc></w:sdtContent></w:sdt>"
    table = f"<w:tbl {ns}><w:tblGrid><w:gridCol/></w:tblGrid><w:tr>{controlled}</w:tr></w:tbl>"
    letter.element.body.insert(len(letter.element.body) - 1, oxml.parse_xml(table))
    cell = letter.add_table(1, 1).cell(0, 0)
    cell.text = "outer"
    cell.add_table(1, 1).cell(0, 0).text = "inner"
    letter.save(str(tmp_path / "form.docx"))
    (text,) = documents_in(tmp_path / "form.docx")
    assert text.split() == ["In", "a", "form.", "one", "two", "three", "four", "cell", "outer", "inner"]


def test_pages_without_end_tags_and_with_powers_are_read_right(tmp_path: Path) -> None:
    for name in ("bs4", "markdownify", "lxml"):
        pytest.importorskip(name)
    page = tmp_path / "page.html"
    page.write_text(
        "<p>6 × 10<sup>24</sup> kg, said<sup><a>3</a></sup> the 21<sup>st</sup><ol><li>alpha<li>beta</ol>"
        "<table><tr><th>City<th>Pop<tr><td>Bern<td>13</table>"
    )
    (text,) = documents_in(page)
    assert [line for line in text.splitlines() if line.strip()] == [
        "6 × 10^24 kg, said3 the 21st", "1. alpha", "2. beta", "| City | Pop |", "| --- | --- |", "| Bern | 13 |",
    ]  # fmt: skip
    page.write_bytes("<meta charset=gb2312><p>朱镕基在一九九八年成为总理".encode("gb18030"))
    assert list(documents_in(page)) == ["朱镕基在一九九八年成为总理"]


def test_parts_of_a_page_without_line_breaks_are_paragraphs(tmp_path: Path) -> None:
    for name in ("bs4", "markdownify", "lxml"):
        pytest.importorskip(name)
    (tmp_path / "page.html").write_text(
        "<title>Title</title><header>Head</header><nav>Menu</nav><main>Main<details><summary>Asked</summary>Answered"
        "</details></main><aside>Aside</aside><address>Street</address><form>Form</form><footer>Foot</footer>"
    )
    (text,) = documents_in(tmp_path / "page.html")
    assert text.split() == ["Title", "Head", "Menu", "Main", "Asked", "Answered", "Aside", "Street", "Form", "Foot"]


def test_json_lines_in_a_json_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"text": "One."}\n{"text": "Two."}\n{"text": "Cut\n')
    corpus = read_corpus(tmp_path)
    assert list(corpus.texts) == ["One.", "Two."]
    assert corpus.skipped[0][1].startswith("1 of 3 lines are not JSON; the first is line 3")
    (tmp_path / "a.json").write_text('[\n{"text": "One."},\n{"text": "Two."}\n')
    (tmp_path / "b.json").write_text('{"text": "Whole."}\n\n')
    corpus = read_corpus(tmp_path)
    assert list(corpus.texts) == ["Whole."]
    assert corpus.skipped[0][1].startswith("not valid JSON")
    (tmp_path / "a.json").write_text('\n{"text": \n{"text": "One."}\n{"text": "Two."}\n')
    assert list(read_corpus(tmp_path).texts) == ["One.", "Two.", "Whole."]


def test_lines_that_are_too_long_and_utf_16_are_called_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_formats, "MAX_LINE_BYTES", 1 << 20)
    short, exact = '{"text": "short"}', json.dumps({"text": "x" * ((1 << 20) - 12)})
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps({"text": "x" * (5 << 19)}), "{", short, exact]))
    read = documents_in(tmp_path / "a.jsonl")
    assert next(read) == "short"
    with pytest.raises(
        Unreadable, match=r"^1 of 4 lines are not JSON; the first is line 2; 1 of 4 lines are over 1 MB;"
    ):
        list(read)
    (tmp_path / "a.jsonl").write_bytes(f"{short}\n{short}".encode("utf-16"))
    with pytest.raises(Unreadable, match=r"^not UTF-8 text; save it as UTF-8$"):
        list(documents_in(tmp_path / "a.jsonl"))


DATA: list[dict[str, Any]] = [{"text": "One."}, {"text": "Two."}]


@pytest.mark.parametrize("content", [{"data": DATA}, {"version": "1.1", "count": 2, "next": None, "results": DATA}])
def test_rows_inside_an_object_that_says_nothing_else_are_documents(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert list(documents_in(tmp_path / "a.json")) == ["One.", "Two."]


@pytest.mark.parametrize(
    "content",
    [
        {"name": "Pancakes", "ingredients": DATA},
        {"about": "Fluffy pancakes", "ingredients": DATA},
        {"about": "朱镕基在一九九八年成为总理", "tags": DATA},
        {"text": "Yes", "tags": DATA},
        {"steps": ["Stir."], "ingredients": DATA},
        {"data": DATA, "more": DATA},
        {"id": 1, "messages": [{"role": "user", "content": "Hi"}]},
        {"id": 1, "conversations": [{"from": "human", "value": "Hi"}]},
        {"data": []},
        {"text": "One"},
        {"city": "Paris", "facts": DATA},
        {"city": "Paris", "data": DATA},
        {"prompt": "Hi", "checks": [{"max_words": 5}]},
    ],
)
def test_an_object_that_says_something_is_one_row(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert list(rows_of(tmp_path / "a.json")) == [content]


def test_numbers_of_rows_are_no_text(tmp_path: Path) -> None:
    for rows, documents in (
        (",text\n0,hello there\n1,\n", ["hello there"]),
        (",population\nFrance,67\n", [": France\npopulation: 67"]),
    ):
        (tmp_path / "rows.csv").write_text(rows)
        assert list(documents_in(tmp_path / "rows.csv")) == documents


@pytest.mark.parametrize("before", ["\n", "\n \r\n", ",,\n"])
def test_a_table_begins_with_its_first_line_that_is_not_blank(tmp_path: Path, before: str) -> None:
    (tmp_path / "t.csv").write_text(before + "id;text\n1;Where Oslo lies, and how\n2;Who built it\n")
    assert list(read_corpus(tmp_path / "t.csv").texts) == ["Where Oslo lies, and how", "Who built it"]


def test_rows_of_a_table_that_a_comma_cuts_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text\nHello, world\n"Hello, you"\n')
    corpus = read_corpus(tmp_path / "t.csv")
    assert list(corpus.texts) == ["Hello, you"]
    assert corpus.skipped[0][1].startswith("1 of 2 rows have more cells than the header")
    (tmp_path / "t.csv").write_text("more,text\nyes,Hello world,\nno,Bye world,\n")
    assert list(read_corpus(tmp_path / "t.csv").texts) == ["Hello world", "Bye world"]


def test_rows_with_loose_quotes_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = 'text,note\nHello,one\n"Hi" he said,two\n"Say ""hi""",three\n"open,four\nGood day,five\n'
    (tmp_path / "t.csv").write_text(rows)
    corpus = read_corpus(tmp_path / "t.csv")
    assert list(corpus.texts) == ["Hello", 'Say "hi"', "Good day"]
    assert corpus.skipped[0][1].startswith("2 of 5 rows have quotes that do not enclose a cell")
    (tmp_path / "t.csv").write_text('text,note\nHello,one\n\n\n"open,two\nGood day,three\n' + '"open,x\n' * 20_000)
    assert read_corpus(tmp_path / "t.csv").skipped[0][1].startswith("20001 of 20003 rows have quotes")


@given(
    rows=st.lists(
        st.sampled_from(["fine", '"quoted"', '"in two\nlines"', '"open', '"loose" end', 'in"side']), min_size=1
    )
)
def test_an_open_quote_costs_no_other_row(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    file = tmp_path_factory.mktemp("rows") / "t.csv"
    file.write_text("text\n" + "\n".join([f'"plain {number}"\n{row}' for number, row in enumerate(rows)]) + "\nlast\n")
    texts = list(read_corpus(file).texts)
    assert texts[-1] == "last"
    assert [text for text in texts if text.startswith("plain")] == [f"plain {number}" for number in range(len(rows))]
