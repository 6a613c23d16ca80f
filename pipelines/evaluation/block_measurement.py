"""The main task of instruction following, asked block by block: what is stored of it, and what is still to be asked."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from db.tables import Checkpoint
from evals.results import Item, Result, main_result
from evals.splits import Blocks
from evals.stats.sequential import look_sizes
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.results_store import stored_results
from pipelines.project.project import Project
from pipelines.storage.atomic_files import JsonLines
from pipelines.storage.content_cache import ContentCache

SUITE = "behaviour"


@dataclass(frozen=True)
class StopRule:
    """When enough prompts have been asked."""

    block: int
    total: int  # prompts that there are
    enough: Callable[[list[Item]], bool]  # by the items of complete blocks
    # By the other suites: then one block is enough.
    fails_anyway: Callable[[list[Result]], bool] = lambda others: False


@dataclass(frozen=True)
class BlockMeasurement:
    """The instruction prompts that one checkpoint is asked by a stop rule."""

    project: Project
    checkpoint: Checkpoint
    plan: EvalPlan
    named: Mapping[str, str]
    rule: StopRule

    def key(self, prompts: int) -> str:
        weights = self.project.measured_id(self.checkpoint)
        return self.plan.key(weights, SUITE, self.named, prompts if prompts < self.rule.total else None)

    def key_of(self, results: list[Result]) -> str:
        return self.key(len(_items(results)))

    def stored(self, fails_anyway: bool) -> tuple[list[Result], bool]:
        """The suite's stored results with the most prompts, and whether these are enough."""
        keys = {self.key(n): n for n in look_sizes(self.rule.total, self.rule.block)}
        stored = stored_results(self.project, self.checkpoint, set(keys))
        results = max(stored.values(), key=lambda results: len(_items(results)), default=[])
        items = _items(results)
        return results, len(items) == self.rule.total or (bool(items) and (fails_anyway or self.rule.enough(items)))

    def to_ask(self, stored: list[Result], fails_anyway: bool) -> Blocks:
        """What remains to be asked; every block is saved as soon as it is answered."""
        saved = [Item(**row) for row in self._progress] if self._progress.repair() else []
        complete = [n for n in (0, *look_sizes(self.rule.total, self.rule.block)) if n <= len(saved)]
        earlier = max(saved[: complete[-1]], _items(stored), key=len)
        self._progress.write(map(asdict, earlier))
        save = lambda items: self._progress.append(map(asdict, items))  # noqa: E731
        return Blocks(self.rule.block, (lambda items: True) if fails_anyway else self.rule.enough, earlier, save)

    def delete_progress(self) -> None:
        self._progress.path.unlink(missing_ok=True)

    @property
    def _progress(self) -> JsonLines:
        cache = ContentCache(self.project.home / "cache")
        return JsonLines(cache.path("blocks", self.key(self.rule.total), ".jsonl"))


def _items(results: list[Result]) -> list[Item]:
    main = main_result(results, SUITE)
    return main.items if main else []
