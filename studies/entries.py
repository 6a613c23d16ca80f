"""The results of a study as files, one for each finished arm of a seed (`seed-N/ARM.json.gz`), and what they show.

Each is complete in itself: what was asked, where it ran, and how every item ended. Verdicts need nothing else, so files
of one declaration from several machines are merged by copying them into one folder. They are about differences of two
arms on the items that both were asked.
"""

import gzip
import json
import os
import platform
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from db.queries import Reader
from db.tables import Run
from db.tracker import code_version
from evals.results import MEASURES, POOLED, Result, finite, main_result
from evals.stats.claims import Decision, Hypothesis, SeedDifferences, decide
from pipelines.storage import open_atomic, write_atomic
from recovery.errors import RecoverError
from recovery.hardware import processor_field
from studies.declaration import OWN_CYCLE, WITHOUT_ITEMS, Claim, Study

Entry = dict[str, Any]
Arms = Mapping[str, Entry]  # of one seed
Tuned = Mapping[str, Mapping[str, Any]]  # settings by arm
SHIPPED_RESULTS = Path(__file__).parent / "results"
TUNED = "tuned.json"
LIBRARIES = ("recover", "torch", "transformers")
CURVES = ("loss", "kl", "entropy", "rollout_length", "truncated", "repetition", "stop_student", "stop_teacher")
HASH_KEY = re.compile(r"([0-9a-f]{8})[0-9a-f]{4}$")  # the end of a key of `item_key`


@dataclass(frozen=True)
class ArmFiles:
    """Where the entries of a study are looked for and written."""

    study: Study
    folder: Path  # of the study in the project: what this machine computed
    results: Path | None = None  # looked into before what ships, and written to as well
    again: bool = False  # only what this machine computed counts

    def entry(self, seed: int, arm: str) -> Entry | None:
        """What an arm came to; None if it is not done."""
        file = self._find(_name(seed, arm))
        return read_entry(file, self.study, seed, arm) if file else None

    def entries(self) -> list[Entry]:
        """Those of the seeds of the verdict that are done."""
        found = (self.entry(seed, arm) for seed in self.study.size.seeds for arm in self.study.arms)
        return [entry for entry in found if entry is not None]

    def tuned(self) -> Tuned | None:
        file = self._find(TUNED)
        try:
            return json.loads(file.read_text(encoding="utf-8")) if file else None
        except (OSError, ValueError) as error:
            raise RecoverError(
                f"The file {file} cannot be read: {error}. Remove it, and run the study again."
            ) from error

    def add(self, entry: Entry) -> Entry:
        """Write an entry; the result is what its file says."""
        with open_atomic(self.folder / _name(entry["seed"], entry["arm"])) as out:
            out.write(encode(entry))
        return decode(encode(entry))

    def add_tuned(self, tuned: Tuned) -> None:
        write_atomic(self.folder / TUNED, [json.dumps(tuned, indent=1, sort_keys=True) + "\n"])

    def share(self) -> None:
        """Copy what this machine computed into the folder of results."""
        if self.results is None:
            return
        for file in (*self.folder.glob("seed-*/*.json.gz"), *self.folder.glob(TUNED)):
            copy = self.results / self.study.folder_name / file.relative_to(self.folder)
            if self.again or not copy.is_file():
                with open_atomic(copy) as out:
                    out.write(file.read_bytes())

    def _find(self, name: str) -> Path | None:
        others = [] if self.again else [folder for folder in (self.results, SHIPPED_RESULTS) if folder]
        folders = [self.folder, *(folder / self.study.folder_name for folder in others)]
        return next((folder / name for folder in folders if (folder / name).is_file()), None)


def new_entry(study: Study, seed: int, arm: str, settings: Mapping[str, Any], measured: Mapping[str, Any]) -> Entry:
    """What was measured of an arm, with what was asked and where it ran."""
    asked = {"study": study.name, "size": study.size_name, "hash": study.hash, "base": study.base_name}
    return {**asked, "seed": seed, "arm": arm, "settings": dict(settings), **here(), **measured}


