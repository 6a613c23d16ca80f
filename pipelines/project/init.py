"""`recover init`: create a project with its settings file."""

import json
from pathlib import Path

from pipelines.project.paths import HOME, missing_folders, remove_empty
from pipelines.project.project import Project
from recovery.errors import RecoverError
from recovery.models.students import parameters_of

TEMPLATE = """\
# The defaults of other settings depend on the size of the model; `recover cycle --docs DIR --dry-run` shows them.
# [midtrain]
# epochs = 3         # for a small model 8
# [distill]
# steps = 100        # the maximum; for a small model 40
# [gate]
# behaviour_margin = 0.03
# keep_retention = 0.95
"""


def initialise(root: Path, base: str | None, db: str | None) -> Project:
    """Create the project in the record and write recover.toml; an existing project or file stays as it is.

    If that fails, the file and the folders that it created are deleted."""
    file = root / "recover.toml"
    if file.exists() and (base or db):
        raise RecoverError(f"The file {file} exists already. Write base or db into it.")
    is_new = not file.exists()
    new_folders = missing_folders(root / HOME)
    try:
        if is_new:
            root.mkdir(parents=True, exist_ok=True)
            lines = [f"{name} = {json.dumps(value)}" for name, value in (("base", base), ("db", db)) if value]
            file.write_text("\n".join([*lines, TEMPLATE]), encoding="utf-8")
        project = Project.open(root, base)
        parameters_of(project.base)  # raises RecoverError for a base that cannot be loaded
        _ = project.id  # creates the project in the record
    except BaseException:
        if is_new:  # else later commands would read the rejected values
            file.unlink(missing_ok=True)
        remove_empty(new_folders)
        raise
    return project
