"""What measurements would compute, counted once and kept in the project's cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evals.counting_engine import Workload, count_work
from evals.subject import Subject
from evals.suites.blocks import Blocks
from evals.suites.config import load_suites
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.log import log
from pipelines.project.project import Project
from pipelines.storage.content_cache import ContentCache
from recovery.errors import RecoverError, first_line
from recovery.models.chat_template import Chat


@dataclass
class Workloads:
    """The workloads of one project's evaluation plans."""

    project: Project
    chat: Chat
    unknown: set[str] = field(default_factory=set)  # suites that cannot be counted, such as tasks out of reach

    def of(
        self,
        plan: EvalPlan,
        suites: Sequence[str] | None = None,
        first_block: int = 0,
        named: dict[str, str] | None = None,
    ) -> Workload:
        """All suites of a plan, or some of them; of the instruction prompts only the first block, if one is given.

        `named`: the tasks of the suites, where they are not those that the base names."""
        named = named or load_suites(self.project.base)
        chosen = [*plan.suites(named), *plan.earlier_tasks] if suites is None else suites
        return joined([self._suite(plan, suite, named, first_block) for suite in chosen])

    def _suite(self, plan: EvalPlan, suite: str, named: dict[str, str], first_block: int) -> Workload:
        in_blocks = first_block and suite == "behaviour"
        blocks = Blocks(first_block, lambda items: True) if in_blocks else None

        def count() -> object:
            return count_work(self.chat, measure).as_json()

        def measure(subject: Subject) -> object:
            return plan.run_suite(subject, suite, named, blocks)

        cache, key = (
            ContentCache(self.project.home / "cache"),
            plan.key("", suite, named, first_block if in_blocks else None),
        )
        try:
            return Workload.from_json(cache.get_or_write("workload", key, count))
        except (RecoverError, OSError) as error:
            if suite not in self.unknown:
                log.info(f"The estimate is without the suite {suite}: {first_line(error)}")
            self.unknown.add(suite)
            return Workload()


def joined(workloads: list[Workload]) -> Workload:
    """One after the other."""
    largest = max(workloads, key=lambda w: max((r.rows * r.max_new_tokens for r in w.replies), default=0), default=None)
    return Workload(
        [call for workload in workloads for call in workload.replies],
        sum(workload.scored_tokens for workload in workloads),
        sum(workload.scored_texts for workload in workloads),
        largest.prompts if largest else [],
        sum(workload.seconds for workload in workloads),
    )
