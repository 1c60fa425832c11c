"""Make parts of an index that have only the documents that a filter or a question chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyfast.errors import InputError
from pyfast.retrieval.filters import Condition, fitting_documents, with_fitting_triples
from pyfast.retrieval.forward_index import Mask
from pyfast.retrieval.making import make_part
from pyfast.retrieval.parts import Part
from pyfast.retrieval.passage_size import PassageSize
from pyfast.retrieval.passage_vectors import with_vectors
from pyfast.retrieval.uris import find_documents


def fitting_parts(
    parts: Sequence[Part], live: Sequence[Mask], conditions: Sequence[Condition], parameters: Mapping[str, Any]
) -> tuple[list[Part], list[Mask]]:
    """Return the parts, and for each part a mask of the documents that are not deleted and meet all conditions.

    If a condition is about `time`, the result has a new part after each part. The new part has the documents
    that the mask of the old part would choose, and the mask of the old part chooses none. In the new part, a
    knowledge graph has only the triples that meet all conditions on `time`.
    """
    fitting: list[Part] = []
    masks: list[Mask] = []
    is_timed = any(condition.key == "time" for condition in conditions)
    for part, alive in zip(parts, live, strict=True):
        mask = fitting_documents(part.corpus, conditions, alive)
        fitting.append(part)
        masks.append(mask)
        if is_timed:
            graphs = np.flatnonzero(mask)  # A document without a time is not selected.
            cut = [with_fitting_triples(part.corpus.document(source), conditions) for source in graphs.tolist()]
            mask[graphs] = False
            made = with_vectors(make_part(cut, PassageSize.of(parameters), part.analysis), parameters)
            fitting.append(made)
            masks.append(np.ones(made.corpus.documents, bool))
    return fitting, masks


def part_of(whole: Part, uris: Sequence[str], parameters: Mapping[str, Any]) -> Part:
    """Make a part from some documents of another part. The result equals a part made from only these documents.

    Raises `InputError` if one of the uris belongs to no document of `whole`.
    """
    wanted = list(dict.fromkeys(uris))
    found = find_documents(whole.corpus, whole.files, wanted)
    if len(found) < len(wanted):
        missing = next(uri for uri in wanted if uri not in found)
        raise InputError(f"documents: {missing!r} is not in the index")
    sources = np.array(sorted(found.values()), np.int64)
    documents = [whole.corpus.document(source) for source in sources.tolist()]
    part = make_part(documents, PassageSize.of(parameters), whole.analysis)
    if not whole.vectors:
        return part
    ends = np.append(whole.corpus.roots, len(whole.corpus))
    passages = np.asarray(whole.passages)
    rows = np.concatenate(
        [np.arange(*np.searchsorted(passages, ends[source : source + 2])) for source in sources.tolist()]
    )
    return replace(part, vectors={kind: matrix[rows] for kind, matrix in whole.vectors.items()})
