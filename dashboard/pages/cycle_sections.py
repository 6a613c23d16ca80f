"""What the page of a cycle, and a report of it, say in tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dashboard.pages.cycles import documents_of
from dashboard.pages.verdict_text import badge_of, earlier_bounds, held
from dashboard.ui.components import (
    DOING,
    NOTHING,
    Cell,
    ago,
    badge,
    card,
    change,
    clock,
    duration,
    number,
    size,
    table,
    tick,
)
from dashboard.ui.layout import link, shown
from db.headlines import headline
from db.queries import Reader
from db.types import now
from db.views import Cycle, Evaluation, Promotion, Run

Task = tuple[str, str, str]
"""Suite, task, data: measurements that agree in these can be compared."""
Measured = Mapping[str, Mapping[Task, Evaluation]]

STAGES = {"clean": "Clean", "damaged": "Mid-trained", "recovered": "Recovered"}
DOCUMENTS_SHOWN = 200
EARLIER = "earlier"
GIVEN = {"errand", "stage", "corpus", "questions", "passages", "earlier"}
"""The suite of questions on the documents of earlier cycles; its tasks are `cycle:1` and so on."""


def timeline(runs: Sequence[Run], decisions: Sequence[Promotion], cycle: Cycle) -> str:
    """The runs of a cycle as bars over the time it took, and who decided what in the end."""
    if not runs:
        return card("Stages", '<p class="nothing">Nothing has run yet.</p>')
    begin = min(run.started_at for run in runs)
    whole = max(_end(run) for run in runs) - begin or timedelta(seconds=1)
    bars = "".join(_bar(run, (run.started_at - begin) / whole, (_end(run) - run.started_at) / whole) for run in runs)
    decided = "".join(_decision(one, cycle) for one in reversed(decisions) if one.cycle == cycle.number)
    note = f"{clock(begin)}, {duration(whole)} from the first to the last"
    return card("Stages", f'<ol class="timeline">{bars}</ol><ul class="decisions">{decided}</ul>', note)


def gate(cycle: Cycle) -> str:
    """Each bound of the verdict: what was measured, how bad it could still be, and what it had to reach."""
    verdict = cycle.verdict or {}
    judged = {name: said for name, said in verdict.items() if isinstance(said, dict) and "passed" in said}
    judged |= {f"knowledge of cycle {number}": said for number, said in earlier_bounds(cycle).items()}
    if not judged:
        return ""
    rows = [
        [
            Cell(shown(name.capitalize(), 60)),
            Cell(tick(held(said)), "", held(said)),
            *(
                Cell(_number(said.get(key)), "number", said.get(key))
                for key in ("value", "bound", "limit", "n", "needed")
            ),
        ]
        for name, said in judged.items()
    ]
    columns = ["Bound", "Passed", "Measured", "At worst (95 %)", "Limit", "Items", "Items to settle it"]
    note = (
        "Behaviour: the difference to the clean model. The gate asks what is certain: the worst must reach the limit."
    )
    return card("The gate", table("The gate's bounds", columns, rows, save=f"gate-cycle-{cycle.number}"), note)


def measured_in(reader: Reader, cycle: Cycle, runs: Sequence[Run]) -> Measured:
    """By stage, the last measurement of each task; for the clean model those made in this cycle come first."""
    own, found = {run.id for run in runs}, {}
    stages = {"clean": cycle.clean, "damaged": cycle.damaged, "recovered": cycle.recovered}
    for name, stage in stages.items():
        done = reader.evaluations(stage.checkpoint.id) if stage.checkpoint else []
        done.sort(key=lambda one: one.run_id in own)
        found[name] = {(one.suite, one.task, one.data): one for one in done}
    return found


def measurements(found: Measured, cycle: Cycle) -> str:
    """Every task that was measured, for each of the three checkpoints."""
    tasks = sorted({key for evaluations in found.values() for key in evaluations if key[0] != EARLIER})
    if not tasks:
        return ""
    rows = []
    for key in tasks:
        measured = [found[name].get(key) for name in STAGES]
        scores = [headline(one) if one else None for one in measured]
        cells, ends = [number(score) for score in scores], [score.value if score else None for score in scores[1:]]
        suite, task, data = key
        name = Cell(f"{shown(task, 60)} <small>{shown(data, 60)}</small>")
        rows.append([name, Cell(suite), *cells, Cell(change(*ends) or NOTHING)])
    columns = ["Task", "Suite", *STAGES.values(), "By distillation"]
    return card("Measured", table("All measurements", columns, rows, save=f"measured-cycle-{cycle.number}"))


def earlier(found: Measured, cycle: Cycle, cycles: Sequence[Cycle]) -> str:
    """What is still known of every earlier cycle's documents."""
    then = {f"cycle:{one.number}": one for one in cycles}
    asked = {task: key for key in {**found["damaged"], **found["recovered"]} if (task := key[1]) and key[0] == EARLIER}
    rows = []
    for task in sorted(asked, key=lambda name: then[name].number if name in then else 0):
        taught = then.get(task)
        ended = taught.recovered.scores.get("knowledge") if taught else None
        now = [found[name].get(asked[task]) for name in ("damaged", "recovered")]
        scores = [ended, *(headline(one) if one else None for one in now)]
        bound = earlier_bounds(cycle).get(task.removeprefix("cycle:"), {})
        name = link("cycle", f"Cycle {taught.number}", number=taught.number) if taught else shown(task, 60)
        documents = shown(documents_of(taught, ""), 60) if taught else ""
        limit = Cell(_number(bound.get("limit")), "number", bound.get("limit"))
        judged = Cell(tick(held(bound)) if bound else NOTHING, "", held(bound) if bound else "")
        rows.append([Cell(name), Cell(documents, "documents"), *(number(score) for score in scores), limit, judged])
    if not rows:
        return ""
    columns = ["Taught by", "Documents", "At its own end", "Mid-trained", "Recovered", "Limit", "Passed"]
    note = "The same questions as then, asked again in this cycle."
    return card("What earlier cycles taught", table("Earlier knowledge", columns, rows, save="earlier"), note)


