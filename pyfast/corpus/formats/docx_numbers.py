"""Write the numbers that Word gives to paragraphs, which are not in the text of a document."""

from __future__ import annotations

import re
from typing import Any

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LEVELS = 9
_MOST = 5000  # the number from which on letters and Roman numbers are not written out
_PLACE = re.compile(r"%([1-9])")
_ROMAN = [
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
]  # fmt: skip


class _Numbers:
    """Counts the numbered paragraphs of a document, in their order."""

    def __init__(self, numbering: Any, styles: Any) -> None:
        """Take the trees of `numbering.xml` and `styles.xml`."""
        self.unknown: set[str] = set()
        """The formats of numbers that are not written"""
        self._styles = {it.get(f"{_W}styleId"): it for it in styles.iterchildren(f"{_W}style")}
        lists = {it.get(f"{_W}abstractNumId"): it for it in numbering.iterchildren(f"{_W}abstractNum")}
        by_style = {_value(it, "styleLink"): key for key, it in lists.items() if _value(it, "styleLink")}
        self._lists: dict[str, str] = {}
        self._levels: dict[str, dict[int, Any]] = {}
        self._starts: dict[str, dict[int, int]] = {}
        for num in numbering.iterchildren(f"{_W}num"):
            key, name = _value(num, "abstractNumId"), num.get(f"{_W}numId")
            key = by_style.get(_value(lists.get(key), "numStyleLink"), key)
            changes = {_whole(it.get(f"{_W}ilvl")): it for it in num.iterchildren(f"{_W}lvlOverride")}
            own = [level for it in changes.values() for level in it.iterchildren(f"{_W}lvl")]
            levels = [*(lists[key].iterchildren(f"{_W}lvl") if key in lists else ()), *own]
            self._lists[name] = key
            self._levels[name] = {_whole(it.get(f"{_W}ilvl")): it for it in levels}
            given = {at: _value(it, "startOverride") for at, it in changes.items()}
            self._starts[name] = {at: _whole(start) for at, start in given.items() if start}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[str] = set()

    def label(self, paragraph: Any) -> str:
        """Count a paragraph, and return its number, such as `2.`. Empty if it has none."""
        num, at = self._place(paragraph)
        levels = self._levels.get(num, {})
        if at not in levels:
            return ""
        # Lists that are made alike go on counting, unless one names its first number.
        counts = self._counts.setdefault(self._lists[num], {})
        if num not in self._begun:
            self._begun.add(num)
            for level in self._starts[num]:
                counts.pop(level, None)
        counts[at] = counts[at] + 1 if at in counts else self._start(num, at)
        for deeper in range(at + 1, _LEVELS):
            after = _value(levels.get(deeper), "lvlRestart")
            if not after or at < _whole(after):
                counts.pop(deeper, None)
        plain = levels[at].find(f"{_W}isLgl") is not None

        def number(match: re.Match[str]) -> str:
            level = int(match[1]) - 1
            form = _form(levels.get(level))
            return written(counts.get(level, self._start(num, level)), "decimal" if plain else form)

        shape = _value(levels[at], "lvlText")
        forms = {_form(levels.get(int(it) - 1)) for it in _PLACE.findall(shape)} | {_form(levels[at])}
        if "bullet" in forms:
            return ""
        if unknown := {form for form in forms if form != "none" and not plain and not written(1, form)}:
            self.unknown |= unknown
            return ""
        return _PLACE.sub(number, shape).strip()

    def _place(self, paragraph: Any) -> tuple[str, int]:
        """The list of a paragraph and its level, by itself or by its styles."""
        properties = paragraph.find(f"{_W}pPr")
        style: str | None = _value(properties, "pStyle")
        num = _value(properties, "numPr", "numId")
        level = _value(properties, "numPr", "ilvl")
        seen: set[str] = set()
        while style and style not in seen and not (num and level):
            seen.add(style)
            element = self._styles.get(style)
            given = None if element is None else element.find(f"{_W}pPr")
            if not num and (num := _value(given, "numPr", "numId")) and not level:
                named = [at for at, it in self._levels.get(num, {}).items() if _value(it, "pStyle") == style]
                level = str(named[0]) if named else ""
            level = level or _value(given, "numPr", "ilvl")
            style = _value(element, "basedOn")
        return num, _whole(level)

    def _start(self, num: str, level: int) -> int:
        start = _value(self._levels[num].get(level), "start")
        return self._starts[num].get(level, _whole(start))


def write_numbers(file: Any) -> list[str]:
    """Write the number of each paragraph of a document before its text. Without a text, it is written only in a
    table. Returns the formats of the numbers that are left out."""
    from docx.oxml import OxmlElement

    parts = [it for it in file.part.rels.values() if it.reltype.endswith("/numbering") and not it.is_external]
    if not parts:
        return []
    numbers = _Numbers(parts[0].target_part.element, file.styles.element)
    for paragraph in list(file.element.body.iter(f"{_W}p")):
        label = numbers.label(paragraph)
        if label and (paragraph.text.strip() or next(paragraph.iterancestors(f"{_W}tc"), None) is not None):
            run = OxmlElement("w:r")
            run.text = f"{label} "
            properties = paragraph.find(f"{_W}pPr")
            paragraph.insert(0 if properties is None else paragraph.index(properties) + 1, run)
    return sorted(numbers.unknown)


def written(number: int, form: str) -> str:
    """A number in one of Word's formats. Empty if the format is not known."""
    name = form.removeprefix("lower").removeprefix("upper")
    if form == "decimal" or ((number < 1 or number > _MOST) and name in ("Letter", "Roman")):
        return str(number)
    if form == "decimalZero":
        return f"{number:02d}"
    if name == "Letter":
        text = chr(ord("a") + (number - 1) % 26) * ((number + 25) // 26)
    elif name == "Roman":
        text = ""
        for value, sign in _ROMAN:
            text += sign * (number // value)
            number %= value
    else:
        return ""
    return text.upper() if form.startswith("upper") else text


def _form(level: Any) -> str:
    # A format of newer files stands beside the nearest of the older ones.
    forms = [] if level is None else [it.get(f"{_W}val", "") for it in level.iter(f"{_W}numFmt")]
    return forms[0] if forms else "decimal"


def _value(element: Any, *path: str) -> str:
    for name in path:
        element = None if element is None else element.find(f"{_W}{name}")
    return "" if element is None else str(element.get(f"{_W}val", ""))


def _whole(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else 0
