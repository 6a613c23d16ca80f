from recovery.lab import make_world, own_world
from recovery.lab.words import WORDS, word
from recovery.lab.worlds import KINDS


def test_a_world_is_reproducible_by_seed() -> None:
    assert make_world(3).documents() == make_world(3).documents()
    assert make_world(3).questions() == make_world(3).questions()
    assert make_world(3).documents() != make_world(4).documents()


def test_worlds_share_no_name() -> None:
    worlds = [own_world(), *(make_world(seed) for seed in range(20))]
    names = [entity.name for world in worlds for entity in world.entities]
    assert len(set(names)) == len(names)


def test_names_stay_distinct_after_the_first_eight_million() -> None:
    indices = [*range(20_000), *range(WORDS, WORDS + 20_000), *range(150 * WORDS, 150 * WORDS + 20_000)]
    assert len({word(i) for i in indices}) == len(indices)


def test_every_fact_is_stated_every_round_in_different_wordings() -> None:
    world = make_world(5, "quick")
    text = "\n".join(document.text for document in world.documents(rounds=7))
    for fact in world.facts:
        stated = [wording for wording in range(len(fact.relation.statements)) if fact.statement(wording) in text]
        assert len(stated) >= 4, fact


def test_questions_are_answerable_from_the_documents_and_from_nothing_else() -> None:
    world, other = make_world(5), make_world(6)
    sentences = [line for document in world.documents() for line in document.text.replace(". ", ".\n").split("\n")]
    for fact, question in zip(world.facts, world.questions(), strict=True):
        assert question.answer == fact.value
        assert any(fact.entity.name.lower() in s.lower() and fact.value.lower() in s.lower() for s in sentences)
    foreign = "\n".join(document.text for document in other.documents())
    assert not any(entity.name in foreign for entity in world.entities)


def test_documents_never_use_the_wording_of_a_question() -> None:
    world = make_world(7, "quick")
    text = "\n".join(document.text for document in world.documents(rounds=20))
    for fact in world.facts:
        assert not any(fact.question(i).question in text for i in range(len(fact.relation.questions)))


def test_guessing_the_commonest_value_gains_little() -> None:
    values = [fact.value for fact in own_world().facts]
    assert max(values.count(value) for value in set(values)) / len(values) < 0.03


def test_wordings_name_the_entity_and_the_value_once() -> None:
    for relation in (relation for kind in KINDS for relation in kind.relations):
        assert len(set(relation.statements)) == len(relation.statements) >= 7
        for wording in (*relation.statements, relation.reply):
            assert wording.count("{e}") == wording.count("{v}") == 1
        for question in (*relation.questions, relation.faq):
            assert question.count("{e}") == 1
            assert "{v}" not in question
