"""What prompts and teachers must have for each other."""

import pytest

from pipelines.synthetic.chat_prompts import ChatPrompt, parse_prompt
from pipelines.teacher_choice import BASE, ByDomain
from pipelines.training.recipe_inputs import check_domains
from recovery.errors import RecoverError


def test_a_teacher_without_prompts_is_refused() -> None:
    prompts = [ChatPrompt.of("Hi"), parse_prompt(("line 2", {"prompt": "1 + 1", "domain": "maths"}))]
    with pytest.raises(RecoverError, match="No prompt is of the domain code"):
        check_domains(prompts, ByDomain("base", {"maths": "run:1", "code": "run:2"}))
    check_domains(prompts, ByDomain("base", {"maths": "run:1"}))
    check_domains(prompts, BASE)
