from pipelines.demo import DOCUMENTS_ALONE, in_words


def test_changes_against_the_clean_model_are_said_in_points() -> None:
    models = {
        "clean": {"behaviour": 0.923, "knowledge": 0.02, "earlier": None, "retention": 1.0},
        DOCUMENTS_ALONE: {"behaviour": 0.557, "knowledge": 0.93, "earlier": None, "retention": None},
        "recovered": {"behaviour": 0.92, "knowledge": 0.98, "earlier": None, "retention": 0.987},
    }
    alone, cycle = in_words(models)
    assert alone == "Reading the documents alone: -36.6 points of instruction following, +91.0 points of new knowledge."
    assert cycle == (
        "The cycle: -0.3 points of instruction following, +96.0 points of new knowledge, -1.3 points of what it knew "
        "before."
    )
    assert in_words({name: models[name] for name in ("clean", DOCUMENTS_ALONE)}) == [alone]
