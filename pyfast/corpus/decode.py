"""One hierarchical sequence back into the documents it was made of."""

from pyfast.corpus.documents import Document
from pyfast.corpus.sequence import Corpus


def decode(corpus: Corpus) -> list[Document]:
    """The documents, in order, equal to those encoded: every character, row, header, link and triple."""
    return [corpus.document(source) for source in range(corpus.documents)]
