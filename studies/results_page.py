"""Write the results that ship with recover into docs/studies.md: python -m studies.results_page"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from db.headline_scores import MEASURES
from recovery.errors import RecoverError
from studies.declaration import Study, load_study
from studies.entries import SHIPPED_RESULTS, ArmFiles, Entry, decode, results_of

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"
WIDTH = 120
NONE = "No study has run to its verdict yet."


def main() -> None:
    PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_results(page: str, folder: Path = SHIPPED_RESULTS) -> str:
    """The page with what the studies of the folder have shown."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = ["\n".join(_section(study, results)) for study, results in finished_studies(folder)]
    text = "\n\n".join(sections) or NONE
    return f"{before}{BEGIN}\n{text}\n\n{END}{after}"


def finished_studies(folder: Path = SHIPPED_RESULTS) -> Iterator[tuple[Study, dict[str, Any]]]:
    """The studies of the folder that have run to their verdicts, with their results."""
    for of_study in sorted(folder.glob("*/")):
        if files := sorted(of_study.glob("seed-*/*.json.gz")):
            study = _study(of_study, decode(files[0].read_bytes()))
            results = results_of(study, ArmFiles(study, of_study, again=True).entries())
            if results["claims"]:
                yield study, results


def _section(study: Study, results: dict[str, Any]) -> Iterator[str]:
    declared, seeds = study.declared, study.size.seeds
    n = max(claim["n"] for claim in results["claims"])
    base = ""
    if study.other_base:  # a model on a machine is named with its content
        base = f" --base {'FOLDER' if study.other_base.endswith(')') else shlex.quote(study.other_base)}"
    yield f"### {study.name.capitalize()}, {study.size_name}"
    yield f"\n    recover study {study.name} --size {study.size_name}{base}\n"
    about = f"{declared.title}. Source: {declared.source}: {declared.figure}."
    about += f" {len(seeds)} seeds, up to {n:,} items; declaration `{study.hash}`."
    yield fill(about, WIDTH, break_on_hyphens=False) + "\n"
    yield "| verdict | claim | difference | measured | interval | source |\n|---|---|---|---|---|---|"
    for claim in results["claims"]:
        yield _claim(claim)
    yield f"\n| arm | {' | '.join(MEASURES.values())} | steps | PFLOPs | seconds |\n|{'---|' * (len(MEASURES) + 4)}"
    by_arm = {name: [entry for entry in results["arms"] if entry["arm"] == name] for name in study.arms}
    for name in sorted(by_arm, key=lambda name: -_sum_of_scores(by_arm[name])):
        yield _arm(name, by_arm[name])
    stopped = [line for name in study.arms for entry in by_arm[name] for line in _stopped(entry)]
    yield from ["", *stopped] if stopped else []


def _study(folder: Path, entry: Entry) -> Study:
    study = load_study(entry["study"], entry["size"])
    if study.base != entry["base"]:
        study = load_study(entry["study"], entry["size"], entry["base"])
    if study.folder_name != folder.name:
        raise RecoverError(f"The results in {folder} are of another declaration than {study.hash}. Remove them.")
    return study


def _arm(name: str, entries: list[Entry]) -> str:
    scores = [_mean([entry["scores"][measure] for entry in entries]) for measure in MEASURES]
    steps, pflops, seconds = (
        sum(entry[key] for entry in entries) / len(entries) for key in ("steps", "pflops", "seconds")
    )
    return f"| {name} | {' | '.join(scores)} | {steps:.0f} | {pflops:.3f} | {seconds:.0f} |"


def _stopped(entry: Entry) -> Iterator[str]:
    """Why the trainings of an arm ended before their last step."""
    for stage in entry["stages"]:
        if why := stage.get("stopped"):
            yield fill(f"- {entry['arm']}, seed {entry['seed']}: {why}", WIDTH, subsequent_indent="  ")


def _sum_of_scores(entries: list[Entry]) -> float:
    """The order of the arms, as in the picture of them."""
    return sum(score for entry in entries for score in entry["scores"].values() if score is not None) / len(entries)


def _claim(claim: dict[str, Any]) -> str:
    interval = "" if claim.get("low") is None else f"{_signed(claim['low'])} … {_signed(claim['high'])}"
    interval += " (over seeds alone)" if claim["seeds_alone"] else ""
    source = _signed(claim["source"]) if claim.get("source") is not None else "no figure"
    verdict = claim["verdict"] + (f" ({claim['needed']})" if claim["needed"] else "")
    control = f"; control: {claim['control']}" if claim.get("control") else ""
    difference = f"{claim['metric']}, {claim['of']} less {claim['against']}"
    cells = (verdict, claim["text"] + control, difference, _signed(claim["estimate"]), interval, source)
    return f"| {' | '.join(cells)} |"


def _mean(values: list[float | None]) -> str:
    measured = [value for value in values if value is not None]
    return f"{sum(measured) / len(measured):.3f}" if measured else ""


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}".replace("-", "−")


if __name__ == "__main__":
    main()
