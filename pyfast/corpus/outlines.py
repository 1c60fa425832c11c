"""Store outlines (the headings, pages and metadata of texts), and find the metadata at a position in a text."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from pyfast.corpus.documents import NO_OUTLINE, Heading, Outline
from pyfast.corpus.rendering import fold

LONGEST = 500
"""The maximum number of characters of the title and the headings in the line of a passage"""


def outline_json(outline: Outline, headings: Sequence[Heading] = ()) -> str:
    """Write an outline as JSON. `headings` are those of the text, also if the outline does not have them because
    pyfast has found them. If there is nothing to write, the result is an empty text."""
    if not headings and (outline is NO_OUTLINE or outline == NO_OUTLINE):
        return ""
    fields = {"headings": outline.headings, "pages": outline.pages, "aside": outline.aside, "about": outline.about}
    if outline.headings is None:
        fields["found"] = tuple(headings)
    return json.dumps({name: value for name, value in fields.items() if value not in ((), "")}, ensure_ascii=False)


def parse_outline(stored: str) -> tuple[Outline, tuple[Heading, ...]]:
    """Read (outline, headings of the text) from the JSON that `outline_json` wrote."""
    if not stored:
        return NO_OUTLINE, ()
    fields = json.loads(stored)
    headings = fields.get("headings", ())
    outline = Outline(
        headings=None if headings is None else tuple(Heading(*heading) for heading in headings),
        pages=tuple(fields.get("pages", ())),
        aside=tuple((start, end) for start, end in fields.get("aside", ())),
        about=fields.get("about", ""),
    )
    return outline, outline.headings or tuple(Heading(*heading) for heading in fields.get("found", ()))


class Headlines:
    """The headings of a text, each with those above it, as one text such as `Service manual > Warranty period`.

    `left_out` has the numbers of the headings that are not whole in some of these texts, because the texts would
    be too long. These headings are passages of their own, so that searches find their words.
    """

    def __init__(self, title: str, headings: Sequence[Heading]) -> None:
        self.headings = headings
        self.left_out: set[int] = set()
        self._title = title = fold(title)
        self._starts = [heading.start for heading in headings]
        self._ends = [heading.end for heading in headings]
        self._paths: list[str] = []
        self._above_long: dict[int, str] = {}
        above: list[tuple[int, int, str]] = [(0, -1, title)] if title else []
        for number, heading in enumerate(headings):
            above = [other for other in above if other[0] < heading.depth]
            text = fold(heading.text)
            if len(text) > LONGEST // 2:
                self.left_out.add(number)
                self._above_long[number] = self._path(above)
                text = f"{text[: LONGEST // 2]}…"
            if text and text != title:
                above.append((heading.depth, number, text))
            self._paths.append(self._path(above))

    def at(self, start: int, end: int) -> tuple[str, bool]:
        """Return the title and the headings above the characters from `start` to before `end`, and whether the
        last of these headings is all that these characters say.

        A heading that is too long is like a paragraph: the headings above it come without it.
        """
        number = bisect_right(self._starts, start) - 1
        if number < 0:
            return self._title, False
        is_heading = start < end <= self._ends[number]
        if is_heading and number in self._above_long:
            return self._above_long[number], False
        return self._paths[number], is_heading

    def _path(self, above: list[tuple[int, int, str]]) -> str:
        """Join a title and headings. If they are too long, the headings in the middle are left out: the title and
        the last heading tell most."""
        texts = [text for _, _, text in above]
        while sum(map(len, texts)) > LONGEST and len(texts) > 2:
            self.left_out.add(above[len(above) - len(texts) + 1][1])
            texts = [texts[0], *texts[2:]]
        return " > ".join(texts)


def metadata_at(outline: Outline, headings: Sequence[Heading], place: int) -> dict[str, Any]:
    """Return the metadata at the character `place` of a text: the metadata of the document, the character's
    `page` (from 1), and the `headings` above it.
    """
    metadata: dict[str, Any] = json.loads(outline.about) if outline.about else {}
    if outline.pages:
        metadata["page"] = bisect_right(outline.pages, place)
    if above := headings_above(headings, place + 1):
        metadata["headings"] = [heading.text for heading in above]
    return metadata


def section_at(headings: Sequence[Heading], place: int, title: str) -> str:
    """Name the section at the character `place` of a text: the headings above it, the highest first, with ` > `
    between them. A heading that repeats the title is left out.
    """
    return " > ".join(it.text for it in headings_above(headings, place) if it.text not in ("", title))


def headings_above(headings: Sequence[Heading], place: int) -> list[Heading]:
    """Return the headings of the section that the character before `place` is in, the highest first."""
    above: list[Heading] = []
    for heading in headings:
        if heading.start >= place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    return above
