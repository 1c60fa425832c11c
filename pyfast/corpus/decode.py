"""Turn a corpus back into its documents."""

from pyfast.corpus.documents import Document
from pyfast.corpus.sequence import Corpus


def decode(corpus: Corpus) -> list[Document]:
    """Turn a corpus back into its documents (HSEQ, theorem 1).

    Args:
        corpus: A corpus from `encode`.

    Returns:
        The documents in order. They equal the encoded documents in every character, row, header, link and triple.

    Example:
        >>> from pyfast.corpus import KnowledgeGraph, Triple, decode, encode
        >>> facts = KnowledgeGraph("facts", "Facts", (Triple("Titan", "orbits", "Saturn"),))
        >>> decode(encode([facts])) == [facts]
        True
    """
    return [corpus.document(source) for source in range(corpus.documents)]
