"""`recover demo` as a newcomer runs it, and the overview page it leads to, in a real browser."""

from pathlib import Path

import pytest

from tests.e2e.command_line import Completed, recover

pytestmark = [pytest.mark.slow, pytest.mark.demo]


def test_the_quick_demo_shows_what_documents_alone_cost(tmp_path: Path) -> None:
    completed = recover(tmp_path, "demo", "--quick").ended(0)
    clean, alone = completed.data["models"].values()
    assert alone["behaviour"] <= clean["behaviour"] - 0.15
    assert alone["retention"] <= clean["retention"] - 0.1
    assert alone["knowledge"] >= clean["knowledge"] + 0.4
    assert not completed.data["promoted"]
    assert len(completed.data["seconds"]) == 1
    assert completed.data["memory"] > 1e8
    assert not completed.data["verdict"]["passed"]
    status = recover(tmp_path / "recover-demo", "status").data
    assert [cycle["status"] for cycle in status["cycles"]] == ["rejected"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Completed]:
    folder = tmp_path_factory.mktemp("demo")
    return folder / "recover-demo", recover(folder, "demo")


@pytest.mark.release
def test_documents_alone_are_rejected_and_the_default_mix_is_promoted(demo: tuple[Path, Completed]) -> None:
    folder, completed = demo
    assert completed.exit_code == 0, completed.stderr
    clean, alone, _, recovered = completed.data["models"].values()
    assert alone["behaviour"] <= clean["behaviour"] - 0.15
    assert alone["retention"] <= clean["retention"] - 0.1
    [reason] = [line for line in completed.stderr.splitlines() if line.startswith("Rejected: ")]
    assert "what it knew before" in reason
    assert "  own_world: " in completed.stderr
    assert completed.data["promoted"], completed.data["verdict"]["reason"]
    verdict = completed.data["verdict"]
    assert all(verdict[measure]["passed"] for measure in ("behaviour", "knowledge", "retention"))
    assert recovered["knowledge"] >= clean["knowledge"] + 0.4
    status = recover(folder, "status").data
    assert [cycle["status"] for cycle in status["cycles"]] == ["rejected", "promoted"]
    assert status["current"] == "cycle:2/recovered"
    assert status["cycles"][-1]["recovered"] == recovered


@pytest.mark.release
def test_the_examples_are_prompts_that_documents_alone_broke(demo: tuple[Path, Completed]) -> None:
    examples = demo[1].data["examples"]
    assert len(examples) == 3
    for example in examples:
        followed = {name: answer["followed"] for name, answer in example["answers"].items()}
        assert list(followed) == ["clean", "documents alone", "recovered"]
        assert followed["clean"]
        assert not followed["documents alone"]