def read_entry(file: Path, study: Study, seed: int, arm: str) -> Entry:
    try:
        entry = decode(file.read_bytes())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RecoverError(f"The file {file} cannot be read: {error}. Remove it, and run the study again.") from error
    if (other := entry.get("hash")) != study.hash:
        raise RecoverError(
            f"The file {file} is of the declaration {other}, and this study is {study.hash}. Remove the file."
        )
    if (entry["seed"], entry["arm"]) != (seed, arm):
        raise RecoverError(
            f"The file {file} is of the arm {entry['arm']} of seed {entry['seed']}. Move it to where that belongs."
        )
    return entry


def encode(entry: Entry) -> bytes:
    """The same bytes for the same entry."""
    return gzip.compress(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode(), mtime=0)


def decode(content: bytes) -> Entry:
    entry: Entry = json.loads(gzip.decompress(content))
    return entry


def outcomes(results: Sequence[Result]) -> dict[str, dict[str, dict[str, list[str]]]]:
    """How every item ended, by suite and task: of a suite's main result, of pooled suites all that pass or fail."""
    kept: dict[str, dict[str, dict[str, list[str]]]] = {}
    for result in results:
        if result.is_pass_rate and (result.suite in POOLED or result is main_result(results, result.suite)):
            passed = _with_short_keys(result.passed_by_key())
            kept.setdefault(result.suite, {})[result.task] = {
                "passed": sorted(key for key in passed if passed[key]),
                "failed": sorted(key for key in passed if not passed[key]),
            }
    return kept


def run_entry(reader: Reader, run: Run) -> dict[str, Any]:
    """What a run was, its seconds without interruptions, and what the steps of a training logged."""
    curves: dict[str, list[float | None]] = {}
    steps: dict[str, list[int]] = {}
    for point in reader.points(run.id, names=CURVES):
        curves.setdefault(point.name, []).append(None if isnan(point.value) else float(f"{point.value:.4g}"))
        steps.setdefault(point.name, []).append(point.step + 1)
    some = {name: numbers for name, numbers in steps.items() if numbers != list(range(1, len(numbers) + 1))}
    seconds = reader.busy_seconds([run.id]).get(run.id)
    entry = {"kind": run.kind, "stage": run.inputs.stage, "seconds": seconds and round(seconds)}
    return entry | ({"curves": curves} if curves else {}) | ({"steps": some} if some else {})


