"""The KL on rows against the exact one."""

from pathlib import Path

import pytest
import torch

from pipelines.watch import readings as watched
from pipelines.watch.readings import Rows
from recovery.models.students import Student, load_student
from recovery.samples import Sample
from tests.models import save_tiny

SAMPLES = [Sample([5 + i, 3, *range(40, 44 + 3 * i)], [False] * 2 + [True] * (4 + 3 * i)) for i in (3, 0, 2, 1)]


@pytest.fixture
def models(tmp_path: Path) -> tuple[Student, Student]:
    """A model, and the same one after a change."""
    path = str(save_tiny(tmp_path))
    clean, now = load_student(path), load_student(path)
    with torch.no_grad():
        now.model.model.layers[0].mlp.up_proj.weight.mul_(1.3)
    return clean, now


def logprobs(model: Student, sample: Sample) -> torch.Tensor:
    with torch.no_grad():
        logits = model.model(input_ids=torch.tensor([sample.tokens])).logits[0, :-1]
    return logits.double().log_softmax(-1)[sample.targets[1:]]


def test_the_kl_is_exact_where_all_tokens_are_kept_and_never_more_with_fewer(
    models: tuple[Student, Student], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, now = models
    monkeypatch.setattr(watched, "CHUNK", 5)
    exact = 0.0
    for sample in SAMPLES:
        p, q = (logprobs(model, sample) for model in (clean, now))
        exact += float((p.exp() * (p - q)).sum()) / 34
    found = []
    for top in (4, 32, 400):
        monkeypatch.setattr(watched, "TOP", top)
        found.append(Rows.of_clean(clean, SAMPLES).kl(now))
    assert 0 < found[0] <= found[1] + 1e-6 <= found[2] + 2e-6
    assert found[2] == pytest.approx(exact, rel=1e-3)
