from pipelines.project.export import without_files


def test_what_a_model_is_measured_by_goes_with_it_but_no_path_of_this_machine() -> None:
    suites = {
        "behaviour": "lab,/home/ada/base/house.jsonl",
        "retention": "/home/ada/old.yaml",
        "knowledge": "gsm8k",
    }
    assert without_files(suites) == ({"behaviour": "lab", "knowledge": "gsm8k"}, ["house.jsonl", "old.yaml"])
