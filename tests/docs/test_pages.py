import json
import tomllib
from pathlib import Path

import pytest

from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from tests.docs.sandbox import ROOT, Block, blocks, command_server, fill_folder, has_unfenced_code, run

PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_for_a_laptop_runs_in_the_order_of_the_page(page: Path, tmp_path: Path) -> None:
    run_all([block for block in blocks(page) if not block.needs], tmp_path)


@pytest.mark.parametrize(
    "page",
    [  # those of the tutorial are commands of the README with other flags
        pytest.param(page, marks=pytest.mark.release if page.stem == "tutorial" else pytest.mark.slow, id=page.stem)
        for page in PAGES
        if any(block.needs for block in blocks(page))
    ],
)
def test_every_block_for_a_gpu_or_the_hub_runs_on_the_built_in_base(page: Path, tmp_path: Path) -> None:
    """Each in a project of its own, so that it needs no other block."""
    run_all([block for block in blocks(page) if block.needs], tmp_path)


def run_all(parts: list[Block], scratch: Path) -> None:
    folder, socket = scratch / "folder", scratch / "commands"
    folder.mkdir()
    fill_folder(folder)
    with command_server(socket):
        for block in parts:
            if block.language in ("sh", "python"):
                run(block, folder, socket)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_names_its_language_and_is_valid(page: Path) -> None:
    assert not has_unfenced_code(page), "fence every block and name its language, so that it can be run"
    for block in blocks(page):
        check = {"toml": settings_exist, "json": lines_parse, "sh": fits, "python": fits, "text": fits}[block.language]
        check(block)


def settings_exist(block: Block) -> None:
    apply_overrides(Settings(), tomllib.loads(block.code))


def lines_parse(block: Block) -> None:
    for line in block.code.splitlines():
        json.loads(line)


def fits(block: Block) -> None:
    widest = max(map(len, block.code.splitlines()))
    assert widest <= 120, f"line {block.line}: {widest} columns do not fit a page"
