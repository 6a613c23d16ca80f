from pathlib import Path

import pytest

from recovery.errors import RecoverError
from recovery.lab import BASE
from studies.declaration import (
    Study,
    length_groups,
    load_study,
    parse_declaration,
)
from studies.entries import SHIPPED_RESULTS
from tests.studies.declarations import DECLARATION, OF_DAMAGED, study


def test_an_arm_has_the_settings_of_all_arms_of_the_size_and_its_own() -> None:
    one = study()
    assert one.settings_of(one.declared.arms["opd"]) == {
        "gate.block": 0,
        "distill.probe_every": 0,
        "distill.if_needed": False,
        "distill.steps": 10,
        "midtrain.mix.texts": 0.0,
        "midtrain.epochs": 4,
        "distill.rows": 16,
        "recipe": "opd",
        "warm_start": "off",
    }
    assert one.settings_of(one.declared.arms["off-policy"])["distill.steps"] == 17, "1.67 times the steps of all arms"


def test_the_hash_changes_with_what_runs_and_with_what_decides_alone() -> None:
    unchanged = study().hash
    assert study("items = 1000", "items = 2000").hash == unchanged, "another size"
    changed = [
        study("margin = 0.03\nsource = 0.114", "margin = 0.02\nsource = 0.114"),
        study("distill.rows = 16", "distill.rows = 32"),
        study("seeds = [1, 2, 3]\n", "seeds = [1, 2, 4]\n"),
        Study("small", "quick", study().declared, None, "another-base"),
    ]
    assert len({unchanged, *(one.hash for one in changed)}) == 5


def test_a_base_on_this_machine_counts_by_its_name_and_content(tmp_path: Path) -> None:
    """Files of one study are merged from several machines, whose folders differ."""
    bases = [tmp_path / folder / "model.gguf" for folder in ("a", "b", "c")]
    for base, content in zip(bases, ("weights", "weights", "others"), strict=True):
        base.parent.mkdir()
        base.write_text(content)
    here, there, other = (Study("small", "quick", study().declared, None, str(base)) for base in bases)
    assert here.hash == there.hash != other.hash
    assert here.base_name.startswith("model.gguf (")
    assert Study("small", "quick", study().declared, None, here.base_name).hash == here.hash, "as results name it"


def test_the_hash_changes_with_the_documents_that_a_declaration_names(tmp_path: Path) -> None:
    """Else arms on other documents would be taken for those of this study."""
    declared = study("[sizes.quick]", '[data]\ndocs = "docs"\n\n[sizes.quick]').declared
    hashes = set()
    for name, text in (("a", "One."), ("b", "Two."), ("c", "Two.")):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "1.txt").write_text(text)
        hashes.add((text, Study("mine", "quick", declared, tmp_path / name).hash))
    assert len({hash for _, hash in hashes}) == len(hashes) == 2


