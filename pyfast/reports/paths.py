"""The path of a question: in which steps gold passages were found, and where they were lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyfast.systems.traces import Listed, Step


@dataclass(frozen=True, slots=True)
class GoldPath:
    """In which steps a gold document was found, and where it was lost."""

    uri: str
    ranks: tuple[tuple[str, str, int | None, int], ...]
    """(step, name of the list, rank of the document from 1, length of the list) for each list, in the order
    of the path. The rank is None if the list does not have the document"""
    outcome: str
    """A sentence that says where the document was found or lost"""
    reached: bool
    """Whether the document is in the evidence of the answer"""
    lost: int | None = None
    """The index in `ranks` of the list that lost the document. None if the document reached the answer, or if
    no step retrieved it
    """
    found_again: tuple[tuple[int, str], ...] = ()
    """(index in `ranks`, step) for each list that lost the document, if a later step found the document
    again. `step` is the name of the next step that found it
    """


def gold_paths(steps: Sequence[Step], uris: Iterable[str], uri_of: Mapping[str, str]) -> list[GoldPath]:
    """Find out in which step each gold document was found or lost. `uri_of` has the uri of each segment in
    the steps, by the segment's id.
    """
    wanted = dict.fromkeys(uris)
    followed = {id: uri for id, uri in uri_of.items() if uri in wanted}
    lists = []
    for step in steps:
        for each in step.lists:
            ranks = dict[str, int]()  # of the first segment of each document
            for rank, id in enumerate(each.segments, start=1):
                if id in followed:
                    ranks.setdefault(followed[id], rank)
            lists.append((step.name, each, ranks))
    return [_gold_path(lists, uri) for uri in wanted]


def _gold_path(lists: Sequence[tuple[str, Listed, dict[str, int]]], uri: str) -> GoldPath:
    ranks = tuple((step, each.name, rank_of.get(uri), len(each.segments)) for step, each, rank_of in lists)
    seen = [place for place, (_, _, rank, _) in enumerate(ranks) if rank is not None]
    if not seen:
        return GoldPath(uri, ranks, "no step retrieved it", False)
    again = _found_again(lists, ranks, seen)
    step, name, rank, size = ranks[seen[-1]]
    if seen[-1] == len(ranks) - 1:
        return GoldPath(uri, ranks, f"reached the answer, at rank {rank} of {size}", True, found_again=again)
    lost = next(place for place in range(seen[-1] + 1, len(ranks)) if lists[place][1].chosen)
    where, kept, _, _ = ranks[lost]
    had = f"rank {rank} of {size} in {name}" + ("" if where == step else f" of {step}")
    first, _, best, _ = ranks[seen[0]]
    came = "" if first == step else f"first in {first}, at rank {best}; "
    if len(again) == 1:
        came += f"lost in {ranks[again[0][0]][0]}, found again in {again[0][1]}; "
    elif again:
        came += f"lost and found again {len(again)} times; "
    return GoldPath(uri, ranks, f"{came}lost in {where}: {had}, not in {kept}", False, lost, again)


def _found_again(
    lists: Sequence[tuple[str, Listed, dict[str, int]]],
    ranks: Sequence[tuple[str, str, int | None, int]],
    seen: Sequence[int],
) -> tuple[tuple[int, str], ...]:
    """Return the lists that lost a document that a later step found again, as in `GoldPath.found_again`. A
    list can lose a document only if an earlier list of the same step has this document. After a step has kept
    the document, later losses are not in the result.
    """
    found = []
    for place in range(1, seen[-1]):
        step, chosen = ranks[place][0], lists[place][1].chosen
        if chosen and ranks[place][2] is not None:
            break
        if chosen and any(ranks[before][0] == step for before in seen if before < place):
            found.append((place, next(ranks[after][0] for after in seen if after > place)))
    return tuple(found)
