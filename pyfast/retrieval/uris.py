"""Find the documents of a part by the hash of their uri."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyfast.blocks import MappedFolder, raw
from pyfast.corpus import Corpus
from pyfast.corpus.sequence import hash_uris
from pyfast.errors import IndexFormatError
from pyfast.retrieval.part_files import URIS, save_arrays


def save_uris(folder: Path, documents: pa.RecordBatch) -> None:
    """Write the sorted hashes of a part's uris, and the document of each hash, into the part's folder."""
    hashes = np.asarray(documents.column("hash"))
    order = np.argsort(hashes, kind="stable")
    save_arrays(folder / URIS, hashes=hashes[order], documents=order.astype(np.int32))


def shared_document(corpus: Corpus, files: MappedFolder) -> str:
    """Find a uri that a document of the corpus and a document of a part both have. Returns "" if there is
    none. `files` are the files of the part.
    """
    hashes = files.file(f"{URIS}/hashes.npy").array(np.uint64)
    wanted = np.asarray(corpus.document_table.column("hash"))
    if len(hashes) and len(wanted):
        places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        for document in np.flatnonzero(hashes[places] == wanted).tolist():
            uri = corpus.uri(document)
            if find_documents(Corpus.mapped(files), files, [uri]):
                return uri
    return ""


def find_documents(corpus: Corpus, files: MappedFolder | None, uris: Sequence[str]) -> dict[str, int]:
    """Find the documents of a part that have these uris. Returns their numbers in the part, by uri. Unknown
    uris are left out. The function reads only a few blocks of the files.
    """
    if files is None:
        return {uri: at for uri in uris if (at := corpus.find(uri)) is not None}
    hashes = files.file(f"{URIS}/hashes.npy").checked(np.uint64)
    documents = files.file(f"{URIS}/documents.npy").checked(np.int32)
    if not len(hashes) == len(documents) == corpus.documents:
        raise IndexFormatError(f"{files.folder}: {URIS} is of other documents; build the index again")
    if not len(hashes):
        return {}
    wanted = hash_uris(uris)
    places = np.searchsorted(raw(hashes), wanted)
    # The search reads some values unchecked. It was right if checked neighbours enclose what it looked for.
    before, after = hashes[np.maximum(places - 1, 0)], hashes[np.minimum(places, len(hashes) - 1)]
    if (((before >= wanted) & (places > 0)) | ((after < wanted) & (places < len(hashes)))).any():
        files.check_all([f"{URIS}/hashes.npy"])
        raise IndexFormatError(f"{files.folder}: {URIS} is damaged; build the index again")
    found = {}
    for uri, place, is_there in zip(uris, places.tolist(), (after == wanted).tolist(), strict=True):
        if is_there:
            document = int(documents[place])
            if not 0 <= document < corpus.documents or corpus.uri(document) != uri:
                raise IndexFormatError(f"{files.folder}: {URIS} is damaged; build the index again")
            found[uri] = document
    return found
