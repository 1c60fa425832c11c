# ruff: noqa: E501
"""Small invented worlds: passages, tables and triples of one subject, with questions of one to three hops over them.

Who built what and where is drawn by chance, so that only the evidence can tell; the subjects are far from the one
of `examples/`. Each question brings its plan and what each search finds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def _words(text: str) -> list[str]:
    return text.split()


FIRST = _words(
    """Ada Albert Alice Amara Anders Anna Antonio Arthur Astrid August Beatrice Boris Carla Cecil Chen Clara Conrad
Daniel Dmitri Edith Elena Emil Erik Esther Farid Felix Fiona Frank Fumiko Georg Greta Hana Harold Helen
Henrik Hugo Ida Igor Ines Ivan Jakob James Jane Johan Julia Karim Karl Kenji Lars Laura Leo Lidia Louis
Lucia Magnus Marco Margaret Maria Martin Maya Miguel Mikhail Nadia Niels Nora Olga Omar Oscar Paolo Paul
Pedro Petra Rafael Rosa Rudolf Samuel Sara Sofia Stefan Tariq Thomas Toshiro Ulrich Vera Victor Walter Wei
Yusuf Zofia"""
)
LAST = _words(
    """Abbott Aguilar Almeida Amundsen Arkwright Asante Baker Bellini Berger Blom Brandt Calder Carvalho Castell
Chaudhry Cole Corti Dahl Delacroix Demir Dorn Eklund Farrow Fernandez Fiorelli Fontaine Forsberg Gallo
Gardner Grieve Haddad Hallam Hartmann Hayashi Hollis Ibsen Ishida Jansen Jovanovic Kaminski Keller Kimura
Kovacs Kruger Lambert Larsen Lindqvist Lombardi Maddox Marchetti Mendes Mikkelsen Moreau Nakagawa Navarro
Novak Okafor Olsen Osman Palmer Pavlov Pereira Petrov Quist Ramos Reyes Rinaldi Rossi Sandoval Sato
Schreiber Sharma Silva Soto Strand Suzuki Tanaka Thorne Torres Ustinov Vance Varga Vega Vogel Wagner
Watanabe Weber Whitlock Winter Yamada Zeller Ziegler"""
)
CITIES = _words(
    """Aarhus Aberdeen Adelaide Alexandria Antwerp Arequipa Bamberg Basel Bergen Bilbao Bologna Bordeaux Braga
Bratislava Bremen Bristol Brno Cardiff Cartagena Chester Cordoba Cork Cracow Dakar Debrecen Derby Dijon
Dundee Durban Exeter Ferrara Freiburg Galway Gdansk Genoa Ghent Girona Gothenburg Granada Graz Grenoble
Groningen Halifax Hamburg Izmir Kiel Kobe Kumasi Lausanne Leeds Leipzig Liege Linz Lucca Lund Lyon Malmo
Mantua Mendoza Metz Modena Mombasa Montpellier Nantes Norwich Odense Oporto Osijek Ostrava Parma Pecs Perth
Plymouth Poznan Quito Ravenna Riga Rosario Rostock Rouen Salta Salzburg Seville Siena Split Stavanger Sydney
Szeged Tampere Tartu Toledo Trieste Trondheim Turku Uppsala Utrecht Valencia Valparaiso Varna Verona Vigo
Wroclaw York Zadar Zaragoza"""
)
SUFFIX = (", Ohio", ", Ontario", ", Kent", ", Bavaria", ", Tuscany", ", New South Wales", *[""] * 10)
COUNTRIES = _words(
    """Argentina Australia Austria Belgium Brazil Canada Chile Croatia Denmark Egypt Estonia Finland France Germany
Ghana Greece Hungary Iceland India Ireland Italy Japan Kenya Latvia Mexico Morocco Norway Peru Poland
Portugal Romania Senegal Serbia Spain Sweden Switzerland Turkey Uruguay"""
)
MONTHS = _words("""January February March April May June July August September October November December""")
STEM = _words(
    """Alder Amber Arden Ashby Aurora Beacon Birch Bramble Cedar Cinder Cobalt Coral Crown Delta Ember Falcon Fern
