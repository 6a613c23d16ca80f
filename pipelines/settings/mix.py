"""The mix of mid-training as a text: of `--mix`, of `midtrain.mix` in recover.toml, and of a study's arm."""

from typing import Any

from pipelines.settings.sources import parse_value
from recovery.errors import RecoverError

DOCUMENTS_ONLY = {"answers": 0.0, "texts": 0.0, "earlier": 0.0}


def parse_mix(text: str) -> dict[str, Any]:
    """Entries of the mix from the text of `--mix`: `answers=0.3,texts=0.3` (what is not listed is 0), or `documents`
    (nothing beside the documents)."""
    if text.strip() == "documents":
        return dict(DOCUMENTS_ONLY)
    mix, listed = dict(DOCUMENTS_ONLY), set[str]()
    for entry in text.split(","):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if name not in DOCUMENTS_ONLY or not equals or name in listed:
            problem = "lists an entry twice" if name in listed else f"has the unknown entry {entry.strip()!r}"
            raise RecoverError(
                f"The mix {text!r} {problem}. Write --mix documents, or shares of "
                f"{', '.join(DOCUMENTS_ONLY)}, such as --mix answers=0.3,texts=0.3."
            )
        listed.add(name)
        mix[name] = parse_value(value)
    return mix
