"""Outlines of texts: as they are stored, and what they say of a place in the text."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any

from pyfast.corpus.documents import NO_OUTLINE, Outline
from pyfast.corpus.sections import Heading


def outline_json(outline: Outline) -> str:
    """An outline as it is stored; empty for none."""
    if outline == NO_OUTLINE:
        return ""
    said = {"headings": outline.headings, "pages": outline.pages, "aside": outline.aside, "about": outline.about}
    return json.dumps({name: value for name, value in said.items() if value not in ((), "")}, ensure_ascii=False)


def parse_outline(stored: str) -> Outline:
    """The outline that was stored."""
    if not stored:
        return NO_OUTLINE
    said = json.loads(stored)
    headings = said.get("headings", ())
    return Outline(
        headings=None if headings is None else tuple(Heading(*heading) for heading in headings),
        pages=tuple(said.get("pages", ())),
        aside=tuple((start, end) for start, end in said.get("aside", ())),
        about=said.get("about", ""),
    )


def metadata_at(outline: Outline, place: int) -> dict[str, Any]:
    """What an outline says of a character: the document's own words, `page` and `headings`."""
    found: dict[str, Any] = json.loads(outline.about) if outline.about else {}
    if outline.pages:
        found["page"] = bisect_right(outline.pages, place)
    above: list[Heading] = []
    for heading in outline.headings or ():
        if heading.start > place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    if above:
        found["headings"] = [heading.text for heading in above]
    return found
