import pytest

from db.tables import Project


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("/home/ada/handbook/.recover/gguf/SmolLM2.Q4_1-b179c9523d0e", "SmolLM2.Q4_1.gguf"),
        ("/models/of-the-team/llama", "of-the-team/llama"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_a_base_is_named_by_its_file_its_folder_or_its_hub_id(base: str, name: str) -> None:
    assert Project(base=base).base_name == name