def kinds(found: Measured, cycle: Cycle) -> str:
    """What was forgotten and what came back, by kind of instruction; the most damaged first."""
    shares = {name: _by_kind(evaluations) for name, evaluations in found.items()}
    ends = [stage.checkpoint.id if stage.checkpoint else None for stage in (cycle.clean, cycle.recovered)]
    names = sorted(shares["damaged"], key=lambda kind: shares["damaged"][kind] - shares["clean"].get(kind, 0))
    rows = []
    for kind in names:
        values = [shares[name].get(kind) for name in STAGES]
        bars = [Cell(_share_bar(value, name), "share", value) for value, name in zip(values, STAGES, strict=True)]
        way = link("compare", shown(kind, 80), a=ends[0], b=ends[1], kind=kind)
        rows.append([Cell(way), *bars, Cell(change(*values[::2]) or NOTHING)])
    if not rows:
        return ""
    columns = ["Instruction", *STAGES.values(), "Against clean"]
    content = table("By kind of instruction", columns, rows, save=f"kinds-cycle-{cycle.number}")
    return card("Forgotten and recovered, by kind of instruction", content, "The most damaged first.")


def settings(runs: Sequence[Run], before: Sequence[Run], earlier: Cycle | None) -> str:
    """What was set differently in the cycle before; without one, everything that was set."""
    mine, theirs = (dict(_flat({run.kind: _set(run.settings) for run in those})) for those in (runs, before))
    if not mine:
        return ""
    names = [name for name in {**mine, **theirs} if earlier is None or mine.get(name) != theirs.get(name)]
    if not names:
        return card("Settings", '<p class="nothing">The same as in the cycle before.</p>')
    both = earlier is not None
    columns = ["Setting", "This cycle", *([f"Cycle {earlier.number}"] if earlier else [])]
    sides = (mine, theirs) if both else (mine,)
    rows = [[Cell(shown(name, 80)), *(Cell(shown(side.get(name, "–"), 200)) for side in sides)] for name in names]
    title = "Settings that differ from the cycle before" if both else "Settings"
    content = table(title, columns, rows, save="settings")
    return card(title, content if both else f"<details><summary>{len(rows)} settings</summary>{content}</details>")


def documents(reader: Reader, cycle: Cycle, root: str) -> str:
    listed = reader.documents(cycle.corpus_id) if cycle.corpus_id is not None else []
    where = f"From {shown(documents_of(cycle, root), 200)}."
    if not listed:
        return card("Documents", f"<p>{where}</p>")
    columns = ["Document", "Size", "Content"]
    rows = [
        [
            Cell(shown(one.name, 200)),
            Cell(size(one.bytes), "number", one.bytes),
            Cell(f"<code>{shown(one.hash[:12])}</code>"),
        ]
        for one in listed[:DOCUMENTS_SHOWN]
    ]
    more = len(listed) - len(rows)
    content = table("Documents", columns, rows, save=f"documents-cycle-{cycle.number}")
    note = f"{where} {len(listed)} documents, {size(sum(one.bytes for one in listed))}."
    note += f" The first {len(rows)} are listed." if more else ""
    return card("Documents", f"<details><summary>Show them</summary>{content}</details>", note)


def _by_kind(evaluations: Mapping[Task, Evaluation]) -> dict[str, float]:
    return {
        metric.removeprefix("strict/"): score.value
        for evaluation in evaluations.values()
        for metric, score in evaluation.scores.items()
        if metric.startswith("strict/") and score.value is not None
    }


def _end(run: Run) -> Any:
    return run.finished_at or (now() if run.status == "running" else run.heartbeat_at)


def _bar(run: Run, left: float, width: float) -> str:
    where = f"left: {100 * left:.2f}%; width: {max(100 * width, 0.6):.2f}%"
    told = f"{DOING[run.kind]}, {duration(_end(run) - run.started_at)}"
    more = f" <small>heard of {ago(run.heartbeat_at)}</small>" if run.status == "running" else ""
    tokens = f" · {link('tokens', 'rollouts', run=run.id)}" if run.kind == "distill" else ""
    error = f'<span class="refused">{shown(run.error, 300)}</span>' if run.error else ""
    return (
        f'<li><span class="what">{told}{more}{tokens} {badge(run.status) if run.status != "done" else ""}{error}</span>'
        f'<span class="track"><span class="bar {run.kind}" style="{where}"></span></span></li>'
    )


def _decision(made: Promotion, cycle: Cycle) -> str:
    by_the_gate = made.why == (cycle.verdict or {}).get("reason")  # a person who rejects has reasons of their own
    how = badge_of(cycle) if by_the_gate and made.decision == cycle.status else badge(made.decision)
    return f"<li>{how} {clock(made.at)} by {shown(made.who, 60)}: {shown(made.why, 500)}</li>"


def _share_bar(value: float | None, stage: str) -> str:
    if value is None:
        return NOTHING
    return f'<span class="share-bar {stage}"><span style="width: {100 * value:.0f}%"></span></span> {value:.2f}'


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}".replace("-", "−")


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a run was given to work on, which is another each time."""
    return {name: value for name, value in settings.items() if name not in GIVEN}


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value)