Flint Gale Glen Granite Harbour Hazel Heron Holm Iron Juniper Kestrel Lark Laurel Linden Maple Marble Meadow
Mill North Oak Onyx Opal Orchard Osprey Otter Pearl Pine Raven Reed Ridge River Robin Rowan Ruby Sable
Saffron Sage Silver Slate Spruce Stone Summer Swan Thistle Thorn Tide Umber Vale Violet Willow Wren Yarrow"""
)


def name(kind: str, rng: random.Random) -> str:
    """A name, number or date of a kind."""
    one, other = rng.sample(STEM, 2)
    match kind.split(":"):
        case ["person"]:
            return f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        case ["city"]:
            return rng.choice(CITIES) + rng.choice(SUFFIX)
        case ["country"]:
            return rng.choice(COUNTRIES)
        case ["year"]:
            return str(rng.randint(1820, 2019))
        case ["date"]:
            year, month, day = rng.randint(1820, 2019), rng.randint(1, 12), rng.randint(1, 28)
            return rng.choice((f"{year}-{month:02}-{day:02}", f"{day} {MONTHS[month - 1]} {year}"))
        case ["number", low, high]:
            value = rng.randint(int(low), int(high))
            return rng.choice((str(value), f"{value:,}"))
        case ["of", words]:
            return rng.choice(words.split("/"))
        case ["made", forms]:
            form = rng.choice(forms.split("/"))
            city, number = rng.choice(CITIES), rng.randint(2, 19)
            last = rng.choice(LAST)
            return form.format(one=one, other=other, low=other.lower(), city=city, last=last, n=number)
    raise ValueError(kind)


@dataclass(frozen=True)
class Relation:
    """What holds between two kinds of things, and the words for it; alternatives are divided by `|`."""

    head: str
    tail: str
    column: str
    triple: str
    says: str
    """Sentences with {x} and {y}."""
    asks: str
    """Questions for y with {x}."""
    phrase: str
    """Noun phrases for y with {x}, without the article."""
    inverse: str = ""
    """Noun phrases for x with {y}, without the article."""
    inverse_asks: str = ""
    where: str = "table,triple,text"


@dataclass(frozen=True)
class Subject:
    """Kinds of things with their names, and the relations between them."""

    title: str
    kinds: dict[str, str]
    relations: tuple[Relation, ...]
    fillers: tuple[str, ...]
    sizes: dict[str, int] = field(default_factory=dict)


R = Relation
BORN = R(
    "person", "city", "Birthplace", "born_in",
    "{x} was born in {y}.|{x} came from {y}.|{x}, born in {y}, grew up there.",
    "Where was {x} born?|In which city was {x} born?|In which town was {x} born?|What is the birthplace of {x}?",
    "birthplace of {x}|city where {x} was born|town in which {x} was born",
    "person born in {y}|{person} who was born in {y}", "Who was born in {y}?",
    "triple,triple,text",
)  # fmt: skip


def named(kind: str) -> Relation:
    return R(
        kind, "person", "Named after", "named_after",
        "{x} is named after {y}.|{x} bears the name of {y}.|{x} takes its name from {y}.",
        "After whom is {x} named?|After whom was {x} named?|Whose name does {x} bear?",
        "person after whom {x} is named|namesake of {x}|man whose name {x} bears",
        f"{kind} named after {{y}}|{kind} that bears the name of {{y}}", f"Which {kind} is named after {{y}}?",
    )  # fmt: skip


def seat(kind: str, verb: str = "has its headquarters") -> Relation:
    return R(
        kind, "city", "Headquarters", "headquartered_in",
        f"{{x}} {verb} in {{y}}.|The headquarters of {{x}} are in {{y}}.|{{x}} is based in {{y}}.",
        "In which city does {x} have its headquarters?|In which city is the headquarters of {x}?|Where is {x} based?"
        "|Where are the headquarters of {x}?",
        "headquarters of {x}|city where {x} is based|city of the headquarters of {x}",
        f"{kind} based in {{y}}|{kind} with headquarters in {{y}}", f"Which {kind} is based in {{y}}?",
    )  # fmt: skip


def place(kind: str, of: str, noun: str = "", words: str = "lies|is located") -> Relation:
    noun = noun or of
    verb, other = words.split("|")
    return R(
        kind, of, noun.capitalize(), "located_in",
        f"{{x}} {verb} in {{y}}.|{{x}} {other} in {{y}}.|{{x}} can be found in {{y}}.",
        f"In which {noun} is {{x}}?|In which {noun} does {{x}} lie?|Where is {{x}} located?|In what {noun} can {{x}} be found?",
        f"{noun} of {{x}}|{noun} where {{x}} lies|{noun} in which {{x}} is located|location of {{x}}",
        f"{kind} in {{y}}|{kind} located in {{y}}", f"Which {kind} is in {{y}}?",
    )  # fmt: skip


def by(kind: str, who: str, verb: str, past: str, doer: str, column: str = "") -> Relation:
    """`verb` as in "did X ...", `past` as in "was ... by"."""
    simple = {"written": "wrote", "flown": "flew", "driven": "drove"}.get(past, past)
    asked = f"Who {simple} {{x}}?" if who == "person" else f"Which {who} {simple} {{x}}?"
    return R(
        kind, who, column or doer.capitalize(), f"{past.replace(' ', '_')}_by",
        f"{{x}} was {past} by {{y}}.|{{x}}, {past} by {{y}}, is well known.|{{x}} is one of several {kind}s {past} by {{y}}.|The {doer} of {{x}} was {{y}}.",
        f"{asked}|{asked}|{asked}|By {'whom' if who == 'person' else 'which ' + who} was {{x}} {past}?|What is the name of the {doer} of {{x}}?",
        f"{doer} of {{x}}|{who} {'who' if who == 'person' else 'that'} {simple} {{x}}|{doer} of {{x}}",
        f"{kind} {past} by {{y}}|{kind} that {{y}} {simple}", f"Which {kind} did {{y}} {verb}?|Which {kind} was {past} by {{y}}?",
    )  # fmt: skip


def when(kind: str, past: str, noun: str, column: str = "", also: str = "") -> Relation:
    return R(
        kind, "year", column or f"Year {past}", f"{past}_in".replace(" ", "_"),
        f"{{x}} was {past} in {{y}}.|In {{y}} {{x}} was {past}.{also}",
        f"In which year was {{x}} {past}?|When was {{x}} {past}?|What year was {{x}} {past}?",
        f"year in which {{x}} was {past}|{noun} year of {{x}}|year of the {noun} of {{x}}|when {{x}} was {past}",
        f"{kind} {past} in {{y}}|{kind} that was {past} in {{y}}", f"Which {kind} was {past} in {{y}}?",
    )  # fmt: skip


def feat(kind: str, deeds: str) -> Relation:
    """What one thing of a kind did, which stands in passages only."""
    return R(
        kind, f"of:{deeds}", "", "",
        f"{{x}} was the first {kind} to {{y}}.|{{x}} became the first {kind} to {{y}}.|Never before {{x}} had any {kind} managed to {{y}}.",
        "", "", f"first {kind} to {{y}}|first {kind} that managed to {{y}}",
        f"Which {kind} was the first to {{y}}?|What was the first {kind} to {{y}}?", "text",
    )  # fmt: skip


def count(kind: str, noun: str, low: int, high: int, unit: str = "") -> Relation:
    unit = f" {unit}" if unit else ""
    return R(
        kind, f"number:{low}:{high}", noun.capitalize() + (f" ({unit.strip()})" if unit else ""), f"has_{noun.replace(' ', '_')}",
        f"The {noun} of {{x}} is {{y}}{unit}.|{{x}} has a {noun} of {{y}}{unit}.",
        f"What is the {noun} of {{x}}?|What {noun} does {{x}} have?",
        f"{noun} of {{x}}", f"{kind} with a {noun} of {{y}}", f"Which {kind} has a {noun} of {{y}}?",
    )  # fmt: skip


SUBJECTS = (
    Subject("ships", {"ship": "made:{one} {other}/{last}/{city} Star/{one} Maid/{one} {n}", "shipyard": "made:{last} & Sons/{city} Yard/{last} Shipbuilders",
        "harbour": "made:{city} Harbour/Port {last}/{one}haven", "line": "made:{one} Line/{last} Shipping Company/{city} Steam Company"},
      (by("ship", "shipyard", "build", "built", "builder"), by("ship", "person", "command", "commanded", "captain"),
       R("ship", "harbour", "Home port", "home_port", "The home port of {x} is {y}.|{x} sailed from {y}.", "From which harbour did {x} sail?|What is the home port of {x}?|Which harbour did {x} leave from?", "home port of {x}|harbour from which {x} sailed|harbour that {x} left", "ship that sailed from {y}|ship with the home port {y}", "Which ship sailed from {y}?"),
       R("ship", "boat", "Carried", "carried", "{x} carried {y}.|{x} had {y} on board.|{x} set {y} down on the water.", "Which boat did {x} carry?|What did {x} have on board?", "boat carried by {x}|boat on board {x}", "ship that carried {y}|ship that set {y} down on the water", "Which ship carried {y}?"),
       seat("line"), by("ship", "line", "operate", "operated", "operator"), when("ship", "launched", "launch"), place("shipyard", "city", "city"), place("harbour", "country"), named("ship"),
       feat("ship", "pass the Torres reef/winter in the northern ice/cross the Bay of Ghosts without sails/bring living corals to Europe/round Cape Mercy in fog/land on Foula Rock/reach the Blue Atoll/sail up the Rio Pardo/carry steam turbines across the equator"), BORN,
       R("ship", "of:the wreck of the Adelheid/a sunken bell/three empty lifeboats/a stone with old letters/an unknown whale/a chest of tin coins/parts of an old lighthouse", "", "", "In the spring its crew, that of {x}, found {y}.|The crew of {x} brought home {y}.", "What did the crew of {x} bring home?|What did the crew of {x} find?", "what the crew of {x} found", "ship whose crew found {y}|ship whose crew brought home {y}", "Which ship's crew brought home {y}?", "text")),
      ("The voyage took several months, and the weather was bad.", "Her engine was replaced twice, and the hull was painted grey.", "Little is known about the crew of that time."), {"boat": 6}),
    Subject("football", {"club": "made:{city} United/{city} Rovers/{last} Athletic/FC {city}/{city} Wanderers", "ground": "made:{one} Park/{last} Stadium/{one} Road/{city} Arena", "firm": "made:{last} Motors/{one} Breweries/{last} & Co./{one} Bank"},
      (R("club", "ground", "Home ground", "plays_at", "{x} plays its home games at {y}.|{y} is the home ground of {x}.", "What is the home ground of {x}?|Where does {x} play?|At which ground does {x} play?", "home ground of {x}|ground where {x} plays|stadium of {x}", "club that plays at {y}|club whose home ground is {y}", "Which club plays at {y}?"),
       by("club", "person", "manage", "managed", "manager"), by("club", "person", "found", "founded", "founder"), by("club", "firm", "sponsor", "sponsored", "sponsor"), when("club", "founded", "foundation", "Founded"), count("ground", "capacity", 4000, 70000), place("ground", "city"), seat("firm"), BORN, named("ground"), place("club", "city", "city", "plays|is at home"),
       R("club", "of:Cup of 1931/Cup of 1954/League title of 1971/League title of 1988/Winter Cup of 1999/Charity Shield of 1962/Amateur Cup of 1927/Youth Cup of 2004", "Title", "won", "{x} won the {y}.|The {y} went to {x}.", "Which title did {x} win?", "title won by {x}", "club that won the {y}|winner of the {y}", "Which club won the {y}?|Who won the {y}?"),
       feat("club", "play under floodlights/win every home game of a season/sign a player from abroad/lose ten games in a row/wear striped socks/be led by a woman")),
      ("Its supporters are known for their songs.", "The season ended badly, with four defeats in a row.", "A new stand was opened by the mayor.")),
    Subject("films", {"film": "made:The {one} {other}/{one} and {other}/A {one} Summer/Night of the {one}/{last}'s {other}", "studio": "made:{one} Pictures/{last} Films/{city} Studios", "song": "made:{one} Waltz/My {one} Heart/Under the {other}"},
      (by("film", "person", "direct", "directed", "director"), R("film", "person", "Composer", "music_by", "The music of {x} is by {y}.|{y} wrote the music for {x}.|{y} composed the score of {x}.", "Who wrote the music for {x}?|Who composed the score of {x}?|Who is the composer of {x}?", "composer of {x}|composer of the music for {x}|person who composed the score of {x}", "film with music by {y}|film whose score {y} composed", "For which film did {y} write the music?"),
       by("film", "studio", "produce", "produced", "producer", "Studio"), R("film", "person", "Leading role", "starred", "{y} plays the leading role in {x}.|{x} stars {y}.", "Who plays the leading role in {x}?|Who starred in {x}?", "star of {x}|actor who played the leading role in {x}|leading actor of {x}", "film starring {y}|film in which {y} plays the leading role", "Which film stars {y}?|In which film does {y} play the leading role?"),
       when("film", "released", "release"), seat("studio"), BORN, R("film", "language", "Language", "in_language", "{x} is in {y}.|The language of {x} is {y}.", "In which language is {x}?|What is the language of {x}?", "language of {x}", "film in {y}", "Which film is in {y}?"),
       R("film", "city", "Shot in", "filmed_in", "{x} was shot in {y}.|Most of {x} was filmed in {y}.", "Where was {x} shot?|In which city was {x} filmed?", "city where {x} was shot|place where {x} was filmed", "film shot in {y}", "Which film was shot in {y}?"), by("studio", "person", "found", "founded", "founder"),
       feat("film", "use a talking dog/be shown on a train/be shot under water/win the Golden Lantern/run for more than five hours/be banned in Ruritania/be drawn on glass")),
      ("Critics praised the pictures and found the plot thin.", "It was shown at a festival in autumn.", "A sequel was planned, and never made."), {"language": 5}),
    Subject("mountains", {"mountain": "made:Mount {last}/{one} Peak/{one}horn/Pico {last}/{last} Needle", "range": "made:{one} Range/{last} Hills/{one} Alps", "hut": "made:{last} Hut/{one} Hut/{city} Hut", "club": "made:{city} Alpine Club/{one} Mountaineers/{last} Society"},
      (R("mountain", "range", "Range", "part_of", "{x} is part of {y}.|{x} belongs to {y}.", "To which range does {x} belong?|Which range is {x} part of?", "range of {x}|range to which {x} belongs", "mountain in the range {y}|mountain that belongs to {y}", "Which mountain belongs to {y}?"),
       R("mountain", "person", "First ascent by", "first_climbed_by", "{x} was first climbed by {y}.|{y} made the first ascent of {x}.|{y} was the first on the top of {x}.", "Who first climbed {x}?|Who made the first ascent of {x}?", "first climber of {x}|person who made the first ascent of {x}|climber who first stood on {x}", "mountain first climbed by {y}|mountain whose first ascent was made by {y}", "Which mountain did {y} climb first?|Which mountain was first climbed by {y}?"),
       when("mountain", "first climbed", "first ascent", "First ascent"), count("mountain", "height", 1200, 6900, "m"), R("mountain", "hut", "Hut", "has_hut", "Climbers of {x} spend the night in {y}.|{y} stands below {x}.", "In which hut do climbers of {x} spend the night?|Which hut stands below {x}?", "hut below {x}|hut of {x}", "mountain above {y}", "Below which mountain does {y} stand?"),
       place("mountain", "country"), place("range", "country"), by("hut", "club", "build", "built", "builder"), seat("club"), BORN, named("mountain"), when("hut", "opened", "opening"),
       R("crater", "mountain", "Lies on", "located_on", "{x} lies on {y}.|{x} is on {y}.", "On which mountain does {x} lie?|Where does {x} lie?", "mountain on which {x} lies|mountain with {x}", "glacier on {y}|glacier that lies on {y}", "Which glacier lies on {y}?"),
       feat("mountain", "be climbed in winter/be measured with a barometer/be climbed by a woman alone/be seen from a balloon/carry a railway/be closed to climbers")),
      ("The rock is mostly granite and breaks easily.", "In winter the path is closed by snow.", "The view from the top reaches to the sea."), {"crater": 6}),
    Subject("museums", {"museum": "made:{last} Museum/{city} Gallery/Museum of {one}/{one} House", "painting": "made:{one} at Dawn/The {one} Bridge/Portrait of {last}/{one} with {other}", "school": "made:{city} Academy/{last} School of Art/{one} College"},
      (by("painting", "person", "paint", "painted", "painter"), R("painting", "museum", "Museum", "hangs_in", "{x} hangs in {y}.|{x} is kept in {y}.|{y} bought {x} at an auction.", "In which museum does {x} hang?|Where is {x} kept?|Which museum owns {x}?", "museum where {x} hangs|museum that owns {x}", "painting that hangs in {y}|painting in {y}", "Which painting hangs in {y}?"),
       when("painting", "painted", "painting", "Year"), place("museum", "city"), by("museum", "person", "design", "designed", "architect"), by("museum", "person", "direct", "directed", "director"), when("museum", "opened", "opening"), BORN, R("person", "school", "Studied at", "studied_at", "{x} studied at {y}.|{x} was taught at {y}.|{x} spent most of a long career at {y}.", "Where did {x} study?|At which school did {x} study?|At which school did {x} spend most of a career?", "school of {x}|school where {x} studied", "person who studied at {y}", "Who studied at {y}?", "triple,text"), place("school", "city", "city"),
       R("painting", "of:two herons/an empty boat/a boy with a drum/a burning mill/three sisters/a blind fiddler/a frozen canal/the fish market", "", "", "{x} shows {y}.|On {x} one sees {y}.", "What does {x} show?|What can be seen on {x}?", "what {x} shows", "painting that shows {y}", "Which painting shows {y}?", "text"), named("museum"), R("person", "society", "Co-founded", "co_founded", "{x} was one of the founders of {y}.|{x} helped to found {y}.|{x} co-founded {y}.", "Which society did {x} co-found?|Which society was co-founded by {x}?", "society that {x} co-founded|society co-founded by {x}", "co-founder of {y}|person who helped to found {y}", "Who co-founded {y}?", "triple,text")),
      ("The colours have darkened over time.", "Visitors come mostly in summer.", "A copy was made for a private house."), {"society": 5}),
    Subject("railways", {"line": "made:{city} Line/{one} Valley Railway/{last} Railway", "station": "made:{city} Central/{one} Street/{last} Road/{one} Junction", "locomotive": "made:{one} {n}/The {one}/{last}/Class {n}", "works": "made:{city} Works/{last} Engineering/{one} Foundry"},
      (R("line", "station", "Terminus", "ends_at", "{x} ends at {y}.|The terminus of {x} is {y}.", "Where does {x} end?|What is the terminus of {x}?|At which station does {x} end?", "terminus of {x}|station where {x} ends", "line that ends at {y}|railway whose terminus is {y}", "Which line ends at {y}?"),
       by("locomotive", "works", "build", "built", "builder"), by("locomotive", "person", "design", "designed", "designer"), R("locomotive", "line", "Line", "runs_on", "{x} runs on {y}.|{x} was used on {y}.|{x} pulled trains on {y}.", "On which line does {x} run?|On which line was {x} used?", "line on which {x} runs|line where {x} was used", "locomotive used on {y}|locomotive that runs on {y}", "Which locomotive was used on {y}?"), when("line", "opened", "opening"), when("locomotive", "built", "construction", "Built"), count("line", "length", 8, 420, "km"), place("station", "city"), place("works", "city"), BORN, by("works", "person", "found", "founded", "founder"),
       R("locomotive", "of:grain to the coast/a royal wedding party/lions for a zoo/salt from the mines/the first mail over the pass/a stolen bell/snow for a fair", "", "", "{x} once carried {y}.|In a hard winter {x} brought {y}.", "What did {x} once carry?", "what {x} carried", "locomotive that carried {y}|locomotive that brought {y}", "Which locomotive carried {y}?", "text"), named("locomotive"), seat("works"), feat("locomotive", "burn oil/pass the Simmer tunnel/reach 150 km an hour/climb the Brock incline/be sold abroad/run without a fireman")),
      ("Steam was given up long ago.", "The tunnel took nine years to dig.", "Tickets were cheap, and the trains were full.")),
    Subject("islands", {"island": "made:{one} Island/{last} Island/{one} Cay/Isla {last}", "archipelago": "made:{one} Islands/{last} Archipelago", "bird": "made:{one} tern/{last}'s petrel/{low} warbler/{city} finch", "institute": "made:{city} Institute/{last} Foundation/{one} Research Centre"},
      (R("island", "archipelago", "Archipelago", "part_of", "{x} belongs to {y}.|{x} is one of {y}.", "To which archipelago does {x} belong?|Which archipelago is {x} part of?", "archipelago of {x}|archipelago to which {x} belongs", "island that belongs to {y}", "Which island belongs to {y}?"),
       by("island", "person", "discover", "discovered", "discoverer"), when("island", "discovered", "discovery", "Discovery year"), by("bird", "person", "describe", "described", "describer"), R("bird", "island", "Lives on", "lives_on", "{x} lives on {y}.|{x} is found only on {y}.|{x} breeds on {y}.", "On which island does {x} live?|Where does {x} breed?", "island where {x} lives|island on which {x} breeds", "bird that lives on {y}|bird found on {y}", "Which bird lives on {y}?"), count("island", "area", 2, 900, "km2"), R("archipelago", "country", "Belongs to", "belongs_to", "{x} belongs to {y}.|{x} is governed by {y}.", "To which country does {x} belong?|Which country governs {x}?", "country to which {x} belongs|country that governs {x}", "archipelago that belongs to {y}", "Which archipelago belongs to {y}?"), BORN, by("bird", "institute", "study", "studied", "student", "Studied by"), seat("institute"), named("island"), R("rock", "island", "Lies on", "located_on", "{x} lies on {y}.|{x} is found on {y}.", "On which island does {x} lie?", "island on which {x} lies|island where {x} is found", "volcano on {y}", "Which volcano lies on {y}?"),
       R("island", "substance", "Exports", "exports", "Most of what {x} sells is {y}.|The soil of {x} consists mostly of {y}.", "Of what does most of the soil of {x} consist?|What makes up most of the soil of {x}?", "main part of the soil of {x}|what the soil of {x} consists of", "island with soil of {y}", "Which island has soil of {y}?", "text")),
      ("There is no harbour, only a beach of stones.", "Rain falls on most days of the year.", "Goats were brought by sailors and have eaten most shrubs."), {"rock": 6, "substance": 6}),
    Subject("music", {"band": "made:The {one}s/{one} & {other}/{last} Five/{city} Sound", "album": "made:{one} Days/{other} Songs/Live in {city}/Letters from {last}", "label": "made:{one} Records/{last} Music/{city} Discs"},
      (by("album", "band", "record", "recorded", "performer", "Artist"), by("album", "label", "release", "released", "publisher", "Label"), R("band", "person", "Singer", "sung_by", "The singer of {x} is {y}.|{y} sings in {x}.", "Who is the singer of {x}?|Who sings in {x}?", "singer of {x}|person who sings in {x}", "band in which {y} sings|band of the singer {y}", "In which band does {y} sing?"), R("band", "person", "Drummer", "drummer", "The drummer of {x} is {y}.|{y} plays the drums in {x}.", "Who plays the drums in {x}?|Who is the drummer of {x}?", "drummer of {x}|person who plays the drums in {x}", "band whose drummer is {y}", "In which band does {y} play the drums?"), by("album", "person", "produce", "produced", "producer"), when("album", "released", "release", "Released"), when("band", "founded", "foundation", "Founded"), place("band", "city", "city", "comes from the old town|started"), seat("label"), BORN, by("label", "person", "found", "founded", "founder"), count("album", "number of tracks", 6, 24), feat("band", "play on a glacier/sell a million tapes/tour by bicycle/sing in Frisian/record in a salt mine/refuse a medal")),
      ("The sound was thin, and the drums were too loud.", "They toured for two years without a break.", "A box with old takes was published later.")),
    Subject("universities", {"university": "made:University of {city}/{last} University/{city} Technical College", "building": "made:{last} Hall/{one} Library/{one} Tower/{last} Laboratory", "prize": "made:{last} Prize/{one} Medal/{city} Award", "company": "made:{last} Instruments/{one} Systems/{city} Chemicals"},
      (by("university", "person", "found", "founded", "founder"), when("university", "founded", "foundation", "Founded"), R("building", "university", "University", "belongs_to", "{x} belongs to {y}.|{x} is part of {y}.", "To which university does {x} belong?|Which university owns {x}?", "university of {x}|university to which {x} belongs", "building of {y}|building that belongs to {y}", "Which building belongs to {y}?"), by("building", "person", "design", "designed", "architect"), by("building", "company", "build", "built", "builder"), place("university", "city"), R("person", "university", "Worked at", "works_at", "{x} taught at {y}.|{x} was professor at {y}.|{x} spent most of a long career at {y}.", "At which university did {x} teach?|Where was {x} professor?|At which university did {x} spend most of the career?", "university where {x} taught|university of {x}|university where {x} spent the career", "professor at {y}|person who taught at {y}", "Who taught at {y}?", "triple,text"), R("prize", "person", "Winner", "won_by", "{x} went to {y}.|{y} was awarded {x}.|{y} won {x}.", "Who won {x}?|To whom did {x} go?", "winner of {x}|person who won {x}", "prize won by {y}|prize that {y} won", "Which prize did {y} win?"), seat("company"), BORN, R("person", "of:quicklime batteries/the tide table/a rubber wheel/the folding ladder/a cure for wheat rust/the double lens/a deaf alphabet", "", "", "{x} invented {y}.|{x} is known for {y}.", "What did {x} invent?", "what {x} invented", "inventor of {y}|person who invented {y}", "Who invented {y}?", "text"), named("prize"), count("university", "number of students", 900, 48000)),
      ("The archive was lost in a fire.", "Lectures are held in two languages.", "The old garden is open on Sundays.")),
    Subject("castles", {"castle": "made:{one} Castle/Castle {last}/{last} Keep/{city} Fortress", "duchy": "made:Duchy of {city}/County of {last}/{one} March", "order": "made:Order of the {one}/{last} Brothers/Knights of {city}"},
      (by("castle", "person", "build", "built", "builder"), by("castle", "person", "besiege", "besieged", "besieger", "Besieged by"), by("castle", "order", "defend", "defended", "defender"), by("castle", "person", "restore", "restored", "restorer"), when("castle", "destroyed", "destruction", "Destroyed"), when("castle", "restored", "restoration", "Restored"), place("castle", "duchy"), seat("order"), by("order", "person", "found", "founded", "founder"),
       R("duchy", "person", "Ruler", "ruled_by", "{x} is ruled by {y}.|{y} reigns over {x}.|{y} inherited {x} from an uncle.", "Who rules {x}?|Who reigns over {x}?|Who inherited {x}?", "ruler of {x}|person who rules {x}|heir of {x}", "duchy ruled by {y}|duchy that {y} inherited", "Which duchy does {y} rule?"),
       R("duchy", "city", "Capital", "capital", "The capital of {x} is {y}.|{y} is the main town of {x}.", "What is the capital of {x}?|Which town is the capital of {x}?", "capital of {x}|main town of {x}", "duchy whose capital is {y}", "Of which duchy is {y} the capital?"), BORN, named("castle"),
       R("castle", "of:a forged crown/the bones of a horse/a cellar full of honey/a secret stair/an organ with nine pipes/a chained Bible/two walled-up monks", "", "", "In the ruins of {x} masons found {y}.|When {x} was rebuilt, {y} came to light.", "What was found in the ruins of {x}?", "what was found in {x}", "castle in whose ruins masons found {y}|castle where {y} came to light", "In which castle was {y} found?", "text"),
       feat("castle", "be taken by night/have glass windows/hold out for a whole winter/be sold by auction/be lit by electricity")),
      ("The moat has been dry for a long time.", "Sheep graze where the kitchens stood.", "The keys are kept in the village.")),
    Subject("operas", {"opera": "made:The {one} Bride/{last}/{one} and {last}/The Merchant of {city}", "theatre": "made:{city} Opera/Teatro {last}/{one} Theatre", "orchestra": "made:{city} Philharmonic/{last} Ensemble/{one} Orchestra"},
      (by("opera", "person", "compose", "composed", "composer"), R("opera", "person", "Librettist", "libretto_by", "The words of {x} are by {y}.|{y} wrote the libretto of {x}.", "Who wrote the libretto of {x}?|Who wrote the words of {x}?", "librettist of {x}|author of the libretto of {x}", "opera whose libretto {y} wrote|opera with words by {y}", "For which opera did {y} write the libretto?"),
       R("opera", "theatre", "First performed at", "premiered_at", "{x} was first heard at {y}.|{x} had its first night at {y}.|{y} staged {x} for the first time.", "Where was {x} first performed?|In which theatre was {x} first heard?|Which theatre staged {x} first?", "theatre where {x} was first performed|theatre of the first night of {x}", "opera first performed at {y}|opera that {y} staged first", "Which opera was first performed at {y}?"),
       R("opera", "role", "Leading role", "leading_role", "The leading role of {x} is {y}.|At the centre of {x} stands {y}.", "What is the leading role of {x}?", "leading role of {x}", "opera whose leading role is {y}", "In which opera is {y} the leading role?"),
       R("role", "person", "First sung by", "first_sung_by", "{y} was the first to sing {x}.|{x} was first sung by {y}.", "Who was the first to sing {x}?|By whom was {x} first sung?", "first singer of {x}|singer who first sang {x}", "role first sung by {y}", "Which role did {y} sing first?"),
       when("opera", "first performed", "first performance", "First night"), place("theatre", "city"), by("theatre", "person", "design", "designed", "architect"), R("theatre", "orchestra", "Orchestra", "orchestra", "{y} plays in {x}.|The orchestra of {x} is {y}.", "Which orchestra plays in {x}?", "orchestra of {x}|orchestra that plays in {x}", "theatre where {y} plays", "In which theatre does {y} play?"),
       R("orchestra", "person", "Conductor", "conducted_by", "{y} conducts {x}.|The conductor of {x} is {y}.", "Who conducts {x}?|Who is the conductor of {x}?", "conductor of {x}|person who conducts {x}", "orchestra conducted by {y}|orchestra that {y} conducts", "Which orchestra does {y} conduct?"), BORN, count("theatre", "number of seats", 200, 3400), feat("opera", "use a wind machine/be sung in the open air/be broadcast/have no chorus/be forbidden by a bishop/end with a fire")),
      ("The second act is often cut.", "A fire destroyed the first costumes.", "The critics slept through most of it."), {"role": 8}),
    Subject("submersibles", {"submersible": "made:{one} {n}/Deep {one}/{last}/Sea {other}", "trench": "made:{last} Trench/{one} Deep/{city} Basin", "vessel": "made:{one} Explorer/{last}/Queen {one}", "institute": "made:{city} Oceanographic Institute/{last} Marine Centre/{one} Laboratory"},
      (R("submersible", "trench", "Dive site", "dived_into", "{x} dived into {y}.|{x} reached the floor of {y}.|{x} set down on the floor of {y}.", "Into which trench did {x} dive?|Where did {x} reach the floor?|Where did {x} set down?", "trench into which {x} dived|dive site of {x}|place where {x} set down", "submersible that dived into {y}|submersible that reached the floor of {y}|submersible set down in {y}", "Which submersible dived into {y}?"),
       R("submersible", "vessel", "Mother ship", "lowered_from", "{x} was lowered from {y}.|{y} carried {x} to the site.|{x} was put into the water from {y}.", "From which vessel was {x} lowered?|Which vessel carried {x}?|What is the mother ship of {x}?", "vessel from which {x} was lowered|mother ship of {x}|vessel that carried {x}", "submersible lowered from {y}|submersible that {y} carried", "Which submersible was lowered from {y}?"),
       by("submersible", "institute", "operate", "operated", "operator"), by("submersible", "person", "steer", "steered", "pilot"), by("submersible", "company", "build", "built", "builder"),
       R("submersible", "of:a gravity meter/a laser line/echo soundings/a towed camera/magnetic probes/lead weights", "", "", "{x} measured the floor with {y}.|To measure the mud, {x} used {y}.", "With what did {x} measure the floor?|What did {x} use to measure the floor?", "what {x} used to measure the floor", "submersible that measured the floor with {y}", "Which submersible measured the floor with {y}?", "text"),
       R("submersible", "of:blind shrimps/a manganese ball/glass sponges/a lost anchor/bones of a whale/warm brine/a rusty bell", "", "", "The arm of {x} brought up {y}.|In its basket {x} carried {y} to the surface.|The tank of {x} returned with {y}.", "What did the arm of {x} bring up?", "what {x} brought up", "submersible whose arm brought up {y}|submersible whose tank returned with {y}|submersible that brought up {y}", "Which submersible brought up {y}?", "text"),
       count("trench", "depth", 3100, 10900, "m"), when("submersible", "lost", "loss", "Year lost"), when("trench", "discovered", "discovery", "Discovery year"), by("trench", "person", "discover", "discovered", "discoverer"), seat("institute"), place("institute", "country"), seat("company"), place("vessel", "city", "home port", "lies|is moored"), named("submersible"),
       R("vent", "trench", "Lies in", "lies_in", "{x} lies in {y}.|{x} is found in {y}.", "In which trench does {x} lie?|Where is {x} found?", "trench where {x} lies|trench in which {x} is found", "vent in {y}", "Which vent lies in {y}?"), BORN, feat("submersible", "film a living giant squid/stay down for a week/work under ice/pass below 9,000 metres/be steered from land/find warm springs")),
      ("The cable broke twice.", "Fishermen had known the place for a long time.", "The batteries last for nine hours."), {"company": 6, "vent": 7}),
    Subject("races", {"car": "made:{last} {n}/{one} GT/Type {n}/{one} Special", "team": "made:{last} Racing/Scuderia {one}/{city} Motorsport", "circuit": "made:{city} Ring/{one} Park/Autodromo {last}", "supplier": "made:{one} Tyres/{last} Oil/{city} Rubber"},
      (by("car", "team", "enter", "entered", "entrant", "Team"), by("car", "person", "drive", "driven", "driver"), by("car", "person", "design", "designed", "designer"),
       R("car", "circuit", "Won at", "won_at", "{x} won at {y}.|At {y} first place went to {x}.", "At which circuit did {x} win?|Where did {x} win?", "circuit where {x} won", "car that won at {y}|winner at {y}", "Which car won at {y}?"), R("car", "engine", "Engine", "engine", "{x} has the engine {y}.|{y} powers {x}.", "Which engine powers {x}?|What engine does {x} have?", "engine of {x}|engine that powers {x}", "car with the engine {y}|car powered by {y}", "Which car is powered by {y}?"),
       R("team", "supplier", "Tyres from", "supplied_by", "{y} supplies {x}.|{x} gets its tyres from {y}.", "Who supplies {x}?|Which company supplies {x}?", "supplier of {x}|company that supplies {x}", "team supplied by {y}|team that {y} supplies", "Which team does {y} supply?"), by("team", "person", "found", "founded", "founder"), seat("team"), seat("supplier"), place("circuit", "country"), count("circuit", "length", 2100, 7900, "m"), when("circuit", "opened", "opening", "Opened"), BORN, named("circuit"), feat("car", "lap in under a minute/race on four continents/use disc brakes/finish on three wheels/run on alcohol/lead from start to end")),
      ("Rain fell during the last hour.", "The gearbox was the weak part.", "Thousands watched from the hill.")),
    Subject("medicine", {"drug": "made:{one}ol/{last}ine/{other}mycin", "hospital": "made:{last} Hospital/{city} Clinic/{one} Infirmary", "firm": "made:{last} Laboratories/{one} Pharma/{city} Remedies", "plant": "made:{low}wort/{city} root/{one} bark"},
      (by("drug", "person", "discover", "discovered", "discoverer"), by("drug", "firm", "make", "made", "maker"), by("drug", "hospital", "test", "tested", "tester", "Tested at"), R("drug", "plant", "Comes from", "obtained_from", "{x} is obtained from {y}.|{x} comes from {y}.|Chemists extract {x} from {y}.", "From which plant is {x} obtained?|What is {x} obtained from?", "plant from which {x} is obtained|source of {x}", "drug obtained from {y}|drug that comes from {y}", "Which drug is obtained from {y}?"),
       R("plant", "country", "Grows in", "grows_in", "{x} grows in {y}.|{x} is found wild in {y}.", "In which country does {x} grow?|Where does {x} grow?", "country where {x} grows", "plant that grows in {y}", "Which plant grows in {y}?"), R("drug", "of:snow blindness/river fever/baker's cough/sailor's rash/miner's lung/hay sickness/night cramps", "Used against", "used_against", "{x} helps against {y}.|Doctors use {x} against {y}.|{x} was the first cure of {y}.", "Against what does {x} help?|What does {x} cure?", "illness that {x} cures", "drug that helps against {y}|drug used against {y}|cure of {y}", "Which drug helps against {y}?"),
       when("drug", "approved", "approval", "Approved"), by("hospital", "person", "found", "founded", "founder"), place("hospital", "city"), seat("firm"), by("firm", "person", "found", "founded", "founder"), BORN, named("hospital"), feat("drug", "be sold as a powder/be tested on sailors/be made from sea water/be banned in sport/be taken only once a year")),
      ("It tastes bitter and must be kept cool.", "Side effects are rare.", "For years nobody believed the report.")),
    Subject("books", {"book": "made:The {one} Letters/{one} Street/A History of {other}/{last} and the {one}", "publisher": "made:{last} Press/{one} Books/{city} Editions", "prize": "made:{last} Prize/{one} Award"},
      (by("book", "person", "write", "written", "author"), R("book", "publisher", "Publisher", "published_by", "{x} was published by {y}.|{y} brought out {x}.", "Which company published {x}?|Who published {x}?", "publisher of {x}|company that published {x}", "book published by {y}", "Which book did {y} publish?"), R("book", "person", "Translator", "translated_by", "{x} was translated by {y}.|{y} made the translation of {x}.", "Who translated {x}?|Who is the translator of {x}?", "translator of {x}|person who translated {x}", "book translated by {y}|book that {y} translated", "Which book did {y} translate?"), R("book", "prize", "Prize", "won", "{x} won {y}.|{y} went to {x}.", "Which prize did {x} win?", "prize won by {x}", "book that won {y}|winner of {y}", "Which book won {y}?"), when("book", "published", "publication", "Published"), count("book", "number of pages", 90, 1100), seat("publisher"), BORN, R("book", "city", "Set in", "set_in", "{x} is set in {y}.|{x} takes place in {y}.", "In which city is {x} set?|Where does {x} take place?", "city where {x} is set|setting of {x}", "book set in {y}", "Which book is set in {y}?"), R("book", "of:a lame beekeeper/two rival bakers/a stolen cello/a lighthouse keeper's son/a blind cartographer/a nameless clerk", "", "", "{x} tells of {y}.|{x} is about {y}.", "What is {x} about?", "what {x} is about", "book about {y}|book that tells of {y}", "Which book is about {y}?", "text"), by("publisher", "person", "found", "founded", "founder")),
      ("The first edition sold out within days.", "Readers complained about the ending.", "The manuscript is kept in a bank.")),
    Subject("bridges", {"bridge": "made:{last} Bridge/{one} Bridge/{city} Viaduct", "river": "made:River {one}/{one} Water/the {last}", "firm": "made:{last} Steel/{one} Construction/{city} Ironworks"},
      (R("bridge", "river", "Crosses", "crosses", "{x} crosses {y}.|{x} spans {y}.", "Which river does {x} cross?|What does {x} span?", "river that {x} crosses|river under {x}", "bridge over {y}|bridge that crosses {y}", "Which bridge crosses {y}?"), by("bridge", "person", "design", "designed", "engineer"), by("bridge", "firm", "build", "built", "builder"), when("bridge", "opened", "opening", "Opened"), count("bridge", "length", 40, 2900, "m"), place("bridge", "city"), R("river", "lake", "Flows into", "flows_into", "{x} flows into {y}.|{x} ends in {y}.", "Into which lake does {x} flow?|Where does {x} end?", "lake into which {x} flows|lake where {x} ends", "river that flows into {y}", "Which river flows into {y}?"), seat("firm"), BORN, named("bridge"), by("firm", "person", "found", "founded", "founder"), R("bridge", "material", "Material", "made_of", "{x} is made of {y}.|The material of {x} is {y}.", "Of what is {x} made?|What is {x} made of?|What did the engineers use for {x}?", "material of {x}|what {x} is made of", "bridge made of {y}", "Which bridge is made of {y}?"), feat("bridge", "carry trams/be lit by gas/open in the middle/survive the flood of 1907/charge no toll/be built in a single summer"), when("bridge", "rebuilt", "rebuilding", "Rebuilt")),
      ("Painting it takes three years.", "Heavy lorries must take another way.", "A ferry ran here before."), {"lake": 6, "material": 6}),
    Subject("aircraft", {"aircraft": "made:{one} {n}/{last} {n}/Model {n}/{one}", "maker": "made:{last} Aircraft/{one} Aviation/{city} Aeroplane Works", "airfield": "made:{city} Field/{last} Airfield/{one} Aerodrome"},
      (by("aircraft", "maker", "build", "built", "builder", "Manufacturer"), by("aircraft", "person", "fly", "flown", "pilot"), by("aircraft", "person", "design", "designed", "designer"), R("aircraft", "airfield", "Airfield", "took_off_from", "{x} took off from {y}.|{x} left {y} at dawn.", "From which airfield did {x} take off?|Which airfield did {x} leave from?", "airfield from which {x} took off|airfield that {x} left", "aircraft that took off from {y}", "Which aircraft took off from {y}?"), R("aircraft", "engine", "Engine", "engine", "{x} had the engine {y}.|{y} drove {x}.", "Which engine drove {x}?|Which engine did {x} have?", "engine of {x}|engine that drove {x}", "aircraft with the engine {y}", "Which aircraft had the engine {y}?"), count("aircraft", "wingspan", 8, 70, "m"), when("aircraft", "first flown", "first flight", "First flight"), seat("maker"), place("airfield", "country"), BORN, named("airfield"), feat("aircraft", "cross the Ruda desert/carry a grand piano/fly backwards over a mile/land on a frozen lake/loop around a church tower/drop mail on Foula")),
      ("The wings were covered with linen.", "Only two were ever made.", "Rust was found in the tank."), {"engine": 6}),
)  # fmt: skip
HELD_OUT = ("books", "aircraft")
"""Subjects for choosing settings, on which nothing is trained."""
MORE = {
    "boat": "made:{one}bird/Little {last}/Dinghy {n}", "language": "of:Danish/Finnish/Greek/Turkish/Welsh/Basque/Czech",
    "society": "made:{last} Society/Friends of {one}/{city} Circle", "crater": "made:{last} Glacier/{one} Glacier",
    "rock": "made:{last} Volcano/{one} Cone", "substance": "of:limestone/clay/peat/basalt/coral sand/ash/gravel",
    "lake": "made:Lake {last}/Lake {one}", "material": "of:steel/granite/oak/concrete/cast iron/brick/aluminium",
    "role": "made:{last}/Princess {one}/The {one} Knight",
    "vent": "made:{one} Vent/{last} Chimney",
    "company": "made:{last} Works/{one} Engineering/{city} Machines",
    "engine": "made:{last} V{n}/{one} {n}",
}  # fmt: skip


def world(subject: Subject, rng: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The corpus and the questions of a world."""
    kinds = {**MORE, **subject.kinds}
    needed = {kind for it in subject.relations for kind in (it.head, it.tail)}
    things: dict[str, list[str]] = {}
    taken: set[str] = set()

    def draw(kind: str) -> str:
        for _ in range(200):
            one = name(kinds.get(kind, kind), rng)
            if one not in taken:
                break
        taken.add(one)
        return one

    for kind in sorted(needed):
        if kind in kinds and not kinds[kind].startswith("of:"):
            things[kind] = [draw(kind) for _ in range(subject.sizes.get(kind, rng.randint(8, 12)))]
    things["person"] = [draw("person") for _ in range(16)]
    things["city"] = [draw("city") for _ in range(20)]
    things["country"] = rng.sample(COUNTRIES, 8)
    facts: dict[tuple[str, int], str] = {}  # head, relation: tail
    inverse: dict[tuple[str, int], list[str]] = {}
    relations = subject.relations
    for at, it in enumerate(relations):
        heads = things[it.head]
        if it.tail in things:
            pool = things[it.tail]
            tails = rng.sample(pool, len(pool)) + rng.choices(pool, k=len(heads))
            if it.tail == "country" or rng.random() < 0.3:
                tails = rng.choices(pool, k=len(heads))
        elif (words := kinds.get(it.tail, it.tail)).startswith("of:"):
            options = words[3:].split("/")
            tails = rng.sample(options, len(options))
            if it.where != "text":
                tails += rng.choices(options, k=len(heads))
        else:
            tails = [name(it.tail, rng) for _ in heads]
        for head, tail in zip(rng.sample(heads, len(heads)), tails, strict=False):
            if it.head == "person" and rng.random() < 0.1:
                continue
            facts[head, at] = tail
            inverse.setdefault((tail, at), []).append(head)
    spoken = [rng.choice(it.where.split(",")) for it in relations]
    return _corpus(subject, relations, spoken, things, facts, rng), list(
        _questions(relations, things, facts, inverse, spoken, rng)
    )


