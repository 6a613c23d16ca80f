"""A folder that recover works in: its record, its checkpoints, and what a reference means in it."""

import hashlib
import os
import re
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sqlalchemy import Engine, make_url

from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from db.views import Checkpoint, Cycle, Run
from pipelines.files import write_atomic
from pipelines.project.paths import HOME, relocate
from pipelines.settings import read_toml
from recovery.errors import RecoverError
from recovery.lab import BASE as LAB_BASE
from recovery.lab import installed_base_path

NAME = "name"
NAMED = re.compile(r"base|current|run:(?P<run>\d+)|cycle:(?P<cycle>\d+)(/(?P<stage>midtrained|recovered))?")


@dataclass
class Project:
    root: Path
    base: str  # a folder or hub id: the clean model
    base_is_default: bool
    elsewhere: Path | None = None  # a home that is thrown away, for a look at what would be begun in `root`

    @classmethod
    def open(cls, folder: Path | None, base: str | None = None, elsewhere: Path | None = None) -> "Project":
        """The nearest parent that has a record, else here. What a project was begun with stays its base."""
        root = _root(folder)
        written = read_toml(root).get("base")
        if written is not None and not isinstance(written, str):
            raise RecoverError(f"base in {root / 'recover.toml'} should be a folder or a hub id, not {written!r}")
        if written and (root / written).exists():
            written = str(root / written)  # a path in the file counts from the file
        wanted = base or os.environ.get("RECOVER_BASE") or written
        project = cls(root.resolve(), _as_path(wanted or str(LAB_BASE)), wanted is None, elsewhere)
        known = project.reader.project(project.name)
        if known is not None:
            of_record = _base_now(known.base, project.root)
            if base and of_record != project.base:
                raise RecoverError(
                    f"this project works from {of_record}; begin another one (another folder, or --project DIR) "
                    f"to work from {base}"
                )
            project.base = of_record
            project.base_is_default = of_record == str(LAB_BASE)
        elif project.named.is_file() and project._has_work:
            raise RecoverError(
                f"the record in {project.database_shown} knows nothing of the project in {project.root}: name the one "
                "it was begun with (RECOVER_DB, or db in recover.toml); if that is lost, begin a new project elsewhere "
                f"(what lies in {project.home / 'checkpoints'} serves there as --base or --student)"
            )
        return project

    @classmethod
    def open_existing(cls, folder: Path | None) -> "Project":
        """A project that is there already: looking must not begin one."""
        if not cls.is_begun(folder):
            raise RecoverError("there is no project here yet: run recover demo, or recover midtrain --docs DIR")
        return cls.open(folder)

    @cached_property
    def name(self) -> str:
        """How the record knows it, kept in the folder, which may move; one database may hold several projects."""
        if self.named.is_file():
            return self.named.read_text(encoding="utf-8").strip()
        if self.reader.project(str(self.root)) is not None:  # begun by a release that knew it by its folder
            return str(self.root)
        return f"{self.root.name or 'project'}-{secrets.token_hex(4)}"

    @property
    def home(self) -> Path:
        return self.elsewhere or self.root / HOME

    @property
    def _has_work(self) -> bool:
        return any(next((self.home / kind).glob("*"), None) for kind in ("checkpoints", "progress", "jobs"))

    @property
    def is_where_one_is(self) -> bool:
        """Whether a command finds it without being told."""
        return _root(None) == self.root

    @property
    def named(self) -> Path:
        """The file that is there once the record knows the project."""
        return self.home / NAME

    @cached_property
    def database(self) -> str:
        """A URL, or the path of an SQLite file: `RECOVER_DB`, then `db` in recover.toml, then the project's own."""
        if self.elsewhere:
            return str(self.home / "recover.db")
        written = read_toml(self.root).get("db")
        if written is not None and not isinstance(written, str):
            raise RecoverError(f"db in {self.root / 'recover.toml'} should be a database URL, not {written!r}")
        if written and "://" not in written:
            written = str(self.root / Path(written).expanduser())  # a path in the file counts from the file
        return os.environ.get("RECOVER_DB") or written or str(self.home / "recover.db")

    @property
    def database_shown(self) -> str:
        """Without its password."""
        return make_url(self.database).render_as_string() if "://" in self.database else self.database

    @cached_property
    def _engine(self) -> Engine:
        return open_database(self.database)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self._engine)

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self._engine)

    @cached_property
    def id(self) -> int:
        self.home.mkdir(parents=True, exist_ok=True)
        if self.named.is_file():  # another command may have begun it since this one looked
            self.name = self.named.read_text(encoding="utf-8").strip()
        made = self.tracker.project(self.name, self.root, self.base)
        if not self.named.is_file():
            write_atomic(self.named, [self.name, "\n"])
        if self.reader.base(made) is None:
            weights = weights_of(self.base) if Path(self.base).is_dir() else None
            self.tracker.checkpoint(made, "base", self.base, hash=weights)
        return made

    @property
    def clean(self) -> Checkpoint:
        found = self.reader.base(self.id)
        assert found is not None
        return self.locate(found)

    @cached_property
    def base_weights(self) -> str:
        """What tells the clean model's weights from others', if they are still those that the project began with."""
        found, known = weights_of(self.base), self.clean.hash
        if known not in (None, found):
            raise RecoverError(
                f"the weights in {self.base} are not those that this project began with as base (another hash): they "
                "were changed, or an update of recover brought another built-in model; put the earlier ones back, or "
                "begin a new project in another folder"
            )
        return found

    def weights(self, checkpoint: Checkpoint) -> str:
        """What tells a checkpoint's weights from others'."""
        if checkpoint.role == "base":
            return self.base_weights
        return checkpoint.hash or weights_of(checkpoint.path)

    @property
    def current(self) -> Checkpoint:
        return self.locate(self.reader.current(self.id) or self.clean)

    @staticmethod
    def is_begun(folder: Path | None) -> bool:
        """Whether looking would find anything: a look must not begin a project, and what was refused began none."""
        home = _root(folder) / HOME
        return (home / NAME).is_file() or _is_known_by_folder(home)

    def latest_midtrained(self) -> Checkpoint | None:
        """What the open cycle waits to have recovered; a cycle that was decided is left alone."""
        last = self.last_cycle
        waiting = last.damaged.checkpoint if last and last.status == "open" else None
        return self.locate(waiting) if waiting else None

    @property
    def last_cycle(self) -> Cycle | None:
        """Those that were broken off before they made anything do not count."""
        made = [c for c in self.reader.cycles(self.id) if c.status != "open" or c.damaged.checkpoint]
        return made[-1] if made else None

    def run(self, number: int) -> Run:
        known = self.reader.run(number)
        if known is None or known.project_id != self.id:
            raise RecoverError(f"there is no run {number} in this project; `recover runs` lists them")
        return known

    def checkpoint_folder(self, run: int) -> Path:
        return self.home / "checkpoints" / f"run-{run:04d}"

    def resolve(self, reference: str) -> Checkpoint:
        """The checkpoint a reference names; a folder or hub id from outside is put on record when first used."""
        named = NAMED.fullmatch(reference)
        if named is None:
            path = _as_path(reference)
            if not Path(path).exists() and (path.startswith((".", "/", "~")) or path.count("/") != 1):
                raise RecoverError(
                    f"there is no checkpoint {reference!r}: name base, current, cycle:N, cycle:N/midtrained, run:N, "
                    "an existing folder, or a hub id like org/name"
                )
            own = path == self.base
            found = self.clean if own else self.reader.checkpoint(self.tracker.checkpoint(self.id, "external", path))
        elif reference == "base":
            found = self.clean
        elif reference == "current":
            found = self.current
        elif named["run"]:
            found = self.reader.run_checkpoint(int(named["run"]))
        else:
            found = self.reader.cycle_checkpoint(self.id, int(named["cycle"]), named["stage"] or "recovered")  # type: ignore[arg-type]
        if found is None or found.project_id != self.id:
            raise RecoverError(f"there is no {reference} in this project yet; `recover status` lists what there is")
        return self.verify(found)

    def locate(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint where its weights lie now."""
        if checkpoint.role == "base":
            return replace(checkpoint, path=self.base)
        if checkpoint.hash is None:
            return checkpoint
        folder = relocate(self.home, Path(checkpoint.path))
        if not folder.is_dir():
            raise RecoverError(f"the weights of {checkpoint.reference} are gone from {folder}; make it anew")
        return replace(checkpoint, path=str(folder))

    def verify(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint where its weights lie now, if they are still those that were recorded."""
        checkpoint = self.locate(checkpoint)
        folder = Path(checkpoint.path)
        if checkpoint.hash is None:
            return checkpoint
        found = self.base_weights if checkpoint.role == "base" else weights_hash(folder)
        if found != checkpoint.hash:
            raise RecoverError(
                f"the weights in {folder} are not those that were recorded as {checkpoint.reference} (another hash): "
                "the file was changed or damaged; restore it, or go on from another checkpoint"
            )
        return checkpoint


def _root(folder: Path | None) -> Path:
    here = Path.cwd()
    return folder or next((p for p in [here, *here.parents] if (p / HOME).is_dir()), here)


def _is_known_by_folder(home: Path) -> bool:
    """As early releases did it."""
    record = home / "recover.db"
    return record.is_file() and Reader(open_database(str(record))).project(str(home.parent.resolve())) is not None


def _base_now(base: str, root: Path) -> str:
    """The built-in model lies where this tool is installed now, and one that lies in the project in the project."""
    parts = Path(base).parts
    if os.path.isdir(base) or not os.path.isabs(base):
        return base
    if built_in := installed_base_path(base):
        return built_in
    inside = (root.joinpath(*parts[first:]) for first in range(1, len(parts)))
    return next((str(place) for place in inside if place.is_dir()), base)


def names_a_model(reference: str) -> bool:
    """A folder or a hub id, rather than a name that only means something within a project."""
    return NAMED.fullmatch(reference) is None


def weights_of(model: str) -> str:
    """What tells a model from others: the hash of its weights where they lie here, else its hub id."""
    return weights_hash(Path(model)) if Path(model).is_dir() else model


def weights_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            while piece := weights.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def _as_path(reference: str) -> str:
    """An existing folder by its full path, so that the record means the same from anywhere; else as it stands."""
    path = Path(reference).expanduser()
    return str(path.resolve()) if path.exists() else reference
