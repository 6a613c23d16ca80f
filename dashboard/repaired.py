"""What a project decided outside any cycle: models from elsewhere that were repaired, or put into use as they were."""

from collections.abc import Sequence

from dashboard.follow import Asked, NotThere
from dashboard.frame import link, shown
from dashboard.parts import badge, card, clock
from db.views import Checkpoint, Promotion

NEWEST = 12
"""Decisions told of; Lineage has all checkpoints."""


def repairs(asked: Asked) -> list[str]:
    """A sentence on what is in use, and the decisions: who, what, when and why. Nothing where there are neither."""
    decisions = asked.reader.promotions(asked.project.id)
    checkpoints = asked.reader.checkpoints(asked.project.id)
    decided = {made.checkpoint_id for made in decisions}
    waiting = [one for one in reversed(checkpoints) if one.role == "recovered" and one.id not in decided]
    if not decisions and not waiting:
        return []
    current = asked.reader.current(asked.project.id)
    sentence = f"No cycle yet; in use is {shown(current.reference if current else 'nothing', 80)}"
    by_id = {one.id: one for one in checkpoints}
    lines = [_waiting(one) for one in waiting] + [_decision(made, by_id.get(made.checkpoint_id)) for made in decisions]
    ways = f'<p class="ways">{" · ".join(_ways(asked, checkpoints))}</p>'
    listed = f'<ul class="decisions">{"".join(lines[:NEWEST])}</ul>{ways}'
    return [f'<section class="verdict"><h1>{sentence}.</h1></section>', card("Decisions", listed, "The newest first.")]


def no_cycle(asked: Asked) -> NotThere:
    """What a page about cycles says without any."""
    if not repairs(asked):
        return NotThere()
    where = link("", "The overview")
    return NotThere(f"<h1>No cycle on record yet</h1><p>{where} says what was repaired and decided.</p>")


def _waiting(one: Checkpoint) -> str:
    following = f"<code>recover promote {shown(one.reference, 80)}</code>"
    return f"<li>{_name(one)} waits for a decision: {following}, or with <code>--reject</code></li>"


def _decision(made: Promotion, one: Checkpoint | None) -> str:
    what = _name(one) if one else "a checkpoint"
    return f"<li>{badge(made.decision)} {what}, {clock(made.at)} by {shown(made.who, 60)}: {shown(made.why, 500)}</li>"


def _name(one: Checkpoint) -> str:
    return link("lineage", shown(one.reference, 80), checkpoint=one.id)


def _ways(asked: Asked, checkpoints: Sequence[Checkpoint]) -> list[str]:
    base, made = asked.reader.base(asked.project.id), next((one for one in reversed(checkpoints) if one.run_id), None)
    ways = [link("lineage", "Where all checkpoints come from")]
    if base and made:
        ways.append(link("compare", "Compare with the clean model", a=base.id, b=made.id))
    if told := asked.reader.runs_with_rollouts(asked.project.id):
        ways.append(link("tokens", "What the student wrote, token by token", run=told[0].id))
    return ways