def _one(options: str, rng: random.Random) -> str:
    return rng.choice(options.split("|"))


def _corpus(
    subject: Subject,
    relations: tuple[Relation, ...],
    spoken: list[str],
    things: dict[str, list[str]],
    facts: dict[tuple[str, int], str],
    rng: random.Random,
) -> list[dict[str, Any]]:
    corpus: list[dict[str, Any]] = []
    triples = []
    for kind, heads in things.items():
        columns = [at for at, it in enumerate(relations) if it.head == kind and spoken[at] == "table"]
        if columns:
            header = [kind.capitalize(), *(relations[at].column for at in columns)]
            rows = [[head, *(facts.get((head, at), "") for at in columns)] for head in heads]
            if rng.random() < 0.4:  # what a row is about need not stand first
                order = rng.sample(range(len(header)), len(header))
                header, rows = [header[at] for at in order], [[row[at] for at in order] for row in rows]
            title = rng.choice(
                (f"{kind}s", f"{subject.title}", f"list of {kind}s", f"{kind}s and {subject.title}")
            )
            corpus.append(
                {
                    "id": f"t{len(corpus)}",
                    "kind": "table",
                    "title": title,
                    "section": "",
                    "header": header,
                    "rows": rows,
                }
            )
        for head in heads:
            sentences = []
            for at, it in enumerate(relations):
                if it.head != kind or (head, at) not in facts:
                    continue
                if spoken[at] == "triple" or (spoken[at] == "text" and it.triple and rng.random() < 0.1):
                    triples.append([head, it.triple, facts[head, at]])
                if spoken[at] == "text" or (it.says and rng.random() < 0.15):
                    sentences.append(_one(it.says, rng).format(x=head, y=facts[head, at]))
            if sentences or (kind in subject.kinds and rng.random() < 0.4):
                rng.shuffle(sentences)
                said = rng.choice(("it", f"the {kind}", head, head)) if kind != "person" else head
                text = [sentences[0] if sentences else f"{head} is a {kind}."]
                for sentence in sentences[1:]:
                    if said != head and sentence.startswith(head) and rng.random() < 0.4:
                        text[-1] = f"{text[-1][:-1]}, and {sentence.replace(head, said, 1)}"
                    else:
                        text.append(
                            sentence.replace(
                                head, said[:1].upper() + said[1:] if sentence.startswith(head) else said, 1
                            )
                        )
                text += rng.sample(subject.fillers, rng.randint(0, 2))
                corpus.append({"id": f"p{len(corpus)}", "kind": "text", "title": head, "text": " ".join(text)})
    for at in range(0, len(triples), 20):
        part = triples[at : at + 20]
        corpus.append({"id": f"k{at}", "kind": "kg", "title": "facts", "triples": part})
    return corpus


