"""Names that changed with version 0003, for runs in the database and for jobs on disk; each change can be undone.

Earlier records keep everything a run was given in `settings`. Here the settings get today's names, and the rest
moves to `inputs`.
"""

from typing import Any

MIDTRAIN = {"across": "cross_document_attention", "soft": "soft_labels", "recollections": "generated_texts"}
MIX = {"replay": "answers", "recollect": "texts", "rehearse": "earlier", "reword": "paraphrases"}
DISTILL = {"remember": "earlier_prompts"}
INPUTS = {
    "errand": "job",
    "stage": "stage",
    "corpus": "corpus",
    "questions": "questions",
    "passages": "passages",
    "teacher": "teacher",
    "beside": "mix",
    "replay": "answers_search",
    "reworded": "paraphrases",
}
EVALUATION_KEEPS = ("questions", "passages", "beside")  # in the settings of an evaluation these are its plan


def renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Training settings as this release names them."""
    settings = dict(settings)
    if isinstance(old := settings.get("midtrain"), dict):
        midtrain = {MIDTRAIN.get(name, name): value for name, value in old.items() if name not in MIX}
        mix = {new: old[name] for name, new in MIX.items() if name in old}
        if isinstance(share := mix.get("answers"), str) and share != "auto":
            mix["answers"] = float(share)
        settings["midtrain"] = midtrain | ({"mix": mix} if mix else {})
    if isinstance(old := settings.get("distill"), dict):
        distill = {DISTILL.get(name, name): value for name, value in old.items()}
        if distill.get("warm_start") == "usual":
            distill["warm_start"] = "default"
        settings["distill"] = distill
    return settings


def restored(settings: dict[str, Any]) -> dict[str, Any]:
    """Training settings as version 0002 named them."""
    settings = dict(settings)
    if isinstance(new := settings.get("midtrain"), dict):
        old_names = {after: before for before, after in MIDTRAIN.items()}
        midtrain = {old_names.get(name, name): value for name, value in new.items() if name != "mix"}
        mix = new.get("mix") or {}
        midtrain |= {old: mix[name] for old, name in MIX.items() if name in mix}
        if isinstance(midtrain.get("replay"), float):
            midtrain["replay"] = f"{midtrain['replay']:g}"
        settings["midtrain"] = midtrain
    if isinstance(new := settings.get("distill"), dict):
        old_names = {after: before for before, after in DISTILL.items()}
        distill = {old_names.get(name, name): value for name, value in new.items()}
        if distill.get("warm_start") == "default":
            distill["warm_start"] = "usual"
        settings["distill"] = distill
    return settings


def split(kind: str, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings, inputs) of a run that version 0002 recorded."""
    moved = [name for name in INPUTS if name in settings and not (kind == "eval" and name in EVALUATION_KEEPS)]
    inputs = {INPUTS[name]: settings[name] for name in moved if settings[name] is not None}
    if "mix" in inputs:
        inputs["mix"] = {MIX[name]: share for name, share in inputs["mix"].items()}
    elif kind == "midtrain" and isinstance(asked_for := settings.get("midtrain"), dict):
        inputs["mix"] = _mix_in_effect(asked_for, inputs.get("answers_search") or {})
    return renamed({name: value for name, value in settings.items() if name not in moved}), inputs


def join(kind: str, settings: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run as version 0002 recorded them."""
    inputs = dict(inputs)
    if "mix" in inputs:
        old_names = {new: old for old, new in MIX.items()}
        inputs["mix"] = {old_names[name]: share for name, share in inputs["mix"].items()}
    old_names = {new: old for old, new in INPUTS.items()}
    return restored(settings) | {old_names[name]: value for name, value in inputs.items()}


def _mix_in_effect(midtrain: dict[str, Any], search: dict[str, Any]) -> dict[str, float]:
    """What the earliest records say of it: the shares that were set, or the one that a search took."""
    answers = search.get("share", midtrain.get("replay", 0))
    return {"answers": 0.0 if answers == "auto" else float(answers), "texts": float(midtrain.get("recollect", 0))}
