"""What a teacher says about rows that come again, kept on disk: computed once, read by every later run.

Replies that were written beforehand, and conversations, are the same rows in every run on the same data. Rollouts are
new at every step, so nothing of them is kept. What is kept is exact: of a model on this machine the hidden states, from
which its head computes the whole distribution, and of one on a server the tokens that it listed.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from recovery.samples import Batch, Sample
from recovery.server_teacher import ListedLogprobs, ServerTeacher
from recovery.teachers import AdapterOffTeacher, AdapterTeacher, Distribution, FrozenTeacher, TeacherLogprobs

Row = dict[str, Tensor]  # by name; one entry per target
Source = FrozenTeacher | AdapterOffTeacher | AdapterTeacher | ServerTeacher


class KeptOutputs:
    """A folder with a file for each row, never more than `limit` bytes in all.

    For a new row the files go that were not used for longest, but none that this process has used: where rows come
    round in turn, each would otherwise go just before it comes again. What then does not fit is not kept."""

    def __init__(self, folder: Path, limit: float):
        self.folder, self.limit = folder, limit
        self.rows = self.reused = self.left_out = 0
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.partial"):
            leftover.unlink()
        found = sorted((file.stat().st_mtime, file, file.stat().st_size) for file in folder.iterdir())
        self._unused = {file: size for _, file, size in found}  # the one not used for longest first
        self._bytes = sum(self._unused.values())
        self._make_room(0)

    def __str__(self) -> str:
        left_out = f"; {self.left_out:,} did not fit" if self.left_out else ""
        return f"{self.rows:,} rows, {self.reused:,} reused{left_out}"

    def get(self, key: str) -> Row | None:
        self.rows += 1
        file = self._file(key)
        if not file.exists():
            return None
        try:
            row = load_file(file)
        except (OSError, SafetensorError):  # torn, by a full disk or a power cut
            file.unlink()
            self._bytes -= self._unused.pop(file, 0)
            return None
        self.reused += 1
        self._unused.pop(file, None)
        os.utime(file)
        return row

    def put(self, key: str, row: Row) -> None:
        file, content = self._file(key), save(row)
        if file.exists():  # the row is in the batch twice
            return
        if self._make_room(len(content)) and _write(file, content):
            self._bytes += len(content)
        else:
            self.left_out += 1

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"

    def _make_room(self, size: int) -> bool:
        while self._bytes + size > self.limit and self._unused:
            file = next(iter(self._unused))
            self._bytes -= self._unused.pop(file)
            file.unlink(missing_ok=True)
        return self._bytes + size <= self.limit


class KeptTeacher:
    """A frozen teacher that computes only what is not kept. `weights` identifies its weights."""

    def __init__(self, teacher: Source, kept: KeptOutputs, weights: Sequence[str]):
        self.teacher, self.kept = teacher, kept
        self._inputs = [*weights, teacher.listed if isinstance(teacher, ServerTeacher) else "hidden"]
        self._read: list[Sample] = []  # since FLOPs were counted

    def flops(self, samples: list[Sample]) -> float:
        """Those of the rows that were computed."""
        read, self._read = self._read, []
        return self.teacher.flops(samples) - self.teacher.flops(read)

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        keys = [self._key(sample, batch.tokens.device.type) for sample in batch.samples]
        rows = {i: row for i, key in enumerate(keys) if key is not None and (row := self.kept.get(key)) is not None}
        self._read += [batch.samples[i] for i in rows]
        if missing := [i for i in range(len(keys)) if i not in rows]:
            output = self.teacher.distribution(batch.select(missing)[0] if rows else batch)
            rows |= self._keep(output, missing, batch.samples, keys)
            if len(missing) == len(keys):
                return output
        ordered = [rows[i] for i in range(len(keys))]
        return self._output({name: torch.cat([row[name] for row in ordered]) for name in ordered[0]}, batch)

    def _keep(
        self, output: TeacherLogprobs, indices: list[int], samples: list[Sample], keys: list[str | None]
    ) -> dict[int, Row]:
        counts = [samples[i].target_count for i in indices]
        columns = {name: values.cpu().split(counts) for name, values in _tensors(output).items()}
        rows = {i: {name: parts[n] for name, parts in columns.items()} for n, i in enumerate(indices)}
        for i, row in rows.items():
            if (key := keys[i]) is not None:
                self.kept.put(key, {name: values.clone() for name, values in row.items()})
        return rows

    def _output(self, tensors: Row, batch: Batch) -> TeacherLogprobs:
        device = batch.tokens.device
        if isinstance(self.teacher, ServerTeacher):
            return ListedLogprobs(tensors["tokens"].to(device).long(), tensors["values"].to(device))
        return Distribution.from_hidden(tensors["hidden"].to(device), self.teacher.head)

    def _key(self, sample: Sample, device: str) -> str | None:
        """A hash of all that decides the output; None for a rollout."""
        if sample.logprobs is not None:
            return None
        precision = str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else ""
        targets = [i for i, is_target in enumerate(sample.targets) if is_target]
        return hashlib.sha256(json.dumps([self._inputs, precision, sample.tokens, targets]).encode()).hexdigest()


def _write(file: Path, content: bytes) -> bool:
    """Whether it could be written: a full disk ends no training."""
    partial = file.with_suffix(".partial")
    try:
        partial.write_bytes(content)
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)
        return False
    return True


def _tensors(output: TeacherLogprobs) -> Row:
    if isinstance(output, ListedLogprobs):
        return {"tokens": output.tokens.int(), "values": output.values}
    assert isinstance(output, Distribution)
    return {"hidden": output.hidden}