def test_the_hash_does_not_depend_on_the_folder_of_the_command_or_on_hidden_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped_hash = load_study("degraded-teacher", "quick").hash
    monkeypatch.chdir(tmp_path)
    for name in ("questions", "instructions"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("One.")
    assert load_study("degraded-teacher", "quick").hash == shipped_hash
    declared = study("[sizes.quick]", '[data]\ndocs = "."\n\n[sizes.quick]').declared
    before = Study("mine", "quick", declared, tmp_path).hash
    (tmp_path / ".recover").mkdir()
    (tmp_path / ".recover" / "recover.db").write_text("x")
    assert Study("mine", "quick", declared, tmp_path).hash == before


CLAIMS = DECLARATION[DECLARATION.index("[[claims]]") : DECLARATION.index("[sizes.quick]")]
WRONG = [  # a part of the declaration, what replaces it, and a part of the sentence
    ('title = "Distillation restores instruction following"\n', "", "title is missing. Add it."),
    ("[start]", "[start", "is not valid TOML"),
    ("distill.rows = 16", "distill.rowz = 16", "There is no setting distill.rowz."),
    ("distill.rows = 16", "distill.rows = 0", "The setting distill.rows must be a whole number of at least 1, not 0."),
    ("distill.rows = 16", "rows = 16", "arms.opd.rows does not exist. Remove it, or correct its name."),
    ('mix = "documents"', 'mix = "papers"', "The mix 'papers' has the unknown entry 'papers'."),
    ('warm_start = "off"\ndistill', "warm_start = 2.0\ndistill", "The setting distill.warm_start must be off, auto"),
    ("[arms.opd]", "[arms.clean]", "An arm cannot be called 'clean'. Use letters, digits and hyphens."),
    (OF_DAMAGED, OF_DAMAGED.replace("opd", "grpo"), "names the arm 'grpo', which does not exist."),
    ('metric = "behaviour"', 'metric = "taste"', "names the metric 'taste', which does not exist."),
    ('metric = "behaviour"', 'metric = "earlier"', "is about several cycles. Name arms that have them."),
    ('metric = "behaviour"', 'metric = "slope"', "is about several cycles. Name arms that have them."),
    ('metric = "behaviour"', 'metric = "knowledge"\nitems = "1-64"', "which only behaviour has. Name no items."),
    ("[common]", "answer_tokens = [150, 64]\n[common]", "do not ascend. Sort them."),
    ("[common]", f"answer_tokens = {[*range(1, 101)]}\n[common]", "has 100 items for 101 groups of prompts."),
    ("seeds = [1, 2, 3]\n", "seeds = [1, 2, 2]\n", "The seeds [1, 2, 2] repeat one"),
    (OF_DAMAGED, OF_DAMAGED.replace("damaged", "own-cycle"), "names the arm 'own-cycle', which does not exist."),
    ("source = 0.114", "margin2 = 1.0", "claims.0.margin2 does not exist."),
    ("source = 0.114", 'items = "1-64"', "names the group of prompts '1-64', which does not exist."),
    ("seeds = [1, 2, 3]\n", "seeds = []\n", "sizes.quick.seeds is not right"),
    (
        'recipe = "opd"',
        'recipe = "opd"\nstudent = "answers"',
        "The arm opd names the arm 'answers', which does not exist.",
    ),
    (
        'mix = "answers=0.3"',
        'mix = "answers=0.3"\nprompts = "instructions"',
        "The arm answers only mid-trains, so it takes no prompts and no teacher_context.",
    ),
    ('recipe = "opd"', 'recipe = "opd"\ncycles = 3', "The arm opd has several cycles."),
    (
        "[sizes.quick]",
        '[data]\ndocs = "docs"\n[arms.taught]\nprompts = "questions"\n[sizes.quick]',
        "The arm taught asks questions about one of the lab's worlds.",
    ),
    (
        "[sizes.quick]",
        '[tune]\narms = ["opd"]\nrate_times = [1, 2]\nseed = 2\n[sizes.quick]',
        "The seed 2 of the table tune is also a seed of a verdict. Use another.",
    ),
    (
        CLAIMS,
        CLAIMS.replace('"behaviour"', '"pflops"') + '[tune]\narms = ["opd"]\nrate_times = [1, 2]\nseed = 9\n',
        "and none is about one. Remove it.",
    ),
    (
        CLAIMS,
        '[data]\ndocs = "docs"\n' + CLAIMS.replace('"behaviour"', '"knowledge"').replace('"damaged"', '"clean"'),
        "needs questions in the table data, since clean has read no documents.",
    ),
    ("items = 100\n", 'items = 100\narms = ["opd", "gone"]\n', "The size quick names the arm 'gone', which does not"),
    (
        "items = 100\n",
        'items = 100\narms = ["off-policy"]\n',
        "No claim is about the arms of the size quick. Name arms that claims compare.",
    ),
    (
        "[sizes.quick]\n",
        '[arms.next]\nstudent = "answers"\n[sizes.quick]\narms = ["opd", "next"]\n',
        "The arm next of the size quick needs the arm answers. Add that to its arms.",
    ),
    (
        '"off-policy"\nmargin = 0.03\ncontrol = "labels"\n\n[sizes.quick]\n',
        '"off-policy"\nmargin = 0.03\n[[claims]]\ntext = "It costs more"\nmetric = "pflops"\nof = "answers"\n'
        'against = "damaged"\nmargin = 0.03\n[tune]\narms = ["opd", "answers"]\nrate_times = [1, 2]\nseed = 9\n'
        '[sizes.quick]\narms = ["answers"]\n',
        "and none is about one. Remove it.",
    ),
]


@pytest.mark.parametrize(("old", "new", "sentence"), WRONG)
def test_a_declaration_that_is_wrong_gets_one_sentence(old: str, new: str, sentence: str) -> None:
    assert old in DECLARATION
    with pytest.raises(RecoverError) as refusal:
        parse_declaration(DECLARATION.replace(old, new, 1).encode(), "mine.toml")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_study_is_named_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(RecoverError, match=r"There is no study 'nothing'\. Choose one of .*personalisation"):
        load_study("nothing", "quick")
    with pytest.raises(RecoverError, match=r"There is no file .*mine\.toml"):
        load_study(str(tmp_path / "mine.toml"), "quick")
    (tmp_path / "mine.toml").write_text(DECLARATION)
    assert load_study(str(tmp_path / "mine.toml"), "full").folder == tmp_path
    with pytest.raises(RecoverError, match=r"has no size real\. Choose one of quick, full\."):
        load_study(str(tmp_path / "mine.toml"), "real")


def test_a_size_has_fewer_arms_and_the_claims_about_these(tmp_path: Path) -> None:
    tuned = '[tune]\narms = ["opd", "off-policy"]\nrate_times = [1, 2]\nseed = 9\n'
    fewer = DECLARATION.replace("items = 1000\n", 'items = 1000\narms = ["opd"]\n')
    (tmp_path / "mine.toml").write_text(fewer + tuned)
    full = load_study(str(tmp_path / "mine.toml"), "full")
    assert list(full.arms) == ["clean", "damaged", "opd"]
    assert [claim.text for claim in full.declared.claims] == ["It restores"]
    assert full.declared.tune is not None
    assert full.declared.tune.arms == ["opd"]
    quick = load_study(str(tmp_path / "mine.toml"), "quick")
    assert len(quick.arms) == 5
    (tmp_path / "mine.toml").write_text(DECLARATION + tuned)
    assert load_study(str(tmp_path / "mine.toml"), "quick").hash == quick.hash


def test_a_declaration_may_have_a_byte_order_mark_and_is_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(DECLARATION, encoding="utf-8-sig")
    assert load_study(str(file), "quick").hash == study().hash
    file.write_bytes(DECLARATION.replace("A paper", "Größe").encode("latin-1"))
    with pytest.raises(RecoverError, match=r"The declaration .*mine\.toml is not valid TOML: .* Correct it"):
        load_study(str(file), "quick")


def test_groups_of_answers_by_length() -> None:
    assert length_groups([64, 150]) == ["1-64", "65-150", "151-"]
    assert length_groups([]) == []


def test_the_built_in_base_is_the_same_study_named_or_not(tmp_path: Path) -> None:
    declared = study("[sizes.quick]", '[sizes.quick]\nbase = "org/name"').declared
    linked = tmp_path / "linked"
    linked.symlink_to(BASE)
    for path in (BASE, linked):
        named = Study("small", "quick", study().declared, None, str(path))
        assert (named.base_name, named.hash) == (None, study().hash)
        assert Study("small", "quick", declared, None, str(path)).hash == study().hash


def test_all_results_that_ship_are_of_the_command_without_a_base() -> None:
    """So the command gives their verdicts at once."""
    for folder in SHIPPED_RESULTS.glob("*-quick-*"):
        assert load_study(folder.name.rpartition("-quick-")[0], "quick").folder_name == folder.name