def _questions(
    relations: tuple[Relation, ...],
    things: dict[str, list[str]],
    facts: dict[tuple[str, int], str],
    inverse: dict[tuple[str, int], list[str]],
    spoken: list[str],
    rng: random.Random,
    count: int = 110,
) -> Iterator[dict[str, Any]]:
    """Chains of one to three steps, each forwards or, where only one thing has the value, backwards."""
    kind_of = {one: kind for kind, those in things.items() for one in those}
    steps: dict[str, list[tuple[int, bool, str]]] = {}
    for (head, at), tail in facts.items():
        if relations[at].phrase and relations[at].asks:
            steps.setdefault(head, []).append((at, True, tail))
        if len(inverse[tail, at]) == 1 and relations[at].inverse:
            steps.setdefault(tail, []).append((at, False, head))
    starts = sorted(steps)
    asked: set[str] = set()
    for _ in range(count * 4):
        if len(asked) >= count:
            return
        hops = rng.choices((1, 2, 3), (3, 5, 4))[0]
        here, chain, seen = rng.choice(starts), [], set()
        for _ in range(hops):
            options = [
                it for it in steps.get(here, ()) if it[0] not in seen and it[2] not in {c[0] for c in chain}
            ]
            if not options:
                break
            at, forward, there = rng.choice(options)
            seen.add(at)
            chain.append((here, at, forward, there))
            here = there
        if len(chain) < hops or any(step[0] == here for step in chain):
            continue
        question = _asked(relations, chain, kind_of, rng)
        if question["question"] in asked:
            continue
        asked.add(question["question"])
        yield question
        if rng.random() < 0.1 and (compared := _compared(relations, chain, facts, things, rng)):
            yield compared


