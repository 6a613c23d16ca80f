"""A project: the folder that recover works in, its record, and its checkpoints: how users refer to them, where their
weights are now, and the hash that identifies weights.

A reference is `base`, `current`, `run:7`, `cycle:3` or `cycle:3/midtrained`; anything else is a folder or a hub id."""

import hashlib
import json
import os
import re
import secrets
import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Engine

from db import name_of_base
from db.engine import display_name, is_sqlite, open_database, parse_url
from db.queries import Reader
from db.tables import Checkpoint, CheckpointKind, Cycle, Run, RunKind
from db.tables import Project as ProjectRow
from db.tracker import Tracker
from pipelines.project.locations import (
    FIXED,
    HOME,
    absolute_if_exists,
    describe_base,
    find_root,
    local_base,
    locate_base,
    relocate,
    resolve_base,
)
from pipelines.settings.sources import read_toml
from pipelines.storage import ContentCache, content_hash, write_atomic
from recovery.errors import RecoverError
from recovery.lab import BASE as LAB_BASE
from recovery.models.gguf_dequantisation import names_gguf

NAME_FILE = "name"
CREATION_LOCK = "name.lock"
NO_PROJECT = "There is no project here yet. Run `recover demo`, or `recover midtrain --docs DIR`."
REFERENCE = re.compile(
    r"(?P<name>base|current)|run:(?P<run>\d{1,9})|cycle:(?P<cycle>\d{1,9})(/(?P<stage>midtrained|recovered))?"
)
ADAPTER_CONFIG = "adapter_config.json"
BESIDE_WEIGHTS = (  # files that decide what a model replies
    *(ADAPTER_CONFIG, "config.json", "generation_config.json", "chat_template.jinja", "chat_template.json"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt"),
)


def is_reference(text: str) -> bool:
    """Whether it names a checkpoint of the project; else a folder or a hub id."""
    return REFERENCE.fullmatch(text) is not None


def model_path(reference: str) -> str:
    """The folder (absolute) or hub id of a model from outside the project."""
    path = absolute_if_exists(reference)
    if names_gguf(path):
        raise RecoverError(
            f"A GGUF file such as {reference} can only be the base (--base) of a project. Name a folder or a hub id."
        )
    if path.startswith((".", "/", "~")) and not Path(path).exists():
        raise RecoverError(f"There is no folder {reference}. Name a folder that exists, or a checkpoint or hub id.")
    if not Path(path).exists() and (path.partition("@")[0].count("/") != 1 or ":" in path):
        raise RecoverError(
            f"There is no checkpoint {reference!r}. Name base, current, cycle:N, cycle:N/midtrained, run:N, "
            "an existing folder, or a hub id like org/name."
        )
    folder = Path(path)
    if folder.is_file():
        raise RecoverError(f"{reference} is a file. Name the folder that holds the model.")
    if folder.is_dir() and not any((folder / name).is_file() for name in ("config.json", ADAPTER_CONFIG)):
        saved = [file.parent for file in folder.glob("checkpoint-*/*config.json")]
        if saved:
            last = max(saved, key=lambda checkpoint: checkpoint.stat().st_mtime)
            raise RecoverError(f"There is no model in {reference}, but checkpoints of its training. Name {last}.")
    return path


@dataclass
class Project:
    """Gives access to the record and the checkpoints of a project; `open` finds one or prepares a new one."""

    root: Path
    base: str  # the clean model: a folder or hub id
    base_is_default: bool
    temporary_home: Path | None = None  # replaces `.recover` for a dry run, so that `root` stays untouched
    open_run: tuple[int, RunKind] | None = None  # the run in the record that is being computed

    @classmethod
    def open(cls, folder: Path | None, base: str | None = None, temporary_home: Path | None = None) -> "Project":
        """The project in the folder, or else in the working directory or its nearest parent with a `.recover` folder.

        The recorded base wins over the configured one; raises RecoverError if `base` differs from it."""
        root = find_root(folder)
        configured = resolve_base(root, base)
        project = cls(root.resolve(), configured.model, configured.is_default, temporary_home)
        row = project.row  # opens the record if there is one, and upgrades it
        recorded = locate_base(row.base, project.root) if row else None
        if base or row is None:
            project.base = local_base(project.base, project.home, recorded)
        if recorded is not None:
            if base and recorded != project.base:
                raise RecoverError(
                    f"This project works from {describe_base(recorded)}. To work from {base}, start another "
                    "project: use another folder, or --project DIR."
                )
            project.base = recorded
            project.base_is_default = recorded == str(LAB_BASE)
        elif any(next((project.home / folder).glob("*"), None) for folder in ("checkpoints", "progress", "jobs")):
            raise RecoverError(project._not_in_record())
        return project

    @classmethod
    def open_existing(cls, folder: Path | None) -> "Project":
        """Like `open`, but raises RecoverError where no project exists, and creates nothing."""
        if not cls.exists(folder):
            raise RecoverError(f"There is no project in {folder}. Name the folder of one." if folder else NO_PROJECT)
        return cls.open(folder)

    @classmethod
    def exists(cls, folder: Path | None) -> bool:
        """Whether a project was created in the folder; creates nothing."""
        return (find_root(folder) / HOME / NAME_FILE).is_file()

    @cached_property
    def name(self) -> str:
        """The project's name in the record. It is stored in the folder, which may be moved or renamed; one database
        may hold several projects."""
        if self.name_file.is_file():
            return self.name_file.read_text(encoding="utf-8").strip()
        return f"{self.root.name or 'project'}-{secrets.token_hex(4)}"

    @property
    def base_name(self) -> str:
        """The base for people: a folder, a hub id, or the name of the GGUF file that it was made from."""
        return name_of_base(self.base)

    @property
    def home(self) -> Path:
        return self.temporary_home or self.root / HOME

    @property
    def cache(self) -> ContentCache:
        return ContentCache(self.home / "cache")

    @property
    def name_file(self) -> Path:
        """Exists once the project is in the record."""
        return self.home / NAME_FILE

    @cached_property
    def database(self) -> str:
        """A URL or the path of an SQLite file: RECOVER_DB, else `db` in recover.toml, else `.recover/recover.db`."""
        if self.temporary_home:
            return str(self.home / "recover.db")
        in_toml = read_toml(self.root).get("db")
        if in_toml is not None and not (isinstance(in_toml, str) and in_toml.strip()):
            file = self.root / "recover.toml"
            raise RecoverError(f"The setting db in {file} is {in_toml!r}. It must be a database URL in quotes.")
        path = (in_toml or "").strip().removeprefix("sqlite:///")
        if path and "://" not in path and "?" not in path and path != ":memory:":  # relative to the file
            in_toml = os.path.normpath(self.root / Path(path).expanduser())
        return os.environ.get("RECOVER_DB") or in_toml or str(self.home / "recover.db")

    @property
    def database_label(self) -> str:
        """The database for messages: without its password."""
        return display_name(parse_url(self.database)) if "://" in self.database else self.database

    @property
    def is_shared(self) -> bool:
        """Whether several projects share the record, on a server."""
        return not is_sqlite(parse_url(self.database))

    @cached_property
    def engine(self) -> Engine:
        return open_database(self.database)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.engine)

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self.engine)

    @property
    def row(self) -> ProjectRow | None:
        """The project's entry in the record; None as long as it is not created. Creates no file."""
        return self.reader.project(self.name) if self._has_record else None

    @property
    def _has_record(self) -> bool:
        return self.is_shared or Path(str(parse_url(self.database).database)).is_file()

    def _not_in_record(self) -> str:
        """What to do where the folder has the work of a project that the record does not name."""
        if self.name_file.is_file():
            problem = (
                f"The record in {self.database_label} does not contain the project in {self.root}. Name the record "
                "that the project was created with (RECOVER_DB, or db in recover.toml)."
            )
        else:
            projects = self.reader.projects() if self._has_record else []
            name = next((project.name for project in projects if project.root == str(self.root)), "")
            called = f" ({name})" if name else ""
            problem = (
                f"{self.name_file} is gone, so the project in {self.root} is not found in its record: write the name "
                f"that it has in {self.database_label}{called} into that file."
            )
        return (
            f"{problem} If the record is lost, start a new project in another folder; the checkpoints in "
            f"{self.home / 'checkpoints'} can serve there as --base or --student."
        )

    @cached_property
    def id(self) -> int:
        """The project's id in the record; the first use creates the project there."""
        if self.name_file.is_file():
            return self._recorded_id()
        self.home.mkdir(parents=True, exist_ok=True)
        with FileLock(self.home / CREATION_LOCK) as lock:
            try:
                recorded = self._recorded_id()
                if not self.name_file.is_file():
                    write_atomic(self.name_file, [self.name, "\n"])
                return recorded
            finally:
                Path(lock.lock_file).unlink(missing_ok=True)  # nobody takes it again once the name is stored

    def _recorded_id(self) -> int:
        """The project's id in the record; stores the project and its base where they are not there yet."""
        if self.name_file.is_file():  # another command may have created the project in the meantime
            self.name = self.name_file.read_text(encoding="utf-8").strip()
        row = self.row
        if row and (base := locate_base(row.base, self.root)) != self.base:
            raise RecoverError(f"Another command has just created this project from {describe_base(base)}. Try again.")
        # What is there is only read: the folder may be read-only, the record busy.
        is_stored = row is not None and (row.root == str(self.root) or not os.access(self.home, os.W_OK))
        project_id = row.id if row and is_stored else self.tracker.project(self.name, self.root, self.base)
        if self.reader.base(project_id) is None:
            weights = weights_hash(Path(self.base)) if Path(self.base).is_dir() else None
            self.tracker.checkpoint(project_id, "base", self.base, hash=weights)
        return project_id

    @property
    def clean(self) -> Checkpoint:
        base = self.reader.base(self.id)
        assert base is not None
        return self.locate(base)

    @property
    def current(self) -> Checkpoint:
        """The checkpoint that was promoted last; the base, if none was."""
        return self.locate(self.recorded_current)

    @property
    def recorded_current(self) -> Checkpoint:
        """The current checkpoint as it is recorded; its weights may be gone."""
        current = self.reader.current(self.id)
        assert current is not None
        return current

    @cached_property
    def base_weights_id(self) -> str:
        """Identifies the base; raises RecoverError if its weights are gone, or have changed since the project was
        created."""
        current = weights_hash(Path(self.base)) if Path(self.base).is_dir() else None
        recorded = self.clean.hash
        if recorded and current is None:
            raise RecoverError(
                f"The folder {self.base}, which has the clean model of this project, is gone. Put it back there."
            )
        if recorded not in (None, current):
            raise RecoverError(
                f"The weights in {self.base} are not those that this project was created with (another hash). They "
                "were changed, or an update of recover brought another built-in model. Restore the earlier weights, or "
                "start a new project in another folder."
            )
        return weights_id(self.base, current)

    def weights_id(self, checkpoint: Checkpoint) -> str:
        """Identifies the weights of a checkpoint and the files beside them, for keys of measurements and caches."""
        if checkpoint.role == "base":
            return self.base_weights_id
        return weights_id(checkpoint.path, checkpoint.hash) if checkpoint.hash else self.model_id(checkpoint.path)

    def model_id(self, model: str) -> str:
        """As `weights_id`, with that of an adapter's base; but the weights in a folder are read again only where a file
        was changed since."""
        if model == self.base:
            return self.base_weights_id
        if not (folder := Path(model)).is_dir():
            return weights_id(model)
        files = [(file.name, file.stat()) for file in sorted(folder.glob("*.safetensors"))]
        # Not the time of the content, which a copy or an archive may bring along.
        inputs = [model, *([name, about.st_size, about.st_ctime_ns] for name, about in files)]
        id = weights_id(model, self.cache.get_or_write("weights", inputs, lambda: weights_hash(folder)))
        if not (folder / ADAPTER_CONFIG).is_file():
            return id
        from recovery.models.adapters import base_of  # imports torch, which takes a second

        below = base_of(model)
        return f"{id}/{self.model_id(below)}" if below else id

    def latest_midtrained(self) -> Checkpoint | None:
        """The mid-trained checkpoint of the last cycle, to be distilled or to try again; None if that was promoted."""
        cycle = self.last_cycle
        checkpoint = cycle.damaged.checkpoint if cycle and cycle.status != "promoted" else None
        return self.locate(checkpoint) if checkpoint else None

    @property
    def last_cycle(self) -> Cycle | None:
        """Open cycles without any checkpoint do not count."""
        recorded = self.reader.cycles(self.id) if self.row else []
        cycles = [c for c in recorded if c.status != "open" or c.damaged.checkpoint]
        return cycles[-1] if cycles else None

    def run(self, number: int) -> Run:
        run = self.reader.run(number)
        if run is None or run.project_id != self.id:
            raise RecoverError(f"There is no run {number} in this project. List the runs with `recover runs`.")
        return run

    def checkpoint_folder(self, run: int) -> Path:
        return self.home / "checkpoints" / f"run-{run:04d}"

    def progress_folder(self, run: int) -> Path:
        return self.home / "progress" / f"run-{run:04d}"

    def resolve(self, reference: str, *, store: bool = True) -> Checkpoint:
        """The checkpoint that a reference names; a model from outside the project is recorded on first use."""
        return self.verify(self.find(reference, store=store))

    def path_of(self, reference: str) -> str:
        """The model that a reference names. Unlike `resolve`, this stores nothing and verifies no weights."""
        if not is_reference(reference):
            return model_path(reference)
        if self.row is None and reference in ("base", "current"):
            return self.base
        return self.locate(self.find(reference)).path

    def name_of(self, reference: str) -> str:
        """What the record calls the model that a reference names. One from outside is not recorded for that."""
        if is_reference(reference):
            return self.find(reference).reference
        path = model_path(reference)
        return self.clean.reference if path == self.base else path

    def find(self, reference: str, *, known: bool = False, store: bool = True) -> Checkpoint:
        """Like `resolve`, as it is recorded: the weights may be gone or elsewhere. With `known`, it must be."""
        checkpoint: Checkpoint | None = None
        parts = REFERENCE.fullmatch(reference)
        if parts is None and known:
            path = absolute_if_exists(reference)
            outside = (c for c in self.reader.checkpoints(self.id) if c.role in ("base", "external"))
            checkpoint = next((c for c in outside if c.path == path), None)
        elif parts is None:
            checkpoint = self._from_outside(model_path(reference), store)
        elif reference == "base":
            checkpoint = self.clean
        elif reference == "current":
            checkpoint = self.recorded_current
        elif self.row and parts["run"]:
            checkpoint = self.reader.run_checkpoint(int(parts["run"]))
        elif self.row:
            checkpoint = self.reader.cycle_checkpoint(
                self.id, int(parts["cycle"]), "midtrained" if parts["stage"] == "midtrained" else "recovered"
            )
        if checkpoint is None or checkpoint.project_id != self.id:
            raise RecoverError(f"There is no {reference} in this project yet. List its runs with `recover runs`.")
        return checkpoint

    def _from_outside(self, path: str, store: bool) -> Checkpoint | None:
        if path == self.base:
            return self.clean
        kind: CheckpointKind = "adapter" if (Path(path) / ADAPTER_CONFIG).is_file() else "full"
        if store:
            return self.reader.checkpoint(self.tracker.checkpoint(self.id, "external", path, kind))
        return Checkpoint(project_id=self.id, role="external", path=path, kind=kind)

    def locate(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with the path where its weights are now; raises RecoverError if they are gone."""
        if checkpoint.role == "base":
            return checkpoint.replaced(path=self.base)
        folder = relocate(self.home, Path(checkpoint.path))
        if checkpoint.hash is None:
            return checkpoint.replaced(path=str(folder)) if folder.parent.name == FIXED else checkpoint
        if folder.is_dir() and folder.is_relative_to(self.home):  # a copy reads not the original's
            return checkpoint.replaced(path=str(folder))
        cycles = self.reader.cycles(checkpoint.project_id)
        cycle = next((c for c in cycles if c.number == checkpoint.cycle), None)
        documents = cycle.documents if cycle and checkpoint.role == "midtrained" else None
        todo = (
            f"Mid-train again with `recover cycle --docs {shlex.quote(documents)}`" if documents else "Train it again"
        )
        if checkpoint.deleted_at:
            raise RecoverError(f"The weights of {checkpoint.reference} were deleted (`recover gc --rejected`). {todo}.")
        raise RecoverError(f"The weights of {checkpoint.reference} are gone from {folder}. {todo}.")

    def verify(self, checkpoint: Checkpoint) -> Checkpoint:
        """Like `locate`; also raises RecoverError if the weights, or those of the project's base below an adapter,
        differ from the recorded hash."""
        checkpoint = self.locate(checkpoint)
        if checkpoint.hash is None:
            return checkpoint
        if checkpoint.role == "base":
            _ = self.base_weights_id
            return checkpoint
        folder = Path(checkpoint.path)
        if weights_hash(folder) != checkpoint.hash:
            raise RecoverError(
                f"The weights in {folder} are not those recorded for {checkpoint.reference} (another hash). The file "
                "was changed or damaged. Restore it, or continue from another checkpoint."
            )
        if checkpoint.kind == "adapter":
            from recovery.models.adapters import base_of, same_model  # imports torch, which takes a second

            if (below := base_of(checkpoint.path)) and same_model(below, self.base):
                _ = self.base_weights_id
        return checkpoint


def weights_id(model: str, weights: str | None = None) -> str:
    """Identifies a model: the hash of its weights, which is `weights` if it is known, and one of the files beside them
    that decide its replies; of a hub id, the commit that is loaded."""
    folder = Path(model)
    if folder.is_dir():
        return f"{weights or weights_hash(folder)}/{_files_hash(folder)}"
    if weights:
        return weights
    from recovery.models.students import hub_commit  # imports torch, which takes a second

    return hub_commit(model) or model


def weights_hash(folder: Path) -> str:
    """SHA-256 over the safetensors files of a folder, in the order of their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            while chunk := weights.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _files_hash(folder: Path) -> str:
    """A short hash of the configs and of the tokenizer's files. Where an adapter's base lies is left out: a project may
    be moved."""
    contents = {name: (folder / name).read_bytes() for name in BESIDE_WEIGHTS if (folder / name).is_file()}
    if ADAPTER_CONFIG in contents:
        with suppress(ValueError):
            adapter = json.loads(contents[ADAPTER_CONFIG]) | {"base_model_name_or_path": None}
            contents[ADAPTER_CONFIG] = json.dumps(adapter, sort_keys=True).encode()
    return content_hash({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})[:16]
