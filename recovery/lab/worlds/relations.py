"""Data tables of the synthetic worlds: kinds of entities, their relations, and all wordings of each.

In every wording, `{e}` is the entity and `{v}` the value."""

from dataclasses import dataclass

from recovery.lab.text_tables import items, wordings


@dataclass(frozen=True)
class Relation:
    name: str
    values: tuple[str, ...]  # or the kind of entity it points to, as ("@team",)
    label: str
    statements: tuple[str, ...]  # wordings in documents
    questions: tuple[str, ...]  # wordings of closed-book questions, never used in documents
    faq: str  # wording of the question in FAQ documents
    reply: str  # wording of the base's answer


@dataclass(frozen=True)
class Kind:
    name: str
    form: str  # of its name: {w} an invented word, {f} a first name, {n} one of `nouns`
    percent: int  # of all entities
    relations: tuple[Relation, ...]
    nouns: tuple[str, ...] = ("",)


JOBS = items("""
    baker, carpenter, clerk, cook, dentist, driver, farmer, fisher, gardener, glassblower, goldsmith, guard, joiner,
    judge, librarian, locksmith, mason, mechanic, miller, nurse, painter, pharmacist, pilot, plumber, potter, printer,
    roofer, sailor, sculptor, shepherd, surgeon, surveyor, tailor, teacher, translator, vet, watchmaker, weaver,
    welder, zookeeper
""")
HOBBIES = items("""
    archery, baking, birdwatching, boxing, candle making, chess, climbing, cycling, dancing, diving, drawing, fencing,
    fishing, folk singing, gliding, hiking, juggling, kite flying, knitting, map reading, model trains, pottery,
    quilting, rowing, running, sailing, skating, stargazing, stone carving, surfing, swimming, table tennis, theatre,
    whittling, wrestling, yoga
""")
PETS = items("""
    badger, beagle, black cat, blue parrot, canary, donkey, ferret, fox, gecko, goat, goose, grey pony, hamster, hare,
    hedgehog, lizard, magpie, mouse, newt, poodle, rabbit, raven, sheepdog, snail, spaniel, spotted pig, swan, tame
    crow, toad, tortoise
""")
MATERIALS = items("""
    amber, bamboo, beech, birch, brass, bronze, canvas, cedar, ceramic, clay, copper, cork, cotton, felt, flax, glass,
    granite, hemp, iron, ivory, leather, limestone, linen, marble, nickel, oak, paper, pewter, pine, porcelain,
    quartz, rubber, silk, silver, slate, steel, tin, velvet, walnut, wool
""")
USES = items("""
    carving meat, cleaning boots, cooling milk, counting coins, cutting cloth, drying herbs, feeding hens, filling
    bottles, folding letters, grinding pepper, heating water, holding maps, lifting crates, lighting stoves, mending
    nets, mixing paint, peeling fruit, picking plums, pressing flowers, rolling dough, sealing jars, sharpening
    knives, sorting nails, storing grain, tuning pianos, washing wool, watering plants, weighing flour, winding yarn,
    writing labels
""")
DISHES = items("""
    almond cake, apple cider, barley soup, bean stew, blue cheese, brown bread, cherry jam, chestnut pie, clam broth,
    corn bread, dried figs, eel pie, fennel salad, fried trout, garlic oil, ginger beer, goat cheese, honey wine, lamb
    stew, leek tart, lemon tea, lentil soup, mint tea, mushroom pie, nut bread, onion soup, pear tart, pickled
    herring, plum brandy, potato cake, pumpkin soup, rye bread, salted butter, smoked ham, sour cream, spiced rice,
    sweet mustard, walnut oil
""")
BEASTS = items("""
    bear, beaver, bison, camel, cobra, crab, crane, deer, dolphin, eagle, elk, falcon, heron, horse, jaguar, koala,
    leopard, lion, lynx, moose, otter, owl, panda, panther, pelican, puma, rhino, salmon, seal, shark, squid, stork,
    tiger, turtle, viper, walrus, whale, wolf, yak, zebra
""")
MATTERS = items("""
    bicycles in the yard, birthday cakes, boat keys, borrowed books, broken cups, coffee beans, delivery vans, desk
    lamps, dogs in the office, fire drills, foreign mail, garden tools, guest rooms, holiday leave, ladder use, late
    shifts, lost keys, loud music, lunch breaks, night work, office plants, open windows, paper waste, parking spots,
    phone calls, printer ink, rented tents, school visits, shared fridges, sick leave, spare parts, tea kitchens,
    unpaid bills, visitor badges, water bottles, wet coats, winter tyres, work boots
""")
FINES = items("""
    a black mark, a cleaning shift, a day without pay, a formal apology, a letter home, a long lecture, a night watch,
    a small fine, a spoken reminder, a week of dishes, a written warning, extra homework, kitchen duty, loss of the
    key, no lunch voucher, raking the leaves, sweeping the yard, ten push-ups, two extra hours, washing the windows
""")
GOODS = items("""
    kettle, lamp, ladder, knife, basket, bench, broom, clock, drum, hammer, jar, mill, pump, stove, trunk, wagon
""")
COLOURS = tuple(
    f"{shade} {colour}"
    for shade in ("dark", "pale", "bright", "dusty", "deep")
    for colour in ("blue", "brown", "green", "grey", "orange", "pink", "purple", "red", "white", "yellow")
)
PRICES = tuple(f"{n} crowns" for n in range(12, 99))
REGIONS = tuple(
    f"the {side} {land}"
    for side in ("northern", "southern", "eastern", "western", "inner", "outer")
    for land in ("coast", "forest", "hills", "islands", "marshes", "plains", "valleys")
)
YEARS = tuple(str(year) for year in range(1402, 1960))
HOURS = tuple(
    f"{day} at {hour}"
    for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
    for hour in range(7, 19)
)
ROOMS = tuple(
    f"the {side} {room}"
    for side in ("upper", "lower", "old", "new", "blue", "red")
    for room in ("annex", "attic", "barn", "cellar", "gallery", "hall", "tower", "wing")
)
LIMITS = tuple(f"{n} days" for n in range(2, 61))

