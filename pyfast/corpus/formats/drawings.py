"""What Office files have beside their text and cells: equations, text boxes, diagrams and other objects."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from pyfast.utils.text_forms import counted

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_OBJECTS = {
    "chart": "chart",
    "chartex": "chart",
    "diagram": "diagram (SmartArt)",
    "ole": "embedded object",
    "OLEObject": "embedded object",
    "altChunk": "inserted file (altChunk)",
    "subDoc": "linked document",
}
"""By the name of an element, or the end of the address that says what is in a frame"""


def parsed(data: bytes) -> Any:
    """The tree of a part of a file. Raises `XMLSyntaxError` if it is damaged."""
    from lxml import etree

    return etree.fromstring(data, etree.XMLParser(resolve_entities=False))


def choose(tree: Any) -> None:
    """Keep one form of each content that a file has in several forms for different programs: the first with a
    text or an object."""
    for several in list(tree.iter(f"{_MC}AlternateContent")):
        forms = list(several.iterchildren(f"{_MC}Choice", f"{_MC}Fallback"))
        full = (it for it in forms if next(it.iter("{*}t", "{*}graphicData", "{*}pic"), None) is not None)
        parent, kept = several.getparent(), next(full, forms[0] if forms else ())
        place = parent.index(several)
        parent[place : place + 1] = list(kept)


def paragraphs(tree: Any) -> Iterator[str]:
    """The paragraphs of text boxes and of other shapes, without empty ones."""
    for paragraph in tree.iter(f"{A}p"):
        found = (it for it in paragraph.iter(f"{A}t", f"{A}br", f"{M}oMath"))
        said = "".join(
            "\n" if it.tag == f"{A}br" else it.text or "" if it.tag == f"{A}t" else equation(it) for it in found
        )
        if said.strip():
            yield said.strip()


def diagram(tree: Any, data_of: Callable[[str], bytes]) -> list[str]:
    """The texts of a diagram (SmartArt), each after the one to which it belongs. `data_of` returns the data of a
    relation by its id. Empty if there is no text, or if the data is missing or damaged."""
    try:
        ids = (it.get(f"{_RELATION}dm", "") for it in tree.iter(f"{_DIAGRAM}relIds"))
        return [said for key in ids for said in _in_order(parsed(data_of(key)))]
    except (KeyError, ValueError, SyntaxError):  # lxml's errors are SyntaxErrors.
        return []


def _in_order(data: Any) -> Iterator[str]:
    points = {it.get("modelId"): it for it in data.iter(f"{_DIAGRAM}pt")}
    below = defaultdict[str, list[tuple[int, str]]](list)
    for it in data.iter(f"{_DIAGRAM}cxn"):
        if it.get("type", "parOf") == "parOf":
            below[it.get("srcId")].append((int(it.get("srcOrd", 0)), it.get("destId")))
    inner = {key for some in below.values() for _, key in some}
    waiting = sorted(points, key=inner.__contains__)[::-1]
    while waiting:
        key = waiting.pop()
        if (point := points.pop(key, None)) is not None:
            yield from paragraphs(point)
            waiting += [inside for _, inside in sorted(below[key], reverse=True)]


def charts(tree: Any, data_of: Callable[[str], bytes]) -> list[str]:
    """What charts say beside their values, as in `diagram`."""
    try:
        ids = (it.get(f"{_RELATION}id", "") for it in tree.iterchildren("{*}chart"))
        return [said for key in ids for said in beside_values(parsed(data_of(key)))]
    except (KeyError, SyntaxError):
        return []


def beside_values(chart: Any) -> list[str]:
    """The titles of a chart, and the names of series and other texts that are in no cell."""
    own = [it for it in chart.iter("{*}tx") if next(it.iter("{*}f"), None) is None]
    texts = [said for it in own if not it.getparent().tag.endswith("}title") for said in _in_chart(it)]
    return list(filter(None, [titles(chart), "; ".join(texts)]))


def titles(chart: Any) -> str:
    """The title of a chart, with those of its axes in brackets."""
    found = [(it.getparent().tag, " ".join(_in_chart(it))) for it in chart.iter("{*}title")]
    axes = ", ".join(said for above, said in found if said and not above.endswith("}chart"))
    own = " ".join(said for above, said in found if above.endswith("}chart"))
    return f"{own} ({axes})".strip() if axes else own


def _in_chart(element: Any) -> list[str]:
    """The texts within a part of a chart, without fields such as `[VALUE]`."""
    found = [*paragraphs(element), *((it.text or "").strip() for it in element.iter("{*}v"))]
    return [said for said in found if said and not said.startswith("[")]


def objects(tree: Any) -> Counter[str]:
    """Count the objects whose content is not read, by their kinds. Diagrams are among them."""
    found = tree.iter(f"{A}graphicData", *(f"{{*}}{name}" for name in ("OLEObject", "altChunk", "subDoc")))
    names = (it.get("uri", "").rpartition("/")[2] or it.tag.rpartition("}")[2] for it in found)
    return Counter(_OBJECTS[name] for name in names if name in _OBJECTS)


def not_read(objects: Mapping[str, int]) -> list[str]:
    """Say of each kind of object that it was not read, as in `2 charts were not read`."""
    return [
        counted(many, f"{kind} was not read", f"{kind}s were not read") for kind, many in objects.items() if many
    ]


_SINGLE = re.compile(r".|\d+(?:[.,]\d+)*|\|[^|]*\|")
_MIXED = re.compile(r"\d+/\d+")
_COMPOUND = frozenset(f"{M}{name}" for name in ("f", "rad", "nary", "sSup", "sSubSup", "func"))


def equation(element: Any) -> str:
    """An equation on one line, such as `x=(-b±√(b^2-4ac))/(2a)`."""
    if element.tag == f"{M}t":
        return element.text or ""
    name = element.tag.removeprefix(M)
    parts = [(it.tag.removeprefix(M), equation(it)) for it in element.iterchildren(f"{M}*")]
    of = defaultdict(str, parts)
    every = [said for part, said in parts if part in ("e", "mr", "oMath")]

    def given(what: str, usual: str) -> str:
        found = element.find(f"{M}{name}Pr/{M}{what}")
        return usual if found is None else found.get(f"{M}val", "")

    base, whole = of["e"], grouped(of["e"])
    marks = {"sub": "_", "lim": "^" if name == "limUpp" else "_", "sup": "^"}
    scripts = "".join(mark + grouped(of[part]) for part, mark in marks.items() if of[part])
    if name == "f":
        if given("type", "") == "noBar":
            return f"binom({of['num']}, {of['den']})"
        beside = ((element.getprevious(), -1), (element.getnext(), 0))
        near = ("" if it is None else "".join(it.itertext(f"{M}t", with_tail=False))[at:][:1] for it, at in beside)
        return fraction(f"{grouped(of['num'])}/{grouped(of['den'])}", *near)
    if name == "rad":
        return f"√[{of['deg']}]({base})" if of["deg"] else f"√{whole}"
    if name == "nary":
        return f"{given('chr', '∫')}{scripts} {whole}"
    if name == "d":
        return given("begChr", "(") + given("sepChr", "|").join(every) + given("endChr", ")")
    if name == "func":
        return of["fName"] + (base if _is_enclosed(base) else f"({base})")
    if name == "acc":
        return whole + given("chr", "\u0302")
    if name == "bar":
        return whole + ("\u0305" if given("pos", "bot") == "top" else "\u0332")
    if name == "m":
        return f"[{'; '.join(every)}]"
    if name in ("mr", "eqArr", "oMathPara"):
        return (", " if name == "mr" else "; ").join(every)
    if name == "sPre":
        return f"{scripts} {base}"
    if scripts:
        return (whole if any(it.tag in _COMPOUND for it in element.iterfind(f"{M}e/*")) else base) + scripts
    return "".join(said for _, said in parts)


def fraction(said: str, before: str, after: str) -> str:
    """A fraction between two characters. Without blanks or brackets, numbers and letters beside it would become a
    part of it."""
    if before.isdigit() and _MIXED.fullmatch(said):
        return f" {said} " if after.isalnum() else f" {said}"
    return f"({said})" if before.isalnum() or after.isalnum() else said


def grouped(text: str) -> str:
    """Put a text in brackets, unless it is a letter, a number, or already in brackets."""
    return text if not text or _SINGLE.fullmatch(text) or _is_enclosed(text) else f"({text})"


def _is_enclosed(text: str) -> bool:
    """Whether one pair of brackets is around all of a text."""
    depths = [*accumulate((it in "([{") - (it in ")]}") for it in text)]
    return len(text) > 1 and depths[-1] == 0 and min(depths[:-1]) > 0
