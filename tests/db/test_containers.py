import re
from pathlib import Path, PurePosixPath

import yaml

ROOT = Path(__file__).parents[2]
HOME = PurePosixPath("/home/recover")


def test_every_folder_below_home_belongs_to_the_user() -> None:
    """`install -d` sets the owner of the listed folders only; missing parents would belong to root."""
    (line,) = re.findall(r"install -d -o recover -g recover (.+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    folders: list[PurePosixPath] = []
    for folder in map(PurePosixPath, line.split()):
        parents = [parent for parent in folder.parents if parent.is_relative_to(HOME) and parent != HOME]
        assert set(parents) <= set(folders), folder
        folders.append(folder)
    assert HOME / ".cache/huggingface" in folders


def test_the_health_check_asks_the_address_that_other_containers_use() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    check = compose["services"]["record"]["healthcheck"]["test"][-1]
    assert check == "pg_isready --host 127.0.0.1 --username recover --dbname recover"