def _kind(relation: Relation, forward: bool) -> str:
    kind = relation.tail if forward else relation.head
    return (
        relation.column.lower().split(" (")[0] or "what"
        if ":" in kind
        else {"crater": "glacier", "rock": "volcano"}.get(kind, kind)
    )


def _phrase(relation: Relation, forward: bool, x: str, rng: random.Random) -> str:
    text = _one(relation.phrase if forward else relation.inverse, rng)
    return text.replace("{person}", rng.choice(("person", "man", "one"))).format(x=x, y=x)


def _asked(
    relations: tuple[Relation, ...],
    chain: list[tuple[str, int, bool, str]],
    kind_of: dict[str, str],
    rng: random.Random,
) -> dict[str, Any]:
    """The question, its searches in its own words, and what each finds."""
    searches, found, kinds, simple = [], [], [], []
    inner = chain[0][0]
    opening = ""
    for hop, (_, at, forward, there) in enumerate(chain):
        it = relations[at]
        found.append(there)
        kinds.append(_kind(it, forward))
        known = f"#{hop}" if hop else chain[0][0]
        simple.append(
            _one((it.asks if forward else it.inverse_asks) or "What is it?", rng).format(x=known, y=known)
        )
        if hop == len(chain) - 1:
            text = _one(it.asks if forward else it.inverse_asks, rng).format(x=inner, y=inner)
            reference = f"{{entity{hop}}}" if hop else chain[0][0]
            searches.append(_phrase(it, forward, reference, rng))
            break
        phrase = _phrase(it, forward, "\0", rng)
        reference = f"{{entity{hop}}}" if hop else chain[0][0]
        searches.append(
            (phrase if rng.random() < 0.85 else _phrase(it, forward, "\0", rng)).replace("\0", reference)
        )
        if hop == 0 and it.triple and it.tail in kind_of.values() and rng.random() < 0.18:
            kind = kinds[-1]
            a = "an" if kind[0] in "aeiou" else "a"
            said = _one(it.says, rng)
            opening = (
                said.format(x=inner if forward else f"{a} {kind}", y=f"{a} {kind}" if forward else inner) + " "
            )
            inner = f"that {kind}"
        else:
            inner = "the " + phrase.replace("\0", inner)
    question = opening[:1].upper() + opening[1:] + text[:1].upper() + text[1:]
    first = chain[0]
    wordings = {_phrase(relations[first[1]], first[2], first[0], rng) for _ in range(3)} - {searches[0]}
    plan = {
        "hops": len(chain), "query": searches[0], "entity_type": kinds[0],
        "second_query": searches[1] if len(chain) > 1 else "", "third_query": searches[2] if len(chain) > 2 else "",
        "alternatives": sorted(wordings)[: rng.choice((0, 1, 1, 2))],
    }  # fmt: skip
    values = [first[0], *found]
    stated = [[values[hop], values[hop + 1]] for hop in range(len(chain))]
    return {
        "question": question,
        "answers": [found[-1]],
        "plan": plan,
        "found": found,
        "stated": stated,
        "type": f"{len(chain)}-hop",
        "simple": simple,
    }


