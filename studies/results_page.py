"""Write the results of a record's studies into docs/studies.md.

python -m studies.results_page --project DIR
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from db.headline_scores import MEASURES
from db.views import Study
from pipelines.project.project import Project
from studies.scripts import script_parser

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"
NONE = "No study has run to its verdict yet."


def main(argv: list[str] | None = None) -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--project", type=Path, required=True, help="the project whose record has the studies")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    project = Project.open_existing(args.project)
    before, _, rest = args.page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    args.page.write_text(before + BEGIN + results(project.reader.studies(project.id)) + END + after, encoding="utf-8")


def results(studies: list[Study]) -> str:
    """The newest finished run of each study and size."""
    newest: dict[tuple[str, str], Study] = {}
    for study in studies:
        if study.finished_at:
            newest.setdefault((study.name, study.size), study)
    text = "\n\n".join("\n".join(_section(newest[key])) for key in sorted(newest)) if newest else NONE
    return f"\n{text}\n\n"


def _section(study: Study) -> Iterator[str]:
    n = max(claim["n"] for claim in study.claims)
    seeds = len(next(iter(study.arms.values())))
    yield f"### {study.name.capitalize()}, {study.size}"
    yield f"\n    recover study {study.name} --size {study.size}\n"
    yield f"{study.declaration['title']}."
    yield f"Source: {study.declaration['source']}: {study.declaration['figure']}."
    yield f"{seeds} seeds, up to {n:,} items; declaration `{study.hash}`.\n"
    yield "| verdict | claim | difference | measured | interval | source |\n|---|---|---|---|---|---|"
    for claim in study.claims:
        yield _claim(claim)
    yield f"\n| arm | {' | '.join(MEASURES.values())} | steps | PFLOPs | seconds |\n|{'---|' * (len(MEASURES) + 4)}"
    for name, entries in study.arms.items():
        scores = [_mean([entry["scores"][measure] for entry in entries]) for measure in MEASURES]
        steps, pflops, seconds = (
            sum(entry[key] for entry in entries) / len(entries) for key in ("steps", "pflops", "seconds")
        )
        yield f"| {name} | {' | '.join(scores)} | {steps:.0f} | {pflops:.3f} | {seconds:.0f} |"


def _claim(claim: dict[str, Any]) -> str:
    interval = "" if claim.get("low") is None else f"{_signed(claim['low'])} … {_signed(claim['high'])}"
    source = _signed(claim["source"]) if claim.get("source") is not None else "no figure"
    verdict = claim["verdict"] + (f" ({claim['needed']})" if claim["needed"] else "")
    control = f"; control: {claim['control']}" if claim.get("control") else ""
    difference = f"{claim['metric']}, {claim['of']} less {claim['against']}"
    cells = (verdict, claim["text"] + control, difference, _signed(claim["estimate"]), interval, source)
    return f"| {' | '.join(cells)} |"


def _mean(values: list[float | None]) -> str:
    measured = [value for value in values if value is not None]
    return f"{sum(measured) / len(measured):.3f}" if measured else ""


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


if __name__ == "__main__":
    main()
