from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.teacher_choice import (
    BASE,
    NAMED,
    ByDomain,
    Itself,
    Model,
    Router,
    Served,
    TeacherChoice,
    named_checkpoints,
    parse_teacher,
    with_ids,
)
from recovery.errors import RecoverError

NAMES = st.text("abcxyz-:/.0", min_size=1)


@pytest.mark.parametrize(
    ("text", "teacher"),
    [
        (None, BASE),
        ("base", BASE),
        ("run:3", Model("run:3")),
        ("org/name", Model("org/name")),
        ("router", Router()),
        ("ema", Itself("ema")),
        ("live", Itself("live")),
        ("http://one:8000,https://two", Served("http://one:8000,https://two")),
        ("http://host:8000/?a=b", Served("http://host:8000/?a=b")),
        ("maths=run:7", ByDomain("base", {"maths": "run:7"})),
        ("maths=cycle:1, code=./coder,*=run:3", ByDomain("run:3", {"maths": "cycle:1", "code": "./coder"})),
    ],
)
def test_a_text_says_who_teaches(text: str | None, teacher: TeacherChoice[str]) -> None:
    assert parse_teacher(text) == teacher


def test_a_folder_with_an_equals_sign_is_one_model(tmp_path: Path) -> None:
    (folder := tmp_path / "lr=1e-4").mkdir()
    assert parse_teacher(str(folder)) == Model(str(folder))
    assert parse_teacher(f"maths={folder}") == ByDomain("base", {"maths": str(folder)})


@given(st.dictionaries(NAMES, NAMES.filter(lambda name: name not in NAMED), min_size=1), NAMES)
def test_domains_are_read_as_they_were_written(by_domain: dict[str, str], main: str) -> None:
    text = ",".join(f"{domain}={one}" for domain, one in {**by_domain, "*": main}.items())
    assert parse_teacher(text) == ByDomain(main, by_domain)


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
        parse_teacher(value)
    assert message in str(refused.value)


def test_a_job_has_the_ids_of_what_was_named() -> None:
    ids = {"run:3": 5, "run:7": 9}
    assert with_ids(parse_teacher("run:3"), ids.__getitem__) == Model(5)
    domains = with_ids(parse_teacher("maths=run:7,*=run:3"), ids.__getitem__)
    assert domains == ByDomain(5, {"maths": 9})
    assert named_checkpoints(domains) == [5, 9]
    for text in ("base", "router", "ema", "http://one:8000"):
        assert with_ids(parse_teacher(text), ids.__getitem__) == parse_teacher(text)
        assert named_checkpoints(parse_teacher(text)) == []
