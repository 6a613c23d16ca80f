"""What several processes cannot train is refused with a sentence that says what to change."""

import pytest

from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from pipelines.teacher_choice import parse_teacher
from pipelines.training import recipe_inputs
from pipelines.training.recipe_inputs import check_processes
from recovery.errors import RecoverError


@pytest.mark.parametrize(
    ("settings", "teacher", "sentence"),
    [
        ({"engine": "vllm"}, None, "engine vllm generates for a single process. Leave out --processes, or choose"),
        ({"engine": "http://one:8000"}, None, "engine on servers generates for a single process"),
        ({}, "http://one:8000", "teacher on servers scores for a single process"),
        ({}, "ema", "teacher ema is an average that a single process keeps. Leave out"),
        (
            {"distill": {"rows": 3}},
            "base",
            r"A step has 3 rows \(distill.rows\), too few for 4 processes. Start at most 3",
        ),
        ({"midtrain": {"rows": 2}}, None, r"A step has 2 rows \(midtrain.rows\)"),
    ],
)
def test_what_several_processes_cannot_train_is_refused(
    settings: dict[str, object], teacher: str, sentence: str
) -> None:
    changed = apply_overrides(Settings(), settings)
    check_processes(1, changed, parse_teacher(teacher))  # one can
    with pytest.raises(RecoverError, match=sentence):
        check_processes(4, changed, parse_teacher(teacher))


def test_the_usual_settings_fit_eight_processes() -> None:
    check_processes(8, Settings())


def test_a_number_beside_torchruns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_inputs, "started_processes", lambda: 2)
    check_processes(2, Settings())
    check_processes(1, Settings())
    with pytest.raises(RecoverError, match=r"torchrun has started 2 processes. Leave out --processes."):
        check_processes(3, Settings())