def passes(task: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """1 for each item that passed, 0 for the others."""
    return {**dict.fromkeys(task["passed"], 1.0), **dict.fromkeys(task["failed"], 0.0)}


def _with_short_keys(passed: Mapping[str, bool]) -> dict[str, bool]:
    """Hashes are cut to 8 digits where they stay unique."""
    short = {HASH_KEY.sub(r"\1", key): value for key, value in passed.items()}
    return short if len(short) == len(passed) else dict(passed)


def _name(seed: int, arm: str) -> str:
    return f"seed-{seed}/{arm}.json.gz"


@cache
def here() -> dict[str, Any]:
    """The code and the machine of this process."""
    system = f"{platform.system()} {platform.machine()}"
    processor = processor_field("model name") or platform.processor()
    machine = {"processor": processor, "cores": os.cpu_count(), "system": system}
    return {"commit": code_version(), "machine": machine, "versions": _versions()}


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:  # run from a folder that is not installed
            found[library] = None
    return found


def results_of(study: Study, entries: Iterable[Entry]) -> dict[str, Any]:
    """The arms that are done, how many are planned, and once all are done the claims with their verdicts."""
    seeds: dict[int, dict[str, Entry]] = {seed: {} for seed in study.size.seeds}
    for entry in entries:
        seeds[entry["seed"]][entry["arm"]] = entry
    arms = [_in_short(by_arm[arm]) for by_arm in seeds.values() for arm in study.arms if arm in by_arm]
    planned = len(seeds) * len(study.arms)
    claims = study.declared.claims if len(arms) == planned else []
    hypotheses = [hypothesis_of(claim, list(seeds.values())) for claim in claims]
    decisions = decide(hypotheses, study.declared.error)
    decided = [_claim(*one) for one in zip(claims, hypotheses, decisions, strict=True)]
    return {"arms": arms, "planned": planned, "claims": decided}


def hypothesis_of(claim: Claim, seeds: Sequence[Arms]) -> Hypothesis:
    """A claim with its differences on every seed."""
    if claim.metric not in MEASURES:  # whatever prompts it is measured on are not in the error, see `seeds_alone`
        means = tuple(_value(arms, claim.of, claim) - _value(arms, claim.against, claim) for arms in seeds)
        return Hypothesis(SeedDifferences(means, 0.0, len(means)), claim.direction, claim.margin)
    paired = [_paired(claim, arms) for arms in seeds]
    differences = SeedDifferences.of_items([_group(pair, claim.items) for pair in paired])
    if claim.minus_items:
        differences = differences.minus(SeedDifferences.of_items([_group(pair, claim.minus_items) for pair in paired]))
        return Hypothesis(differences, claim.direction, claim.margin)
    against = [_group(_passes(claim.against, claim, arms), claim.items) for arms in seeds]
    room = 1 - fmean(fmean(passed.values()) for passed in against)
    return Hypothesis(differences, claim.direction, claim.margin, room)


def _claim(claim: Claim, hypothesis: Hypothesis, decision: Decision) -> dict[str, Any]:
    return {
        **claim.model_dump(exclude_none=True),
        "verdict": decision.verdict,
        "estimate": finite(decision.estimate),
        "low": finite(decision.low),
        "high": finite(decision.high),
        "p_support": finite(decision.p_support),
        "p_refute": finite(decision.p_refute),
        "needed": decision.needed,
        "seeds": [finite(mean) for mean in hypothesis.differences.means],
        "n": hypothesis.differences.items,
        "seeds_alone": claim.metric in WITHOUT_ITEMS,
    }


def _value(arms: Arms, arm: str, claim: Claim) -> float:
    values = arms[arm]["values"]
    if claim.metric not in values:
        raise RecoverError(f"The arm {arm} has no {claim.metric}, which the claim {claim.text!r} is about.")
    return float(values[claim.metric])


def _paired(claim: Claim, arms: Arms) -> dict[str, float]:
    of, against = (_passes(role, claim, arms) for role in (claim.of, claim.against))
    return {key: of[key] - against[key] for key in of if key in against}


def _passes(role: str, claim: Claim, arms: Arms) -> dict[str, float]:
    """1 for each item that an arm passed, 0 for the others."""
    stages = [stage["outcomes"] for stage in arms[claim.of if role == OWN_CYCLE else role]["stages"]]
    tasks = stages[-1].get(claim.metric, {})
    if role == OWN_CYCLE:
        measured = enumerate((stage.get("knowledge", {}) for stage in stages[:-1]), 1)
        tasks = {f"cycle:{number}": task for number, main in measured for task in main.values()}
    is_keyed_by_task = role == OWN_CYCLE or claim.metric in POOLED
    return {
        f"{name}/{key}" if is_keyed_by_task else key: passed
        for name, task in tasks.items()
        for key, passed in passes(task).items()
    }


def _group(differences: Mapping[str, float], group: str) -> dict[str, float]:
    return {key: value for key, value in differences.items() if not group or key.startswith(f"{group}/")}


def _in_short(entry: Entry) -> Entry:
    """Without items and curves."""
    stages = [
        {key: value for key, value in stage.items() if key not in ("outcomes", "runs")} for stage in entry["stages"]
    ]
    return entry | {"stages": stages}
