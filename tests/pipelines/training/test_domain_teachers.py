"""`--teacher DOMAIN=REF,…`: what it names, and what is refused."""

from pathlib import Path

import pytest

from pipelines.synthetic.chat_prompts import ChatPrompt, parse_prompt
from pipelines.training.domain_teachers import DomainTeachers, names_model
from recovery.errors import RecoverError


@pytest.mark.parametrize(
    ("value", "main", "by_domain"),
    [
        ("maths=cycle:1/recovered, code=./coder,*=run:3", "run:3", {"maths": "cycle:1/recovered", "code": "./coder"}),
        ("maths=run:7", "base", {"maths": "run:7"}),
    ],
)
def test_each_domain_has_its_teacher_and_the_others_have_the_base(
    value: str, main: str, by_domain: dict[str, str]
) -> None:
    assert DomainTeachers.parse(value) == DomainTeachers(main, by_domain)
    assert not names_model(value)


def test_a_single_teacher_names_no_domain(tmp_path: Path) -> None:
    folder = tmp_path / "lr=1e-4"
    folder.mkdir()
    for value in (None, "base", "run:3", "router", "http://host:8000/?a=b", str(folder)):
        assert DomainTeachers.parse(value) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("maths=", "is not DOMAIN=REF"),
        ("maths=run:1,run:2", "'run:2' is not DOMAIN=REF"),
        ("maths=run:1,maths=run:2", "The domain maths has two teachers"),
        ("maths=router", "The teacher router cannot teach one domain alone"),
        ("maths=http://host:8000", "cannot teach one domain alone"),
        ("*=run:1", "names no domain. Write --teacher run:1."),
    ],
)
def test_what_names_no_teachers_is_refused(value: str, message: str) -> None:
    with pytest.raises(RecoverError) as refused:
        DomainTeachers.parse(value)
    assert message in str(refused.value)


def test_a_teacher_without_prompts_is_refused() -> None:
    named = DomainTeachers("base", {"maths": "run:1", "code": "run:2"})
    prompts = [ChatPrompt.of("Hi"), parse_prompt(("line 2", {"prompt": "1 + 1", "domain": "maths"}))]
    with pytest.raises(RecoverError, match="No prompt is of the domain code"):
        named.check(prompts)
    DomainTeachers("base", {"maths": "run:1"}).check(prompts)
