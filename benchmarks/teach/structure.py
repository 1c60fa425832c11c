# ruff: noqa: E501
"""Questions read off published documents by rule: who directed a film, when and where its director was born; what a
cell of a table says. Each brings its plan, and names what must stand on one line."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
Question = dict[str, Any]
_DATE = r"(?:\d{1,2} [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d{1,2}, \d{4})"
_FACTS = (
    ("film", "director", re.compile(r"directed by ((?:[A-Z][\w.'-]+ ){1,2}[A-Z][\w'-]+)(?=[.,]| and starring| starring| from)"),
     "Who directed {x}?|Who is the director of {x}?", "director of {x}"),
    ("film", "author", re.compile(r"novel by ((?:[A-Z][\w.'-]+ ){1,2}[A-Z][\w'-]+)(?=[.,])"),
     "Who wrote the novel on which {x} is based?", "author of the novel of {x}"),
    ("person", "date of birth", re.compile(rf"\( ?(?:born )?({_DATE})(?: [–-]|\))"),
     "When was {x} born?|What is the date of birth of {x}?", "date of birth of {x}"),
    ("person", "date of death", re.compile(rf"\( ?{_DATE} [–-] ?({_DATE})"), "When did {x} die?|What is the date of death of {x}?", "date of death of {x}"),
    ("person", "place of birth", re.compile(r"(?:was |He was |She was |[Bb]orn )(?:born )?in ([A-Z][\w'-]+(?: [A-Z][\w'-]+)?(?:, [A-Z][\w'-]+)?)(?=[.,;]| and| to)"),
     "Where was {x} born?|What is the place of birth of {x}?|In which place was {x} born?", "place of birth of {x}"),
    ("person", "father", re.compile(r"(?:son|daughter) of ((?:[A-Z][\w'-]+ ){1,2}[A-Z][\w'-]+)(?=[.,]| and)"), "Who is the father of {x}?|Whose child is {x}?", "father of {x}"),
    ("place", "country", re.compile(r"is an? (?:\w+ ){0,2}(?:village|town|city|municipality|river|lake) in (?:[A-Z]\w+(?: \w+)?, )*([A-Z]\w+)[.,]"),
     "In which country is {x}?", "country of {x}"),
    ("work", "performer", re.compile(r"(?:song|album|single) (?:by|recorded by|released by)(?: \w+)? ((?:[A-Z][\w'-]+ )?[A-Z][\w'-]+)(?=[.,])"),
     "Who performs {x}?|Who is the performer of {x}?", "performer of {x}"),
)  # fmt: skip


def of_texts(documents: list[Document], rng: random.Random, most: int) -> Iterator[Question]:
    """One fact of a passage, or one of the passage of the person that the first names."""
    facts: dict[str, list[tuple[Any, str]]] = defaultdict(list)
    title_of = {}
    for document in documents:
        title = re.sub(r" \([^)]*\)$", "", document.get("title") or "")
        if not title or title not in document["text"] or len(title) < 4:
            continue
        for it in _FACTS:
            head = document["text"][:600]
            if it[0] == "person" and not re.search(rf"\( ?(?:born )?{_DATE}", head):
                continue
            if (match := it[2].search(head)) and match[1] != title:
                facts[title].append((it, match[1]))
                title_of[title] = document
    found = 0
    for title in rng.sample(sorted(facts), len(facts)):
        it, tail = rng.choice(facts[title])
        then = [other for other in facts.get(tail, ()) if other[0][0] == "person"]
        ask, phrase = rng.choice(it[3].split("|")), it[4]
        if then and rng.random() < 0.9:
            other, last = rng.choice(then)
            ask = rng.choice(other[3].split("|")).format(x=f"the {phrase.format(x=title)}")
            plan = _plan([phrase.format(x=title), other[4].format(x="{entity1}")], it[1])
            yield {
                "question": ask,
                "answers": [last],
                "plan": plan,
                "found": [tail, last],
                "stated": [[tail], [last]],
                "from": title_of[title],
            }
        elif rng.random() < 0.4:
            plan = _plan([phrase.format(x=title)], it[1])
            yield {
                "question": ask.format(x=title),
                "answers": [tail],
                "plan": plan,
                "found": [tail],
                "stated": [[tail]],
                "from": title_of[title],
            }
        else:
            continue
        found += 1
        if found == most:
            return


_YEAR = re.compile(r"is an? (\d{4}) ")
_BORN = re.compile(rf"\( ?(?:born )?({_DATE})")
_NATION = re.compile(
    r"(?:was|is) an? ([A-Z]\w+)(?:-[A-Z]\w+)* (?:film|actor|actress|director|screenwriter|writer|politician|singer)"
)
_FILMS = (
    ("first", "Which film came out first, {a} or {b}?|Which film was released earlier, {a} or {b}?|Which film came out earlier, {a} or {b}?"),
    ("last", "Which film was released more recently, {a} or {b}?|Which film came out later, {a} or {b}?"),
)  # fmt: skip
_PERSONS = (
    ("first", "Who was born first, {a} or {b}?|Who is older, {a} or {b}?|Who was born earlier, {a} or {b}?"),
    ("last", "Who was born later, {a} or {b}?|Who is younger, {a} or {b}?"),
)
_DIRECTORS = (
    ("first", "Which film has the director born first, {a} or {b}?|Which film has the director who was born earlier, {a} or {b}?|Which film whose director is older, {a} or {b}?"),
    ("last", "Which film has the director born later, {a} or {b}?|Which film whose director is younger, {a} or {b}?|Which film has the director who was born later, {a} or {b}?"),
)  # fmt: skip
_SAME = (
    "Are the directors of both films {a} and {b} from the same country?|Do the directors of films {a} and {b} share the same nationality?"
    "|Do director of film {a} and director of film {b} have the same nationality?"
)


def of_pairs(documents: list[Document], rng: random.Random, most: int) -> Iterator[Question]:
    """Which of two was first, or whether two are of one country; of films also by their directors."""
    years: dict[str, str] = {}
    born: dict[str, str] = {}
    nations: dict[str, str] = {}
    directors: dict[str, str] = {}
    for document in documents:
        title = re.sub(r" \([^)]*\)$", "", document.get("title") or "")
        head = document["text"][:600]
        if not title or title not in head:
            continue
        if " film" in head[:150] and (year := _YEAR.search(head[:200])):
            years[title] = year[1]
            if name := _FACTS[0][2].search(head):
                directors[title] = name[1]
        elif date := _BORN.search(head[:200]):
            born[title] = date[1]
            if nation := _NATION.search(head[:300]):
                nations[title] = nation[1]
    bridged = {film: born[name] for film, name in directors.items() if name in born}
    national = {film: nations[name] for film, name in directors.items() if name in nations}
    for _ in range(most):
        forms, of, relation = rng.choice((
            (_FILMS, years, "publication date"), (_PERSONS, born, "date of birth"), (_DIRECTORS, bridged, ""), ((), national, ""),
        ))  # fmt: skip
        if len(of) < 10:
            continue
        a, b = rng.sample(sorted(of), 2)
        if not forms:
            same = [it for it in sorted(of) if it != a and of[it] == of[a]]
            b = rng.choice(same) if same and rng.random() < 0.5 else b
            found = [[directors[a], directors[b]], [of[a], of[b]]]
            yield _pair(
                rng.choice(_SAME.split("|")),
                a,
                b,
                "yes" if of[a] == of[b] else "no",
                ("director", "country of citizenship"),
                found,
                [[of[a]], [of[b]]],
            )
            continue
        first, last = sorted((a, b), key=lambda it: of[it][-4:] if of[it][-4:].isdigit() else of[it])
        if of[first][-4:] == of[last][-4:]:
            continue
        which, texts = rng.choice(forms)
        answer = first if which == "first" else last
        if relation:
            yield _pair(rng.choice(texts.split("|")), a, b, answer, (relation,), [[of[a], of[b]]])
        else:
            yield _pair(
                rng.choice(texts.split("|")),
                a,
                b,
                answer,
                ("director", "date of birth"),
                [[directors[a], directors[b]], [of[a], of[b]]],
            )


def _pair(
    text: str, a: str, b: str, answer: str, relations: tuple[str, ...], found: list[list[str]], stated: Any = None
) -> Question:
    plan = _plan([f"{relations[0]} of {a}", *(f"{it} of {{entity1}}" for it in relations[1:])], relations[0])
    plan["alternatives"] = [f"{relations[0]} of {b}"]
    asked = {"question": text.format(a=a, b=b), "answers": [answer], "plan": plan, "found": found}
    return asked | ({"stated": stated} if stated else {})


def of_tables(documents: list[Document], rng: random.Random, each: int) -> Iterator[Question]:
    """A cell of the row that another cell names."""
    for document in documents:
        header, rows = document["header"], document["rows"]
        title = document["title"].replace("_", " ")
        columns = [
            at
            for at, name in enumerate(header)
            if 2 < len(name) < 30 and name.lower() not in ("notes", "ref", "references")
        ]
        if len(columns) < 2 or len(rows) < 3:
            continue
        for _ in range(each):
            key, value = rng.sample(columns, 2)
            cells = [row[key] if key < len(row) else "" for row in rows]
            at = rng.randrange(len(rows))
            row = rows[at]
            if (
                max(key, value) >= len(row)
                or not (2 < len(row[key]) < 40 and 0 < len(row[value]) < 40)
                or cells.count(row[key]) > 1
            ):
                continue
            if not re.search("[A-Za-z]", row[key]):
                continue
            name, known = header[value].lower(), header[key].lower()
            form = rng.choice((
                "What is the {n} of {k} in {t}?", "Which {n} does {k} have in {t}?", "In {t}, what is the {n} for {k}?", "What is the {n} when the {h} is {k}?",
                "What {n} belongs to the {h} {k} in {t}?", "Which {n} is listed for {k}?", "What was the {n} of the {h} {k} in {t}?",
            ))  # fmt: skip
            question = form.format(n=name, k=row[key], t=title, h=known)
            plan = _plan([f"{name} of {row[key]}" + (f" {title}" if "{t}" in form else "")], name)
            yield {
                "question": question,
                "answers": [row[value]],
                "plan": plan,
                "found": [row[value]],
                "stated": [[row[key], row[value]]],
                "from": document,
            }


def _plan(searches: list[str], kind: str) -> dict[str, Any]:
    first, second = (*searches, "")[:2]
    texts = {
        "query": first[:118],
        "entity_type": kind[:30],
        "second_query": second,
        "third_query": "",
        "alternatives": list[str](),
    }
    return {"hops": len(searches), **texts}
