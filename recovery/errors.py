"""The base class of every error that a user can cause or fix, and how errors of libraries are put into words."""

import json
import re
from pathlib import Path

CHECK_REVISION, NAME_A_FOLDER = "Check the part after the @.", "Connect to the network, or name a folder."
HUB_PROBLEMS = {  # a pattern in the types and texts of an error and its causes: what went wrong, and what to do
    "GatedRepoError|gated dataset": "(its terms of use have not been accepted). "
    "Accept them on its page of the hub, and log in with `hf auth login`.",
    "RevisionNotFoundError|Revision '": f"(the hub has no such revision of it). {CHECK_REVISION}",
    "RepositoryNotFoundError|DatasetNotFoundError": "(the hub has nothing of this name, or it is private). "
    "Check the name, or log in with `hf auth login`.",
    "(?s)HfHubHTTPError.*(Invalid credentials|401 Unauthorized|403 Forbidden)": "(the hub refused your token). "
    "Log in again with `hf auth login`, with a token that may read it.",
    "LocalEntryNotFoundError|OfflineModeIsEnabled|Connect(ion)?Error|(Connect|Read)Timeout": "(it is not in the cache, "
    f"and the hub cannot be reached). {NAME_A_FOLDER}",
    "HfHubHTTPError": "(the hub answered with an error). Try again later.",
    "custom code": "(it needs code of its own, which is never run). Choose a model whose family transformers knows.",
    "does not recognize this architecture": "(transformers does not know its kind of model). Install a newer "
    "transformers, if there is one that does.",
    "instantiate the backend tokenizer": "(it has no tokenizer files). Add its tokenizer.json.",
}


JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class RecoverError(Exception):
    """An error the user can fix: its message is full sentences and says what to do."""


class LostProcess(RecoverError):
    EXIT_CODE = 75  # of a process that does not know why, and says nothing


def first_line(error: BaseException) -> str:
    """What went wrong, for a one-line message: the first line of the error's text, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def hub_problem(error: BaseException, advice: str, *, by_reference: bool = True) -> str:
    """`(what went wrong). What to do.` for an error while loading something that may be on the hub.

    `advice` is for other problems than those listed; without `by_reference` (the user did not name the model or data
    set), it also replaces advice about the name. Types go by name: importing the hub's libraries takes long."""
    cause: BaseException | None = error
    text, unknown = "", f"({first_line(error).rstrip(' .:')}). {advice}"
    while cause is not None:
        text += f"{type(cause).__name__}: {cause}\n"
        cause = cause.__cause__ or cause.__context__
    problem = next((problem for pattern, problem in HUB_PROBLEMS.items() if re.search(pattern, text)), unknown)
    if not by_reference:
        problem = problem.replace(CHECK_REVISION, advice).replace(NAME_A_FOLDER, advice)
    return problem


def cannot_load(what: str, reference: str, error: Exception) -> RecoverError:
    """For a model or a tokenizer in a folder or on the hub."""
    for file in (Path(reference) / name for name in JSON_FILES):
        try:
            json.loads(file.read_bytes())
        except OSError:  # it is not there
            continue
        except ValueError as broken:
            return RecoverError(f"The file {file} is not valid JSON ({first_line(broken)}). Copy or download it again.")
    is_local = Path(reference).is_dir()
    advice = (
        "Copy or download it again, or save it again with save_pretrained."
        if is_local
        else "Check the model name or folder."
    )
    return RecoverError(f"No {what} could be loaded from {reference!r} {hub_problem(error, advice)}")
