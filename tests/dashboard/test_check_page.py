from typing import Any

from dashboard.html_report import check_page

ROW = {"name": "<b>kind</b>", "suite": "behaviour", "task": None, "kind": "x", "base": 0.9, "model": 0.6,
       "difference": -0.3, "ci95": [-0.35, -0.25], "n": 1400, "lost": 420, "gained": 0}  # fmt: skip

FAULT = {"what": "Turns end with <|im_end|> (2), and generation stops nowhere", "cure": "Name <|im_end|> there",
         "repairable": True}  # fmt: skip


def data(**fields: Any) -> dict[str, Any]:
    whole = {"checkpoint": "<script>x</script>", "base": "base", "outcome": "failed", "summary": "It forgot & lost.",
             "forgotten": [ROW], "learned": [], "notes": ["Its <i>template</i> is another."],
             "turn_ends": {"rows": [["chat template", "<|im_end|> (2)", "none"]], "faults": [FAULT]}}  # fmt: skip
    return whole | fields


def test_the_page_has_the_table_and_the_sentence_and_loads_nothing() -> None:
    html = check_page(data(learned=[ROW | {"name": "new knowledge", "suite": "knowledge", "ci95": [None, None]}]))
    assert "It forgot &amp; lost." in html
    assert "−0.300" in html
    assert "−0.350 to −0.250" in html
    assert "1,400" in html
    assert "new knowledge" in html
    assert html.count("&lt;|im_end|&gt; (2)") == 2
    assert "and generation stops nowhere. Name &lt;|im_end|&gt; there" in html
    body = html[html.index("<body>") :]
    assert ' src="' not in body
    assert 'href="' not in body


def test_hostile_text_stays_text() -> None:
    html = check_page(data())
    for text in ("<script>x", "<b>kind", "<i>template", "<|im_end|>"):
        assert text not in html


def test_a_model_that_ends_its_turns_is_said_to() -> None:
    assert "The turns of the model end where they should." in check_page(data(turn_ends={"rows": [], "faults": []}))


def test_a_model_whose_turns_end_wrongly_has_not_passed() -> None:
    for fault, failed in ((FAULT, True), (FAULT | {"repairable": False}, False)):
        page = check_page(data(outcome="passed", turn_ends={"rows": [], "faults": [fault]}))
        assert ('class="badge failed"' in page) is failed
