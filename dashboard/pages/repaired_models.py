"""Decisions outside any cycle: external models that were repaired, or put into use as they were."""

from collections.abc import Sequence

from markupsafe import Markup

from dashboard.pages.cycle_summary import against_gate
from dashboard.ui.html import bdi, card, join, link, load
from dashboard.ui.polling import NotFound, PageRequest
from db.headline_scores import MEASURES
from db.tables import Checkpoint, Stage

MAX_DECISIONS = 12  # the lineage page has all checkpoints
_html = load("overview.html")


def repair_sections(request: PageRequest) -> list[Markup]:
    """The current model, and the decisions with user, time and reason. Empty if there are no decisions to show."""
    decisions = request.reader.promotions(request.project.id)
    stages = request.reader.stages(request.project.id)
    checkpoints = [stage.checkpoint for stage in stages if stage.checkpoint]
    decided = {decision.checkpoint_id for decision in decisions}
    pending = [model for model in reversed(checkpoints) if model.role == "recovered" and model.id not in decided]
    if not decisions and not pending:
        return []
    current = request.reader.current(request.project.id)
    names = {stage.checkpoint.id: _name(stage.checkpoint, stage) for stage in stages if stage.checkpoint}
    listed = _html.decisions(
        [(names[checkpoint.id], checkpoint.reference) for checkpoint in pending][:MAX_DECISIONS],
        [(d, names.get(d.checkpoint_id, "a checkpoint")) for d in decisions][: max(0, MAX_DECISIONS - len(pending))],
        [names[checkpoint.id] for checkpoint in checkpoints if checkpoint.role in ("base", "external")],
        _links(request, checkpoints),
    )
    return [
        _html.current_model(current.reference if current else "nothing", against_gate(decisions, current)),
        card("Decisions", listed, "Newest first."),
    ]


def no_cycle(request: PageRequest) -> NotFound:
    """The error of a page about cycles in a project without any."""
    if not repair_sections(request):
        return NotFound()
    return NotFound("No cycles yet", "The overview shows repaired models and decisions.", link=link("", "Overview"))


def _name(checkpoint: Checkpoint, stage: Stage) -> Markup:
    values = {name: stage.scores[axis].value for axis, name in MEASURES.items() if axis in stage.scores}
    scores = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    name = link("lineage", bdi(checkpoint.reference, 80), checkpoint=checkpoint.id)
    return join([name, f" ({', '.join(scores)})" if scores else ""])


def _links(request: PageRequest, checkpoints: Sequence[Checkpoint]) -> list[Markup]:
    base = request.reader.base(request.project.id)
    latest = next((checkpoint for checkpoint in reversed(checkpoints) if checkpoint.run_id), None)
    links = [link("lineage", "Lineage of all checkpoints")]
    if base and latest:
        links.append(link("compare", "Compare with the clean model", a=base.id, b=latest.id))
    if runs := request.reader.runs_with_rollouts(request.project.id):
        links.append(link("tokens", "Rollouts token by token", run=runs[0].id))
    return links
