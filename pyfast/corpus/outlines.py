"""Store outlines (the headings, pages and metadata of texts), and find the metadata at a position in a text."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any

from pyfast.corpus.documents import NO_OUTLINE, Outline
from pyfast.corpus.sections import Heading


def outline_json(outline: Outline) -> str:
    """Write an outline as JSON. If the outline has no content, the result is an empty text."""
    if outline is NO_OUTLINE or outline == NO_OUTLINE:
        return ""
    fields = {"headings": outline.headings, "pages": outline.pages, "aside": outline.aside, "about": outline.about}
    return json.dumps({name: value for name, value in fields.items() if value not in ((), "")}, ensure_ascii=False)


def parse_outline(stored: str) -> Outline:
    """Read an outline from the JSON that `outline_json` wrote."""
    if not stored:
        return NO_OUTLINE
    fields = json.loads(stored)
    headings = fields.get("headings", ())
    return Outline(
        headings=None if headings is None else tuple(Heading(*heading) for heading in headings),
        pages=tuple(fields.get("pages", ())),
        aside=tuple((start, end) for start, end in fields.get("aside", ())),
        about=fields.get("about", ""),
    )


def metadata_at(outline: Outline, place: int) -> dict[str, Any]:
    """Return the metadata at the character `place` of a text: the metadata of the document, the character's
    `page` (from 1), and the `headings` above it.
    """
    metadata: dict[str, Any] = json.loads(outline.about) if outline.about else {}
    if outline.pages:
        metadata["page"] = bisect_right(outline.pages, place)
    above: list[Heading] = []
    for heading in outline.headings or ():
        if heading.start > place:
            break
        above = [other for other in above if other.depth < heading.depth] + [heading]
    if above:
        metadata["headings"] = [heading.text for heading in above]
    return metadata
