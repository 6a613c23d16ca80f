"""What the stages of earlier jobs took, relative to what the calibration had predicted.

Kept beside the calibration, for the same model, machine and settings. A stage without a time of its own takes the
mean of its kind, so after the first measurement of the clean model all measurements are known better."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pipelines.stage_clock import family_of
from pipelines.storage.atomic_files import write_atomic


@dataclass(frozen=True)
class StageTimes:
    path: Path

    def factor(self, key: str) -> float:
        """By how much a stage differs from its prediction; 1 where nothing is known."""
        factors = self._read()
        family = [value for name, value in factors.items() if family_of(name) == family_of(key)]
        return factors.get(key) or (fmean(family) if family else 1.0)

    def store(self, key: str, took: float, predicted: float) -> None:
        if took > 0 and predicted > 0:
            factors = {**self._read(), key: round(took / predicted, 4)}
            write_atomic(self.path, [json.dumps(factors, sort_keys=True)])

    def _read(self) -> Mapping[str, float]:
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}
