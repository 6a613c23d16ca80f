"""How long a study takes on this machine, from the estimates of its arms' jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.log import log
from pipelines.prepare_job import describe_job
from pipelines.request import Request
from pipelines.studies.declaration import CLEAN, ROUTER, Arm
from pipelines.studies.seed_project import SeedProject
from pipelines.studies.study_run import StudyRun

MEASURING = "measuring the clean model"  # every arm is measured as the clean model is
ONCE = ("measuring", "writing")  # stages whose results all arms of a seed share, if they have the same name


class _AllFromTheBase(SeedProject):
    """Before anything has run, the arms that others begin with do not exist; the base costs as much."""

    def _reference(self, role: str) -> str:
        return ROUTER if role == ROUTER else "base"


@dataclass(frozen=True)
class StudyEstimate:
    seconds: float
    jobs: int


def estimate_study(run: StudyRun) -> StudyEstimate | None:
    """What is missing of the study; None where the model cannot be tried."""
    study = run.study
    left = {seed: [n for n in run.seed(seed).arms if run.seed(seed).entry(n) is None] for seed in study.size.seeds}
    names = {name for names in left.values() for name in names}
    if not names:
        return StudyEstimate(0.0, 0)
    with TemporaryDirectory() as folder, _quiet():
        one = _AllFromTheBase(study, study.size.seeds[0], Path(folder), run.base)
        costs = _costs(one, names)
    if costs is None:
        return None
    values = len(study.declared.tune.values) * len(study.declared.tune.arms) if study.declared.tune else 0
    tuning = values * max(costs.values()) if not (run.folder / "tuned.json").is_file() else 0.0
    return StudyEstimate(
        sum(costs[name] for names in left.values() for name in names) + tuning, sum(map(len, left.values())) + values
    )


def _costs(one: SeedProject, names: set[str]) -> dict[str, float] | None:
    """Seconds by arm, where the first arm of a seed pays for what all share."""
    shared: set[str] = set()
    costs: dict[str, float] = {}
    measuring = 0.0
    for name, arm in reversed(one.arms.items()):  # the clean model last: it has no job
        if name not in names:
            continue
        stages = _stages(one, one.request(name, arm)) if name != CLEAN else {}
        if stages is None:
            return None
        measuring = stages.get(MEASURING, measuring)
        own = sum(seconds for stage, seconds in stages.items() if stage not in shared and stage != MEASURING)
        shared |= {stage for stage in stages if stage.startswith(ONCE)}
        costs[name] = own * (arm.cycles if isinstance(arm, Arm) else 1)
    return {name: seconds + measuring for name, seconds in costs.items()}


def _stages(one: SeedProject, request: Request) -> dict[str, float] | None:
    estimate = describe_job(one.project, request)["estimate"]
    if estimate is None:
        return None
    stages = {stage["stage"]: float(stage["seconds"]) for stage in estimate["stages"]}
    return {stage: seconds for stage, seconds in stages.items() if stage != "measuring the recovered model"}


@contextmanager
def _quiet() -> Iterator[None]:
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False
