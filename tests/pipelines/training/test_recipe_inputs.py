import pytest

from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Distill, Settings
from pipelines.synthetic.prompts import ChatPrompt, parse_prompt
from pipelines.teacher_choice import BASE, ByDomain, parse_teacher
from pipelines.training import recipe_inputs
from pipelines.training.recipe_inputs import (
    as_distillation,
    check_domains,
    check_processes,
    check_recipes,
    chosen_recipe,
)
from recovery.errors import RecoverError
from recovery.recipes import recipe


def test_a_teacher_without_prompts_is_refused() -> None:
    prompts = [ChatPrompt.of("Hi"), parse_prompt(("line 2", {"prompt": "1 + 1", "domain": "maths"}))]
    with pytest.raises(RecoverError, match="No prompt is of the domain code"):
        check_domains(prompts, ByDomain("base", {"maths": "run:1", "code": "run:2"}))
    check_domains(prompts, ByDomain("base", {"maths": "run:1"}))
    check_domains(prompts, BASE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Distill(rows=12, group=8), "The 12 rollouts of a step of distill.rows = 12 must be a multiple of the group"),
        (Distill(rows=8, on_policy_fraction=0.75, group=4), "The 6 rollouts of a step of distill.rows = 8 must be a"),
        (Distill(rows=4, on_policy_fraction=0.1), "the share distill.on_policy_fraction = 0.1 is 0. Set more rows"),
        (Distill(rows=4, on_policy_fraction=0.9), "the share distill.on_policy_fraction = 0.9 is 4. Set more rows"),
    ],
)
def test_rows_that_do_not_divide_are_refused(settings: Distill, message: str) -> None:
    with pytest.raises(RecoverError, match=message):
        check_recipes(Settings(distill=settings))


def test_midtraining_in_context_has_dials_of_its_own() -> None:
    settings = apply_overrides(Settings(), {"midtrain": {"recipe": "in-context"}, "distill": {"beta": 0.3, "group": 4}})
    assert chosen_recipe(settings.distill).beta == 0.3
    assert chosen_recipe(as_distillation(settings).distill) == recipe("in-context")


@pytest.mark.parametrize(
    ("settings", "teacher", "sentence"),
    [
        ({"engine": "vllm"}, None, "engine vllm generates for a single process. Leave out --processes, or choose"),
        ({"engine": "http://one:8000"}, None, "engine on servers generates for a single process"),
        ({}, "http://one:8000", "teacher on servers scores for a single process"),
        ({}, "ema", "teacher ema is an average that a single process keeps. Leave out"),
        ({"distill": {"rows": 3}}, "base", r"3 rows \(distill.rows\), too few for 4 processes. Start at most 3"),
        ({"midtrain": {"rows": 2}}, None, r"A step has 2 rows \(midtrain.rows\)"),
    ],
)
def test_what_processes_cannot_train_is_refused(settings: dict[str, object], teacher: str, sentence: str) -> None:
    changed = apply_overrides(Settings(), settings)
    check_processes(1, changed, parse_teacher(teacher))
    check_processes(8, Settings())
    with pytest.raises(RecoverError, match=sentence):
        check_processes(4, changed, parse_teacher(teacher))


def test_only_the_stages_that_a_command_runs_need_a_row_for_each_process() -> None:
    few = apply_overrides(Settings(), {"distill": {"rows": 3}, "midtrain": {"rows": 16}})
    check_processes(4, few, command="midtrain")
    few = apply_overrides(Settings(), {"distill": {"rows": 16}, "midtrain": {"rows": 3}})
    for command in ("distill", "repair"):
        check_processes(4, few, command=command)


def test_a_number_beside_torchruns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_inputs, "started_processes", lambda: 2)
    check_processes(2, Settings())
    check_processes(1, Settings())
    with pytest.raises(RecoverError, match=r"torchrun has started 2 processes. Leave out --processes."):
        check_processes(3, Settings())
