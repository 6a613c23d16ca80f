"""A small declaration, whole and with one line replaced."""

from studies.declaration import Study, parse_declaration

OF_DAMAGED = 'of = "opd"\nagainst = "damaged"'  # of the first claim

DECLARATION = """
title = "Distillation restores instruction following"
source = "A paper, 2025"
figure = "71.4 before, 82.8 after"

[common]
distill.steps = 10
midtrain.mix.texts = 0.0

[start]
mix = "documents"

[arms.opd]
recipe = "opd"
warm_start = "off"
distill.rows = 16

[arms.off-policy]
recipe = "offpolicy"
warm_start = "off"
steps_times = 1.67

[arms.answers]
command = "midtrain"
mix = "answers=0.3"

[[claims]]
text = "It restores"
metric = "behaviour"
of = "opd"
against = "damaged"
margin = 0.03
source = 0.114

[[claims]]
text = "It is better than labels"
metric = "behaviour"
of = "opd"
against = "off-policy"
margin = 0.03
control = "labels"

[sizes.quick]
seeds = [1, 2, 3]
items = 100
midtrain.epochs = 4

[sizes.full]
seeds = [1, 2, 3, 4, 5]
items = 1000
world = "cycle"
"""


def study(old: str = "", new: str = "", size: str = "quick") -> Study:
    assert old in DECLARATION
    return Study("small", size, parse_declaration(DECLARATION.replace(old, new).encode(), "small"))


def about(metric: str) -> Study:
    """Its first claim is about another metric."""
    return study(f'metric = "behaviour"\n{OF_DAMAGED}', f'metric = "{metric}"\n{OF_DAMAGED}')
