"""What the containers promise the record and whoever works in them."""

import re
from pathlib import Path, PurePosixPath

import yaml

ROOT = Path(__file__).parents[2]
HOME = PurePosixPath("/home/recover")


def test_every_folder_of_the_home_is_made_for_its_user() -> None:
    """`install -d` gives the owner to the folders it is told, and makes those above them root's."""
    (line,) = re.findall(r"install -d -o recover -g recover (.+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    made: list[PurePosixPath] = []
    for folder in map(PurePosixPath, line.split()):
        above = [parent for parent in folder.parents if parent.is_relative_to(HOME) and parent != HOME]
        assert set(above) <= set(made), folder
        made.append(folder)
    assert HOME / ".cache/huggingface" in made


def test_the_record_is_up_only_when_its_server_listens_to_others() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    asked = compose["services"]["record"]["healthcheck"]["test"][-1]
    assert asked == "pg_isready --host 127.0.0.1 --username recover --dbname recover"
