"""Names that changed with version 0003, for runs in the database and for jobs on disk; each change can be undone.

One change is for good: the address of the database, which may hold a password, leaves the settings.

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
    settings = {name: value for name, value in settings.items() if name != "db"}
    if isinstance(old := settings.get("midtrain"), dict):
        midtrain = {MIDTRAIN.get(name, name): value for name, value in old.items() if name not in MIX}
        mix = {new: old[name] for name, new in MIX.items() if name in old}
        if "answers" in mix:
            mix["answers"] = _as_number(mix["answers"])
        settings["midtrain"] = midtrain | ({"mix": mix} if mix else {})
    if isinstance(old := settings.get("distill"), dict):
        distill = {DISTILL.get(name, name): value for name, value in old.items()}
        if "warm_start" in distill:
            distill["warm_start"] = _as_number({"usual": "default"}.get(old["warm_start"], old["warm_start"]))
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
        if "replay" in midtrain:
            midtrain["replay"] = _as_text(midtrain["replay"])
        settings["midtrain"] = midtrain
    if isinstance(new := settings.get("distill"), dict):
        old_names = {after: before for before, after in DISTILL.items()}
        distill = {old_names.get(name, name): value for name, value in new.items()}
        if "warm_start" in distill:
            distill["warm_start"] = _as_text({"default": "usual"}.get(new["warm_start"], new["warm_start"]))
        settings["distill"] = distill
    return settings


def split(kind: str, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings, inputs) of a run that version 0002 recorded."""
    moved = [name for name in INPUTS if name in settings and not (kind == "eval" and name in EVALUATION_KEEPS)]
    inputs = {INPUTS[name]: settings[name] for name in moved if settings[name] is not None}
    if "mix" in inputs:
        inputs["mix"] = {MIX[name]: share for name, share in inputs["mix"].items()}
    elif kind == "midtrain" and isinstance(old_midtrain := settings.get("midtrain"), dict):
        inputs["mix"] = _mix_in_effect(old_midtrain, inputs.get("answers_search") or {})
    return renamed({name: value for name, value in settings.items() if name not in moved}), inputs


def join(settings: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run as version 0002 recorded them."""
    inputs = dict(inputs)
    if "mix" in inputs:
        old_names = {new: old for old, new in MIX.items()}
        shares = {old_names[name]: share for name, share in inputs["mix"].items()}
        inputs["mix"] = {name: share for name, share in shares.items() if name != "rehearse"}  # 0002 kept only these
    old_names = {new: old for old, new in INPUTS.items()}
    return restored(settings) | {old_names[name]: value for name, value in inputs.items()}


def _as_number(share: Any) -> Any:
    """A share that version 0002 wrote as text; words such as "auto" stay."""
    return share if share in ("auto", "off", "default") else _number(share)


def _as_text(share: Any) -> str:
    return repr(share).removesuffix(".0") if isinstance(share, float) else str(share)


def _mix_in_effect(midtrain: dict[str, Any], search: dict[str, Any]) -> dict[str, float]:
    """What the earliest records say of it: the shares that were set, or the one that a search took."""
    answers = search.get("share", midtrain.get("replay", 0))
    return {"answers": _number(answers), "texts": _number(midtrain.get("recollect", 0))}


def _number(value: Any) -> float:
    """0 for what is no number: one odd value must not keep the whole record from opening."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
