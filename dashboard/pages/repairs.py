"""What a project decided outside any cycle: models from elsewhere that were repaired, or put into use as they were."""

from collections.abc import Sequence

from dashboard.ui.charts import NAMES
from dashboard.ui.components import badge, card, clock
from dashboard.ui.layout import link, shown
from dashboard.ui.polling import Asked, NotThere
from db.views import Checkpoint, Promotion, Stage

NEWEST = 12
"""Decisions told of; Lineage has all checkpoints."""


def repairs(asked: Asked) -> list[str]:
    """A sentence on what is in use, and the decisions: who, what, when and why. Nothing where there are neither."""
    decisions = asked.reader.promotions(asked.project.id)
    stages = [stage for stage in asked.reader.stages(asked.project.id) if stage.checkpoint]
    checkpoints = [stage.checkpoint for stage in stages if stage.checkpoint]
    decided = {made.checkpoint_id for made in decisions}
    waiting = [one for one in reversed(checkpoints) if one.role == "recovered" and one.id not in decided]
    if not decisions and not waiting:
        return []
    current = asked.reader.current(asked.project.id)
    sentence = f"No cycle yet; in use is {shown(current.reference if current else 'nothing', 80)}"
    names = {stage.checkpoint.id: _name(stage.checkpoint) + _scores(stage) for stage in stages if stage.checkpoint}
    lines = [_waiting(one, names[one.id]) for one in waiting]
    lines += [_decision(made, names.get(made.checkpoint_id, "a checkpoint")) for made in decisions]
    others = [f"<li>{names[one.id]}</li>" for one in checkpoints if one.role in ("base", "external")]
    ways = f'<p class="ways">{" · ".join(_ways(asked, checkpoints))}</p>'
    listed = f'<ul class="decisions">{"".join(lines[:NEWEST])}</ul>'
    beside = f'<h3>Beside them</h3><ul class="decisions">{"".join(others)}</ul>{ways}'
    top = f'<section class="verdict"><h1>{sentence}.</h1></section>'
    return [top, card("Decisions", listed + beside, "The newest first.")]


def no_cycle(asked: Asked) -> NotThere:
    """What a page about cycles says without any."""
    if not repairs(asked):
        return NotThere()
    where = link("", "The overview")
    return NotThere(f"<h1>No cycle on record yet</h1><p>{where} says what was repaired and decided.</p>")


def _waiting(one: Checkpoint, what: str) -> str:
    following = f"<code>recover promote {shown(one.reference, 80)}</code>"
    return f"<li>{what} waits for a decision: {following}, or with <code>--reject</code></li>"


def _decision(made: Promotion, what: str) -> str:
    return f"<li>{badge(made.decision)} {what}, {clock(made.at)} by {shown(made.who, 60)}: {shown(made.why, 500)}</li>"


def _name(one: Checkpoint) -> str:
    return link("lineage", shown(one.reference, 80), checkpoint=one.id)


def _scores(stage: Stage) -> str:
    values = {name: stage.scores[axis].value for axis, name in NAMES.items() if axis in stage.scores}
    told = [f"{name.lower()} {value:.3f}" for name, value in values.items() if value is not None]
    return f" ({', '.join(told)})" if told else ""


def _ways(asked: Asked, checkpoints: Sequence[Checkpoint]) -> list[str]:
    base, made = asked.reader.base(asked.project.id), next((one for one in reversed(checkpoints) if one.run_id), None)
    ways = [link("lineage", "Where all checkpoints come from")]
    if base and made:
        ways.append(link("compare", "Compare with the clean model", a=base.id, b=made.id))
    if told := asked.reader.runs_with_rollouts(asked.project.id):
        ways.append(link("tokens", "What the student wrote, token by token", run=told[0].id))
    return ways