def _compared(
    relations: tuple[Relation, ...],
    chain: list[tuple[str, int, bool, str]],
    facts: dict[tuple[str, int], str],
    things: dict[str, list[str]],
    rng: random.Random,
) -> dict[str, Any] | None:
    """Whether two things have the same value; the first may be described."""
    head, at, forward, tail = chain[-1]
    it = relations[at]
    others = [one for one in things[it.head] if one != head and (one, at) in facts] if it.head in things else []
    if not forward or not others or not it.triple or not it.triple.endswith(("_by", "_in", "_at")):
        return None
    same = [one for one in others if facts[one, at] == tail]
    other = rng.choice(same) if same and rng.random() < 0.6 else rng.choice(others)
    kind = _kind(it, True)
    verb = it.triple.replace("_", " ").rpartition(" ")
    if it.triple in ("located_in", "headquartered_in", "home_port", "plays_at"):
        return None
    described, searches, found = head, [], []
    if len(chain) > 1:
        before = chain[-2]
        phrase = _phrase(relations[before[1]], before[2], before[0], rng)
        described, searches, found = f"the {phrase}", [phrase], [head]
    plan_search = f"{kind} of {{entity1}} and {other}" if searches else f"{kind} of {head}"
    searches.append(plan_search)
    answer = "yes" if facts[other, at] == tail else "no"
    past = verb[0] or verb[2]
    question = f"Was {described} {past} {verb[2]} the same {kind} as {other}?"
    plan = {
        "hops": len(searches), "query": searches[0], "entity_type": _kind(relations[chain[-2][1]], chain[-2][2]) if len(searches) > 1 else kind,
        "second_query": searches[1] if len(searches) > 1 else "", "third_query": "",
        "alternatives": [] if len(searches) > 1 else [f"{kind} of {other}"],
    }  # fmt: skip
    stated = [[head, tail], [other, facts[other, at]]]
    return {
        "question": question,
        "answers": [answer],
        "plan": plan,
        "found": found,
        "stated": stated,
        "type": "compared",
    }
