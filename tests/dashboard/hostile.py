"""A record in which every text of people, documents and models is an attack."""

from db.tracker import Tracker
from tests.db.seeded import Seeded, seed

HARM = "window.hacked=1"
BAD = (
    f"<script>{HARM}</script><img src=x onerror='{HARM}'><svg onload={HARM}>\"' onmouseover='{HARM}' x=\""
    f"${{{HARM}}}{{{{{HARM}}}}}</textarea></style><iframe srcdoc='<script>parent.{HARM}</script>'></iframe>"
    "\u202egnp.exe\u2066\x00\x07\x1b[31m"
)
LONG = BAD + "x" * 1_000_000
NOTE = f"""{BAD}

[click](javascript:{HARM}) [data](data:text/html,<script>{HARM}</script>) <javascript:{HARM}> ![picture](http://192.0.2.1/x.png)

<details open ontoggle="{HARM}">x</details>
"""


def hostile(tracker: Tracker) -> Seeded:
    seeded = seed(tracker, BAD, cycles=1)
    project = seeded.project
    corpus = tracker.corpus(f"/{BAD}", "0")
    tracker.documents(corpus, [{"name": BAD, "hash": BAD, "bytes": 1}, {"name": LONG, "hash": "b", "bytes": 1}])
    cycle = tracker.open_cycle(project, corpus)
    for kind, role, parent in (("midtrain", "midtrained", seeded.base), ("distill", "recovered", None)):
        run = tracker.start_run(project, kind, cycle.id, {BAD: BAD, "x": LONG}, steps=2)  # type: ignore[arg-type]
        tracker.step(run, 0, {"loss": 1.0, BAD: 2.0})
        tokens = [[BAD, 0.5, [[BAD, 0.5]], [[BAD, 0.5]]]]
        tracker.rollouts(run, 0, [{"prompt": LONG, "text": LONG}, {"prompt": BAD, "text": BAD, "tokens": tokens}])
        last = tracker.checkpoint(project, role, f"/{BAD}", parent=parent, run=run, cycle=cycle.id, hash=BAD)  # type: ignore[arg-type]
        for checkpoint in (last, seeded.base):
            tracker.evaluation(checkpoint, run, _evaluation())
        tracker.finish_run(run, "failed", LONG) if kind == "midtrain" else tracker.flush()
    outside = tracker.checkpoint(project, "external", BAD)
    tracker.evaluation(outside, None, _evaluation())
    judgement = {"passed": False, "value": 0.1, "bound": 0.1, "limit": 0.2, "before": 0.3, "n": 9, "setting": BAD}
    verdict = {
        "passed": False,
        "behaviour": judgement,
        "earlier": {BAD: judgement, "1": judgement},
        "retention": judgement | {"tasks": {BAD: {"lost": 2, "gained": 1}}, "graded": [BAD]},
        "changes": [BAD, LONG],
        "reason": BAD,
    }
    tracker.promote(project, cycle.id, last, "rejected", BAD, LONG, verdict)
    tracker.note(project, NOTE, BAD, cycle=cycle.id)
    tracker.note(project, NOTE, BAD, checkpoint=last)
    return seeded


def _evaluation() -> dict[str, object]:
    verdicts = {"instructions": [BAD, BAD], "strict": [True, False]}
    items = [
        {"key": BAD, "prompt": BAD, "answer": BAD, "passed": True, "verdicts": verdicts},
        {"key": "long", "prompt": LONG, "answer": LONG, "passed": False, "verdicts": BAD},
    ]
    metrics = {name: {"value": 0.5, "n": 2} for name in ("prompt_level_strict_acc", f"strict/{BAD}")}
    task = {"suite": "behaviour", "task": "ifeval", "data": BAD, "seconds": 1.0}
    return {**task, "settings": {BAD: BAD}, "metrics": metrics, "items": items}
