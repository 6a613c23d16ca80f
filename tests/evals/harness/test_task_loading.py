import pytest

from evals import harness
from recovery.errors import RecoverError

LOCAL_FILES = "Connect to the hub once, or give local files, in RECOVER_BENCHMARK_DATA or in the task's YAML."


@pytest.mark.parametrize(
    ("error", "sentences"),
    [
        ("OfflineModeIsEnabled", f"(it is not in the cache, and the hub cannot be reached). {LOCAL_FILES}"),
        ("RevisionNotFoundError", f"(the hub has no such revision of it). {LOCAL_FILES}"),
        ("KeyError", f"(the text). {LOCAL_FILES}"),
        ("GatedRepoError", "Accept them on its page of the hub, and log in with `hf auth login`."),
    ],
)
def test_the_advice_for_data_that_cannot_be_loaded_fits_a_task(
    error: str, sentences: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = type(error, (Exception,), {})("the text")
    monkeypatch.setattr(harness, "is_hub_offline", lambda: True)
    monkeypatch.setattr(harness, "_try_load", lambda manager, task: raised)
    with pytest.raises(RecoverError) as refused:
        harness.load_tasks({"task": "mine"})
    assert str(refused.value).startswith("The data of the lm-eval task 'mine' cannot be loaded (")
    assert str(refused.value).endswith(sentences)
