"""How often mid-training reads a corpus, and in steps of which size, where the settings leave it to the corpus.

A small corpus is read more often and in smaller steps: a plan of a few large steps teaches nothing. The figures were
measured on corpora of 20 kB and 200 kB (docs/real-models.md).
"""

import math

from pipelines.log import log
from pipelines.settings.schema import AUTO, Midtrain, split_rows

TARGET_STEPS = 135
FEW_STEPS = 50  # below, a warning is logged
MAX_STEP_TOKENS = 32_768
MIN_EPOCHS, MAX_EPOCHS = 3.0, 20.0


def scheduled(midtrain: Midtrain, tokens: int, *, has_texts: bool = True) -> Midtrain:
    """The settings with `epochs` and `rows` as numbers, for a corpus of so many tokens.

    `has_texts`: whether there are the texts that the mix asks for, which a base may be unable to write."""
    epochs = _epochs(tokens) if midtrain.epochs == AUTO else midtrain.epochs
    texts = midtrain.mix.texts if has_texts else 0.0
    rows = _rows(epochs * tokens, midtrain.window, texts) if midtrain.rows == AUTO else midtrain.rows
    return midtrain.model_copy(update={"epochs": epochs, "rows": rows})


def midtraining_steps(midtrain: Midtrain, tokens: int) -> int:
    """Steps on documents of so many tokens, without earlier cycles."""
    midtrain = scheduled(midtrain, tokens)
    _, texts = split_rows(midtrain.step_rows, (0.0, midtrain.mix.texts))
    return midtrain.steps(math.ceil(tokens / midtrain.window), midtrain.step_rows - texts)


def warn_of_few_steps(midtrain: Midtrain, steps: int, rows: str = "midtrain.rows") -> None:
    """`rows` is the setting that says how large a step is."""
    if steps < FEW_STEPS and steps != midtrain.max_steps:
        log.warning(
            f"Only {steps} optimiser step{'s' * (steps != 1)}: the documents will hardly be learned. Raise "
            f"midtrain.epochs or lower {rows}"
        )


def _epochs(tokens: int) -> float:
    """6 for 50,000 tokens, 15 for 5,000 and 3 from 300,000 on."""
    passes: float = 6 * (50_000 / max(tokens, 1)) ** 0.4
    return round(min(max(passes, MIN_EPOCHS), MAX_EPOCHS), 1)


def _rows(tokens_to_read: float, window: int, texts: float) -> int:
    """Texts of the mix are read beside the documents: they do not make the steps more."""
    of_documents = max(1, int(tokens_to_read / TARGET_STEPS / window))
    of_texts = max(1, round(of_documents * texts / (1 - texts))) if texts else 0
    return max(1, min(of_documents + of_texts, MAX_STEP_TOKENS // window))
