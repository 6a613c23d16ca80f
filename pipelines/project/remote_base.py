"""A base in an object store: fetched once, into the project's own folder, which is the base from then on."""

from pathlib import Path

from pipelines.log import log
from pipelines.project.paths import REMOTE_BASES
from pipelines.storage.remote_folder import RemoteFolder


def fetched_base(address: str, home: Path, recorded: str | None) -> str:
    """The folder with this version of the base. It is fetched on first use, unless the project has recorded another."""
    remote = RemoteFolder(address)
    name = f"{remote.label.rpartition('/')[2]}-{remote.version()[:12]}"
    folder = home.resolve() / REMOTE_BASES / name
    if not folder.is_dir() and recorded in (None, str(folder)):
        log.info(f"Fetching {remote.label}")
        remote.fetch(folder)
    return str(folder)
