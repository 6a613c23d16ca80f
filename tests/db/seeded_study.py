"""A study in the record, with its verdicts: a claim of each kind."""

from typing import Any

from db.tracker import Tracker

CLAIMS: list[dict[str, Any]] = [
    {"text": "Distillation raises instruction following", "source": 0.114, "verdict": "supported",
     "estimate": 0.31, "low": 0.24, "high": 0.38, "seeds": [0.29, 0.31, 0.33], "needed": ""},
    {"text": "It is better than interpolation", "control": "interpolation alone", "verdict": "refuted",
     "estimate": -0.01, "low": -0.03, "high": 0.01, "seeds": [-0.02, 0.0, -0.01], "needed": ""},
    {"text": "It is better than off-policy answers", "verdict": "cannot tell",
     "estimate": 0.01, "low": -0.05, "high": 0.07, "seeds": [-0.02, 0.0, 0.05], "needed": "14 seeds"},
]  # fmt: skip
COMMON = {"metric": "behaviour", "of": "opd", "against": "damaged", "direction": "above", "margin": 0.02}


def declaration(title: str = "Distillation restores instruction following") -> dict[str, Any]:
    claims = [COMMON | {"text": claim["text"]} for claim in CLAIMS]
    arms = {"opd": {"settings": {"distill": {"beta": 0.5}}}}
    named = {"title": title, "source": "A paper, 2025", "figure": "71.4 → 82.8"}
    return named | {"claims": claims, "arms": arms, "base": "lab"}


def arm(name: str, seed: int, behaviour: float) -> dict[str, Any]:
    scores = {"behaviour": behaviour, "knowledge": 0.94, "earlier": None, "retention": 0.9}
    return {"arm": name, "seed": seed, "scores": scores, "steps": 8, "pflops": 0.0021, "seconds": 41.3,
            "commit": "0.1.0+g1a2b3c4"}  # fmt: skip


def add_study(tracker: Tracker, project: int, title: str = "Distillation restores instruction following") -> int:
    study = tracker.study(project, "personalisation", "quick", "9f" * 8, declaration(title))
    arms = [arm(name, seed, score) for seed in (1, 2, 3) for name, score in (("damaged", 0.56), ("opd", 0.87))]
    claims = [COMMON | {"n": 600} | claim for claim in CLAIMS]
    tracker.store_study(study, {"arms": arms, "planned": 6, "claims": claims}, done=True)
    return study
