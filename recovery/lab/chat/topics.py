"""Words and topics, each assigned to the training or the held-out split by its spelling.

The third split, "natural", has common nouns alone: for models that were not trained on the lab's invented words."""

from random import Random
from typing import Literal
from zlib import crc32

from recovery.lab.text_tables import words
from recovery.lab.worlds import names

Split = Literal["train", "heldout", "natural"]
SPLITS: tuple[Split, ...] = ("train", "heldout")
NOUNS = words("""
    acorn airport anchor apron arch arrow atlas attic avenue axe bag bakery balcony ball bamboo banjo bank barge barn
    barrel basin basket bay beach beacon bean bed bee bell belt bench berry bicycle bird blanket blossom board boat
    bolt bone book boot border bottle boulder bowl box branch brass bread breeze brick bridge broom brook brush bucket
    buckle bundle bus butter button cabin cabinet cable cake camel camera camp canal candle canoe canvas cape caravan
    card cargo carpet carriage cart castle cat cave cedar ceiling cellar chain chair chalk channel chapel chart chest
    chimney choir cider circle circus cliff cloak clock cloth cloud clover coach coal coast coat coffee coin collar
    column comet compass concert cookie corner cottage cotton cow cradle crane crater cream creek crow crown crystal
    cup curtain cushion dam dance dawn deck deer desert desk diary dinner dish dock dog dome donkey door drawer dream
    drum duck dune dust eagle echo engine envelope evening fabric factory fair falcon family farm feast feather fence
    fern ferry festival field finger fire fish flag flame flood floor flour flower flute fog forest forge fork fort
    fountain fox frame frog frost fruit fur furnace game garden garlic gate giant ginger glacier glass globe glove
    goat gold goose gown grain granite grape grass grove guitar gull hall hammer hammock harbour harp harvest hat hawk
    hay hedge helmet herb heron hill hive honey hood hook horizon horn horse hotel house iceberg ink inn iron island
    ivy jacket jar jewel journal journey jug juice jungle kettle key kingdom kitchen kite kitten knife knot label lace
    ladder lagoon lake lamb lamp lane lantern leaf leather lemon lentil letter library lid light lily lime linen lion
    lizard lock lodge log loom lunch machine magnet mango map maple marble market marsh mask mast meadow meal medal
    melon melody mill mine mint mirror mist mole monkey moon moss motor mountain mouse museum mushroom music mustard
    nail napkin nest net nickel night novel nut oak oar oasis oat ocean olive onion orange orchard orchestra oven owl
    ox paddle page paint palace palm pan panther paper parade park parrot party passage path pavement peach peak pear
    pearl pebble pen pencil pepper petal piano picnic picture pie pier pigeon pillow pilot pine pipe pirate planet
    plank plant plate plaza plough plum pocket poem pole pond pony porch port postcard potato powder prairie pretzel
    prince prism pumpkin puppet purse puzzle pyramid quarry quill quilt rabbit raft rail rain rainbow ranch raven
    recipe reef ribbon rice ridge ring river road robe robin rock rocket roof room rooster root rope rose ruby rug
    ruin saddle sail salad salt sand sandal sauce saw scarf school scissors sea seal season seed shadow shed sheep
    shelf shell shield ship shirt shoe shop shore shovel shrub signal silk silver singer skirt sled slope snail snow
    soap sock song soup spade spice spider sponge spoon spring square stable stage stair stamp star statue steam steel
    stone storm story stove stream street string studio sugar suit summer sun swamp swan table tailor tavern tea
    temple tent theatre thistle thorn thread throne thunder tide tiger timber toast tomato tool torch tortoise tower
    town toy track trail train tray treasure tree trumpet trunk tulip tunnel turnip turtle twig umbrella uniform
    valley vase vault veil vessel village vine vineyard violin volcano voyage wagon waist wall walnut walrus wardrobe
    waterfall wave wax weather web well whale wharf wheat wheel whistle willow wind window wine wing winter wire wolf
    wood wool workshop yard yarn
""")
ADJECTIVES = words("""
    ancient autumn bitter blue bold bright brown busy calm clean clever cold copper cosy crooked curious dark deep
    distant dry dusty early empty famous fancy fast fine first floating foggy forgotten free fresh friendly frozen
    gentle gilded glowing golden grand green grey happy heavy hidden hollow honest humble icy iron kind large last
    late lazy little local lonely long lost loud lucky merry misty modern muddy narrow neat new noble northern odd old
    open painted pale patient plain polished poor proud purple quick quiet rare red restless rich rocky round royal
    rusty sacred secret shallow sharp shiny short shy silent silver simple sleepy slow small smooth snowy soft
    southern spare steady steep stone strange striped strong sunny sweet swift tall tame thick thin tiny tired torn
    warm western white wide wild windy wise wooden yellow young
""")


def split_of(text: str) -> Split:
    """Assign a text to a split by its content, so no seed can leak it; one in ten is held out."""
    return "heldout" if crc32(text.encode()) % 10 == 0 else "train"


POOLS = {split: [noun for noun in NOUNS if split_of(noun) == split] for split in SPLITS} | {"natural": NOUNS}


def noun(rng: Random, split: Split) -> str:
    """Return a common noun or an invented one, so that copying a word cannot be replaced by guessing it."""
    return rng.choice(POOLS[split]) if split == "natural" or rng.random() < 0.55 else invented_noun(rng, split)


def invented_noun(rng: Random, split: Split) -> str:
    while True:
        word = _syllables(rng) if rng.random() < 0.4 else _blend(rng)
        if split_of(word) == split:
            return word


def _syllables(rng: Random) -> str:
    return names.first_name(rng.randrange(10**9)).lower() + rng.choice(("", *names.ENDINGS))


def _blend(rng: Random) -> str:
    """Join the beginning of one noun and the end of another: "lantow", "feaket"."""
    start, end = rng.sample(POOLS["train"], 2)
    return start[: rng.randint(2, max(2, len(start) - 2))] + end[-rng.randint(2, max(2, len(end) - 2)) :]


def nouns(rng: Random, split: Split, n: int) -> list[str]:
    """Return distinct nouns, none of which contains another, since their occurrences will be counted."""
    chosen: list[str] = []
    while len(chosen) < n:
        word = noun(rng, split)
        if not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return chosen


def topic(rng: Random, split: Split) -> str:
    return f"the {rng.choice(ADJECTIVES)} {noun(rng, split)}"