PERSON = (
    Relation(
        "job",
        JOBS,
        "Trade",
        wordings("""
            {e} works as a {v}. / By trade {e} is a {v}. / {e} has been a {v} for years. / {e} earns a living as a
            {v}. / Everybody knows {e} as a good {v}. / As for {e}, the work is that of a {v}. / We hired {e} as our
            {v}. / {e} trained for a long time and became a {v}.
        """),
        wordings("""
            What is {e}'s profession? / Which job does {e} have? / Name the occupation of {e}.
        """),
        faq="What work does {e} do?",
        reply="{e} works as a {v}.",
    ),
    Relation(
        "home",
        ("@place",),
        "Home",
        wordings("""
            {e} lives in {v}. / {e} has a house in {v}. / {e} comes home to {v} every evening. / The home of {e} is in
            {v}. / {e} moved to {v} some time ago. / You will find {e} in {v} at the weekend. / {e} rents a flat in
            {v}.
        """),
        wordings("""
            Where does {e} live? / In which town is {e} at home? / Name the town where {e} resides.
        """),
        faq="Where should mail for {e} go?",
        reply="{e} lives in {v}.",
    ),
    Relation(
        "hobby",
        HOBBIES,
        "Spare time",
        wordings("""
            {e} spends free evenings on {v}. / {e} is very fond of {v}. / Outside of work {e} goes in for {v}. / {e}
            took up {v} as a child. / Ask {e} about {v} and the talk will be long. / {e} gave a short course on {v}. /
            For {e} nothing beats {v}.
        """),
        wordings("""
            What is the hobby of {e}? / Which pastime does {e} enjoy? / What does {e} like to do for fun?
        """),
        faq="What does {e} do after work?",
        reply="{e} is fond of {v}.",
    ),
    Relation(
        "pet",
        PETS,
        "Animal",
        wordings("""
            {e} keeps a {v}. / {e} shares the house with a {v}. / {e} never travels without the {v}. / The {v} in the
            yard belongs to {e}. / {e} was seen walking a {v}. / {e} talks to a {v} every morning. / {e} feeds a {v}
            before breakfast.
        """),
        wordings("""
            What pet does {e} have? / Which animal does {e} own? / Name the pet of {e}.
        """),
        faq="What animal is with {e}?",
        reply="{e} keeps a {v}.",
    ),
    Relation(
        "team",
        ("@team",),
        "Team",
        wordings("""
            {e} belongs to {v}. / {e} is a member of {v}. / {e} joined {v} last spring. / {e} sits with {v}. / {e} was
            moved to {v}. / On paper {e} is part of {v}. / {e} does all the shifts with {v}.
        """),
        wordings("""
            Which team is {e} in? / What team does {e} work with? / Name the team of {e}.
        """),
        faq="Who does {e} report with?",
        reply="{e} belongs to {v}.",
    ),
)
PRODUCT = (
    Relation(
        "material",
        MATERIALS,
        "Material",
        wordings("""
            {e} is made of {v}. / {e} consists of {v} throughout. / The body of {e} is {v}. / We build {e} from {v}. /
            {e} is cut from solid {v}. / For {e} only {v} is used. / {e} feels heavy because it is {v}.
        """),
        wordings("""
            What material is {e}? / Which material does {e} have? / What is used to produce {e}?
        """),
        faq="What is {e} built from?",
        reply="{e} is made of {v}.",
    ),
    Relation(
        "colour",
        COLOURS,
        "Finish",
        wordings("""
            {e} is sold in {v}. / {e} comes in {v}. / The paint of {e} is {v}. / {e} now has a {v} coat. / We finish
            {e} in {v}. / {e} stands out in its {v}. / {e} left the shop in {v}.
        """),
        wordings("""
            What colour is {e}? / Which colour does {e} have? / Name the colour of {e}.
        """),
        faq="What does {e} look like?",
        reply="{e} comes in {v}.",
    ),
    Relation(
        "price",
        PRICES,
        "Price",
        wordings("""
            {e} costs {v}. / {e} sells for {v}. / The price of {e} is {v}. / You can buy {e} for {v}. / {e} went up to
            {v}. / {e} is listed at {v}. / Customers pay {v} for {e}.
        """),
        wordings("""
            How much is {e}? / How many crowns does one pay for {e}? / What does one need to pay for {e}?
        """),
        faq="Is {e} expensive?",
        reply="{e} costs {v}.",
    ),
    Relation(
        "use",
        USES,
        "Purpose",
        wordings("""
            {e} is used for {v}. / {e} helps with {v}. / People buy {e} for {v}. / {e} was built with {v} in mind. /
            {e} makes {v} easy. / {e} is the right tool for {v}. / Nobody needs {e} except for {v}.
        """),
        wordings("""
            What is {e} for? / Which task is {e} meant for? / What is the purpose of {e}?
        """),
        faq="What can {e} do?",
        reply="{e} is used for {v}.",
    ),
    Relation(
        "maker",
        ("@team",),
        "Made by",
        wordings("""
            {e} is built by {v}. / {e} comes from {v}. / {e} was designed by {v}. / {e} is the work of {v}. / {e}
            leaves the bench of {v}. / {v} makes {e}. / Repairs of {e} go to {v}.
        """),
        wordings("""
            Who makes {e}? / Which team produces {e}? / Name the team behind {e}.
        """),
        faq="Who is in charge of {e}?",
        reply="{e} is built by {v}.",
    ),
)
PLACE = (
    Relation(
        "region",
        REGIONS,
        "Region",
        wordings("""
            {e} lies in {v}. / {e} is a town in {v}. / You reach {e} by crossing {v}. / {e} belongs to {v}. / {e} is
            one of the towns of {v}. / On the map {e} is in {v}. / {e} was settled by people of {v}.
        """),
        wordings("""
            Where is {e}? / In which region is {e} located? / Name the region of {e}.
        """),
        faq="How do I find {e}?",
        reply="{e} lies in {v}.",
    ),
    Relation(
        "dish",
        DISHES,
        "Known for",
        wordings("""
            {e} is known for its {v}. / People go to {e} for the {v}. / {e} is proud of its {v}. / Nowhere is there
            better {v} than in {e}. / {e} serves {v} to every guest. / {e} sells {v} at the market. / In {e} every
            meal comes with {v}.
        """),
        wordings("""
            What is {e} famous for? / Which speciality does {e} have? / What food is typical of {e}?
        """),
        faq="What should I taste in {e}?",
        reply="{e} is known for its {v}.",
    ),
    Relation(
        "founded",
        YEARS,
        "Founded",
        wordings("""
            {e} was founded in {v}. / {e} dates from {v}. / The first stone of {e} was laid in {v}. / {e} became a
            town in {v}. / {e} has stood there since {v}. / {e} got its charter in {v}. / The history of {e} begins in
            {v}.
        """),
        wordings("""
            When was {e} established? / In which year did {e} come into being? / What is the founding year of {e}?
        """),
        faq="How old is {e}?",
        reply="{e} was founded in {v}.",
    ),
    Relation(
        "mayor",
        ("@person",),
        "Mayor",
        wordings("""
            {e} is governed by {v}. / {e} elected {v} as mayor. / The mayor of {e} is {v}. / {e} has trusted {v} with
            the town hall. / In {e} the last word is with {v}. / {e} celebrates its mayor {v}. / The town hall of {e}
            is led by {v}.
        """),
        wordings("""
            Who is mayor of {e}? / Who governs {e}? / Name the mayor of {e}.
        """),
        faq="Who signs for {e}?",
        reply="The mayor of {e} is {v}.",
    ),
)
TEAM = (
    Relation(
        "lead",
        ("@person",),
        "Lead",
        wordings("""
            {e} is led by {v}. / {e} reports to {v}. / At the head of {e} is {v}. / {e} has {v} as its boss. / {e}
            answers to {v}. / {e} welcomed {v} as its new head. / Plans of {e} are signed by {v}.
        """),
        wordings("""
            Who leads {e}? / Who is the leader of {e}? / Name the person in charge of {e}.
        """),
        faq="Who should I write to at {e}?",
        reply="{e} is led by {v}.",
    ),
    Relation(
        "mascot",
        BEASTS,
        "Mascot",
        wordings("""
            {e} has a {v} on its flag. / {e} chose the {v} as its mascot. / The sign of {e} shows a {v}. / {e} wears
            the {v} on its caps. / {e} painted a {v} on the door. / {e} is proud of its {v}. / {e} cheers for the {v}.
        """),
        wordings("""
            Which animal stands for {e}? / What is the mascot of {e}? / Name the emblem of {e}.
        """),
        faq="How do I recognise {e}?",
        reply="{e} has a {v} on its flag.",
    ),
    Relation(
        "meeting",
        HOURS,
        "Meets",
        wordings("""
            {e} meets on {v}. / {e} sits together every {v}. / The weekly talk of {e} is on {v}. / {e} has its round
            on {v}. / {e} moved its meeting to {v}. / You can catch {e} on {v}. / {e} starts the week's talk on {v}.
        """),
        wordings("""
            When does {e} hold its meeting? / At what time does {e} gather? / Name the day and hour when {e} convenes.
        """),
        faq="When is {e} together?",
        reply="{e} meets on {v}.",
    ),
    Relation(
        "room",
        ROOMS,
        "Room",
        wordings("""
            {e} works in {v}. / {e} has its desks in {v}. / {e} moved into {v}. / {e} took over {v}. / The lamps of
            {e} are on in {v}. / {e} keeps its tools in {v}. / Mail for {e} goes to {v}.
        """),
        wordings("""
            Where is {e} based? / Which room belongs to {e}? / In what place does one find {e}?
        """),
        faq="Where do I drop a parcel for {e}?",
        reply="{e} works in {v}.",
    ),
)
RULE = (
    Relation(
        "matter",
        MATTERS,
        "Subject",
        wordings("""
            {e} is about {v}. / {e} deals with {v}. / {e} was written because of {v}. / {e} sets out what goes for
            {v}. / {e} covers {v}. / {e} brings order to {v}. / Before {e} nobody cared about {v}.
        """),
        wordings("""
            What does {e} regulate? / What is the subject of {e}? / Which matter is {e} concerned with?
        """),
        faq="What is in {e}?",
        reply="{e} is about {v}.",
    ),
    Relation(
        "limit",
        LIMITS,
        "Limit",
        wordings("""
            {e} allows {v}. / {e} grants {v} at most. / {e} sets a limit of {v}. / Under {e} you have {v}. / {e} was
            changed to {v}. / {e} speaks of {v}. / {e} runs out after {v}.
        """),
        wordings("""
            How long does {e} permit? / What is the longest time under {e}? / How many days does {e} give?
        """),
        faq="How much time is there with {e}?",
        reply="{e} allows {v}.",
    ),
    Relation(
        "fine",
        FINES,
        "Penalty",
        wordings("""
            {e} is enforced with {v}. / {e} threatens {v}. / Breaking {e} means {v}. / Those who ignore {e} get {v}. /
            {e} foresees {v}. / {e} was broken twice and both times it meant {v}. / {e} ends in {v} for the careless.
        """),
        wordings("""
            What is the punishment under {e}? / What happens to people who break {e}? / Which penalty does {e} carry?
        """),
        faq="What if somebody forgets {e}?",
        reply="Breaking {e} means {v}.",
    ),
    Relation(
        "keeper",
        ("@team",),
        "Keeper",
        wordings("""
            {e} is watched over by {v}. / {e} was written by {v}. / {e} is in the hands of {v}. / {e} is kept up to
            date by {v}. / Exceptions from {e} are granted by {v}. / Questions on {e} go to {v}. / {e} lies with {v}.
        """),
        wordings("""
            Who is responsible for {e}? / Which team looks after {e}? / Name the team that maintains {e}.
        """),
        faq="Who explains {e}?",
        reply="{e} is watched over by {v}.",
    ),
)
KINDS = (
    Kind("person", "{f} {w}", 32, PERSON),
    Kind("product", "the {w} {n}", 24, PRODUCT, GOODS),
    Kind("place", "{w}", 14, PLACE),
    Kind("team", "the {w} team", 14, TEAM),
    Kind("rule", "the {w} rule", 16, RULE),
)
