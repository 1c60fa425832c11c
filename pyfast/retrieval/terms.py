"""Terms: how texts become terms (the tokenizer, the stemmer and the stop words), the sorted terms of a part, the
counts of the terms of each passage for BM25, and the cell values of table rows as terms.

The terms and the arrays of a part are in files that are memory-mapped.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from threading import local
from typing import Any, get_args, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

import pyfast.ops as ops
import pyfast.retrieval.part_files as part_files
import pyfast.utils.stop_words as stop_words
from pyfast.errors import IndexFormatError, InputError
from pyfast.ops import Cells, TermCounts
from pyfast.ops.arrays import Int32, Int64, UInt8, UInt64, utf8
from pyfast.retrieval.part_files import CELLS, TERM_COUNTS, TERMS, Mask, below, fit_together, save_arrays
from pyfast.utils.blocks import MappedFolder, are_checked, check_lists, raw, write_array
from pyfast.utils.extras import explained
from pyfast.utils.options import Accents, StopWords, Tokenizer
from pyfast.utils.text_forms import compared, marks, words

TOKENS = "letters, digits and marks, NFKC, no accents, no zero-width spaces, C# and C++"
"""What the terms of the default analysis are, for the manifest of an index"""
# Scripts without blanks between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer. Each character is a term.
_UNSEPARATED = "\u0e01-\u0e30\u0e32\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0ebd-\u0ec6\u0edc-\u0edf"
_UNSEPARATED += (
    "\u1000-\u102a\u103f\u1780-\u17b3\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_of_this_thread = local()


@dataclass(frozen=True, slots=True)
class Analysis:
    """How texts and queries are divided into terms. The analysis is the same for all documents of an index,
    including documents that are added later.
    """

    tokenizer: Tokenizer = "words"
    """Which pieces of a text are terms. `words`: each word, and each digit or letter that stands alone.
    `characters`: each word, even a single digit, and each character of a script without blanks between words
    (Chinese, Japanese, Thai, Lao, Burmese, Khmer) by itself, with its signs
    """
    stemmer: str = "english"
    """The language of the Snowball stemmer, such as `english`. The stemmer reduces a word to its stem. `none`:
    words stay unchanged
    """
    stop_words: StopWords = "english"
    """The words that searches ignore: `english` (frequent English words) or `none`"""
    accents: Accents = "fold"
    """Whether words with and without accents are the same term: `fold` (`Beyonc\u00e9` is `beyonce`) or `keep`.
    Points of Arabic and Hebrew are accents
    """

    def __post_init__(self) -> None:
        """Raise `InputError` for an unknown tokenizer, stemmer or list of stop words."""
        for name, known in {"tokenizer": Tokenizer, "stop_words": StopWords, "accents": Accents}.items():
            if getattr(self, name) not in get_args(known):
                raise InputError(f"{name}: expected {' or '.join(get_args(known))}, got {getattr(self, name)!r}")
        usual = self.stemmer in ("none", "english")
        if not usual and self.stemmer not in (known := _snowball().algorithms()):
            raise InputError(f"stemmer: expected none or one of {', '.join(known)}, got {self.stemmer!r}")

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Analysis:
        """Return the analysis of an index, from the `parameters` in its manifest."""
        try:
            return cls(**parameters["analysis"])
        except (KeyError, TypeError):
            raise IndexFormatError("the index does not record how its terms were made; build it again") from None

    def form(self, text: str) -> str:
        """Return a text in the form in which its words are compared. Names such as C# and C++ get a word of their
        own, in addition to their letter."""
        form = compared(text, self.accents == "keep")
        if "#" in form or "+" in form:
            form = _SIGNED.sub(lambda it: f"{it[0]} {it[1]}{_SIGNS[it[2]]} ", form)
        return form

    def words(self, text: str) -> list[str]:
        """Return the words of a text, in order, with repetitions. They are not stemmed."""
        return words(self.form(text)) if self.tokenizer == "words" else _characters().findall(self.form(text))

    def tokens(self, text: str) -> list[str]:
        """Return the terms of a text, in order, with repetitions."""
        return self.stems(self.words(text))

    def stop(self, words: Iterable[str]) -> frozenset[str]:
        """Return the terms of these stop words. The result is empty if the setting `stop_words` is `none`."""
        return frozenset(() if self.stop_words == "none" else self.stems(list(words)))

    def stems(self, words: list[str]) -> list[str]:
        """Return the term of each word: its stem, or without a stemmer the word itself."""
        if self.stemmer == "none":
            return words
        stemmers: dict[str, Any] = _of_this_thread.__dict__  # A stemmer is not thread-safe.
        if self.stemmer not in stemmers:
            stemmers[self.stemmer] = _snowball().Stemmer(self.stemmer)
        return stemmers[self.stemmer].stemWords(words)


WORDS = Analysis()
"""The default analysis"""
_SIGNED = re.compile(r"(?<![^\W_])([a-z])(#|\+\+)(?![#+])")
_SIGNS = {"#": "sharp", "++": "plusplus"}


@cache
def _characters() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSEPARATED}][{marks()}]*|[^\W_{_UNSEPARATED}](?:[^\W_{_UNSEPARATED}]|[{marks()}])*")


def clauses_among(terms: Terms) -> float:
    """Return the share of terms that are whole clauses, because their script writes no spaces. It is estimated
    from some ten thousand terms."""
    some = terms[:: len(terms) // 10_000 or 1]
    return sum(map(bool, map(re.compile(f"[{_UNSEPARATED}]{{4}}").search, some))) / len(some) if some else 0.0


def _snowball() -> Any:
    with explained():
        import Stemmer
    return Stemmer


_PREFIX = 8  # bytes of a term's prefix
_AT_ONCE = 1 << 16  # terms in a block
_KEPT = 1 << 16  # the number of words whose term ids stay in memory, because questions repeat words


class Terms(Sequence[str]):
    """Distinct terms in alphabetical order. The number of a term is its column in the part's matrices."""

    def __init__(self, offsets: Int64, text: UInt8, prefixes: UInt64, files: MappedFolder | None = None) -> None:
        """Term i is the UTF-8 in `text` from `offsets[i]` to `offsets[i + 1]`.

        `prefixes` [terms] has the first eight bytes of each term.

        If the arrays are mapped from `files`, these files are checked as a whole when they are first read.
        """
        self._given, self._files, self._count = (offsets, text, prefixes), files, len(prefixes)
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, terms: Iterable[str]) -> Terms:
        """Make `Terms` from a sorted list."""
        return cls._made(*utf8(terms))

    @classmethod
    def _made(cls, offsets: Int64, text: UInt8) -> Terms:
        return cls(offsets, text, _prefixes(offsets, text))

    @classmethod
    def from_arrow(cls, terms: pa.LargeStringArray) -> Terms:
        """Make `Terms` from a sorted Arrow column."""
        if not len(terms):
            return cls.of([])
        _, offsets, text = terms.buffers()
        return cls._made(np.frombuffer(offsets, np.int64), np.frombuffer(text, np.uint8))

    def as_arrow(self) -> pa.LargeStringArray:
        """The terms as an Arrow column, without copying them."""
        offsets, text, _ = self._arrays
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(text))

    @classmethod
    def map(cls, files: MappedFolder) -> Terms:
        """Memory-map the terms in the folder of a part."""
        offsets, prefixes = (
            files.file(f"{TERMS}/{name}.npy").array(dtype)
            for name, dtype in (("offsets", np.int64), ("prefixes", np.uint64))
        )
        if len(offsets) != len(prefixes) + 1:
            raise IndexFormatError(f"{files.folder}: the term files do not match; build the index again")
        return cls(offsets, files.file(f"{TERMS}/text.bin").data, prefixes, files)

    def save(self, folder: Path) -> None:
        """Write the terms into a new folder in the folder of a part."""
        offsets, text, prefixes = self._arrays
        save_arrays(folder / TERMS, offsets=offsets, prefixes=prefixes)
        write_array(folder / TERMS / "text.bin", text)

    @cached_property
    def _arrays(self) -> tuple[Int64, UInt8, UInt64]:
        """The offsets, the text and the prefixes. If they are memory-mapped, they are checked first."""
        if self._files is not None:
            self._files.check_all(below(self._files, TERMS))
            offsets, text, _ = self._given
            if offsets[0] or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
                raise IndexFormatError(f"{self._files.folder}: the terms are damaged; build the index again")
        return self._given

    @property
    def has_prefixes(self) -> bool:
        """Whether the stored prefixes match the terms."""
        offsets, text, prefixes = self._arrays
        return np.array_equal(prefixes, _prefixes(offsets, text))

    @cached_property
    def _read(self) -> tuple[memoryview, memoryview]:
        offsets, text, _ = self._arrays
        return offsets.data, text.data

    def names(self, numbers: Int32 | Int64) -> list[str]:
        """Return the terms with these numbers. This is much faster than a call for each term."""
        numbers = np.ascontiguousarray(numbers, np.int32)
        # `pa.array` and `to_numpy` would import pandas.
        places = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        try:
            return self.as_arrow().take(places).to_pylist()
        except UnicodeDecodeError as error:
            raise IndexFormatError("the terms of the index are damaged; build it again") from error

    def bytes(self, number: int) -> bytes:
        """Return the term with this number, in UTF-8."""
        offsets, text = self._read
        return text[offsets[number] : offsets[number + 1]].tobytes()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return self.names(np.arange(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self.names(np.array([number % len(self)]))[0]

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _AT_ONCE):
            yield from self[first : first + _AT_ONCE]

    def find(self, words: Sequence[str]) -> Int32:
        """Find the number of each word. It is -1 if the word is not a term."""
        return np.array(self.numbers(words), np.int32)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Return what `find` returns, as a list."""
        known = self._known
        if missing := [word for word in dict.fromkeys(words) if word not in known]:
            if len(known) + len(missing) > _KEPT:
                known = self._known = {}
                missing = list(dict.fromkeys(words))
            known.update(zip(missing, self._search(missing), strict=True))
        return [known[word] for word in words]

    def _search(self, words: Sequence[str]) -> list[int]:
        """Find the number of each word by binary search. It is -1 if the word is not a term."""
        if not len(self):
            return [-1] * len(words)
        encoded = [word.encode(errors="replace") for word in words]
        wanted = np.array([one[:_PREFIX] for one in encoded], f"S{_PREFIX}").view(">u8").astype(np.uint64)
        prefixes = self._arrays[2]
        first = np.searchsorted(prefixes, wanted).tolist()
        last = np.searchsorted(prefixes, wanted, side="right").tolist()
        found = []
        for word, low, high in zip(encoded, first, last, strict=True):
            place = bisect_left(range(high), word, lo=low, key=self.bytes) if low < high else high
            found.append(place if place < high and self.bytes(place) == word else -1)
        return found


def _prefixes(offsets: Int64, text: UInt8) -> UInt64:
    """Return the first eight bytes of each term as a number."""
    place, prefixes = np.arange(_PREFIX), np.empty(len(offsets) - 1, np.uint64)
    for first in range(0, len(prefixes), _AT_ONCE):
        cuts = offsets[first : first + _AT_ONCE + 1]
        held = np.append(text[cuts[0] : cuts[-1]], np.zeros(_PREFIX, np.uint8))
        letters = held[(cuts[:-1] - cuts[0])[:, None] + place]
        letters[place >= np.diff(cuts)[:, None]] = 0
        prefixes[first : first + _AT_ONCE] = letters.view(">u8").ravel()
    return prefixes


_COUNTS: dict[str, tuple[type[np.generic], ...]] = {
    "indptr": (np.int64,),
    "documents": (np.int32,),
    "counts": (np.int32, np.uint8),
    "lengths": (np.int32,),
}
_OFFSETS = (np.int64, np.int32)
_CELLS = {"value_offsets": _OFFSETS, "term_offsets": _OFFSETS, "term_ids": (np.int32,)}
"""The arrays of term counts and of cell values, each with its types"""


def count_terms(texts: Iterable[str], analysis: Analysis = WORDS) -> tuple[csr_array, list[str]]:
    """Count the terms of texts. Returns the counts (a sparse float32 matrix, texts x terms, with sorted rows) and
    the term of each column.
    """
    split = analysis.tokenizer != "words"
    forms = (" ".join(analysis.words(text)) if split else analysis.form(text) for text in texts)
    offsets, columns, counts, words = ops.count_words(utf8(forms), separated=split)
    stems = analysis.stems(words)
    terms = sorted(set(stems))
    number = {term: i for i, term in enumerate(terms)}
    of_word = np.fromiter(map(number.__getitem__, stems), np.int32, len(stems))
    shape = len(offsets) - 1, len(terms)
    counted = csr_array((counts.astype(np.float32), of_word[columns], offsets), shape=shape)
    counted.sum_duplicates()  # Words with the same stem are one term.
    return counted, terms


def stop_columns(terms: Sequence[str], words: Iterable[str]) -> Mask:
    """Return for each term whether it is a stop word: bool[terms]."""
    stop = frozenset(words)
    if not isinstance(terms, Terms):
        return np.fromiter(map(stop.__contains__, terms), dtype=bool, count=len(terms))
    found = np.zeros(len(terms), dtype=bool)  # Finding a few words is faster than reading all terms.
    places = terms.find(list(stop))
    found[places[places >= 0]] = True
    return found


def without_terms(x: csr_array, terms: Sequence[str], words: Iterable[str]) -> csr_array:
    """Remove all entries of some words from `x`, whose columns are `terms`. The shape does not change."""
    keep = ~stop_columns(terms, words)[x.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return csr_array((x.data[keep], x.indices[keep], indptr), shape=x.shape)


def save_terms(folder: Path, terms: Terms, counts: TermCounts, cells: Cells) -> None:
    """Write the terms, the term counts and the cell values of table rows into the folder of a part."""
    terms.save(folder)
    save_arrays(folder / TERM_COUNTS, **{name: getattr(counts, name) for name in _COUNTS})
    save_arrays(folder / CELLS, **{name: getattr(cells, name) for name in _CELLS})


def open_terms(files: MappedFolder, passages: int) -> tuple[Terms, TermCounts, Cells]:
    """Memory-map what `save_terms` wrote. The terms and the cell values are checked when they are read."""
    terms = Terms.map(files)
    counts = _open_term_counts(files, passages, len(terms))
    values, ends, ids = (files.file(f"{CELLS}/{name}.npy").checked(*types) for name, types in _CELLS.items())
    fit_together(files, CELLS, values, passages)
    fit_together(files, CELLS, ends, int(values[-1]), ids)
    return terms, counts, Cells(values, ends, ids)


def _open_term_counts(files: MappedFolder, passages: int, terms: int) -> TermCounts:
    """Memory-map the term counts of a part.

    Only the lengths of passages are read and checked. Check the columns of the other arrays with `check_columns`
    before you read them.
    """
    opened = {name: files.file(f"{TERM_COUNTS}/{name}.npy") for name in _COUNTS}
    indptr, documents, counts, lengths = (file.array(*_COUNTS[name]) for name, file in opened.items())
    fit_together(files, TERM_COUNTS, indptr, terms, documents, counts)
    if len(lengths) != passages:
        raise IndexFormatError(f"{files.folder}: {TERM_COUNTS} does not match the passages; build the index again")
    file = opened["lengths"]
    file.check_all()
    if len(lengths) and lengths.min() < 0:
        raise IndexFormatError(f"{file.path} is damaged: a length is negative; build the index again")
    return TermCounts(indptr, documents, counts, lengths)


def check_columns(files: MappedFolder, columns: Int32, *others: npt.NDArray[Any]) -> None:
    """Compare the term counts of some terms with their checksums. `columns` contains the numbers of the terms in
    the part.

    The arrays `others` have an entry for each term count, and the entries of these terms are compared too. Raises
    `IndexFormatError` if an entry is damaged.
    """
    indptr, documents, counts = (
        files.file(f"{TERM_COUNTS}/{name}.npy").checked(*_COUNTS[name])
        for name in ("indptr", "documents", "counts")
    )
    check_lists(indptr, columns, documents, counts, *others)


def cell_terms(rows: Iterable[Sequence[str]], vocabulary: Mapping[str, int], analysis: Analysis = WORDS) -> Cells:
    """Return the cell values of each passage as term ids, without stop words. A passage of text has no cell
    values."""
    stop = analysis.stop(stop_words.ENGLISH)
    value_offsets, term_offsets, ids = array("q", [0]), array("q", [0]), array("i")
    for cells in rows:
        for cell in cells:
            ids.extend(vocabulary[word] for word in analysis.tokens(cell) if word not in stop)
            term_offsets.append(len(ids))
        value_offsets.append(len(term_offsets) - 1)
    values, terms = (np.array(some, part_files.offset_type(some[-1])) for some in (value_offsets, term_offsets))
    return Cells(values, terms, np.array(ids, np.int32))


def cells_of(cells: Cells, passages: npt.NDArray[Any]) -> Cells:
    """Return all cell values in the form that ops read. Only those of the given passages are checked first."""
    values, terms, ids = cells.value_offsets, cells.term_offsets, cells.term_ids
    check_lists(values, passages, terms)
    first, last = raw(values)[passages], raw(values)[passages + 1]
    some = first < last
    if some.any() and not are_checked(terms, ids):
        check_lists(terms, np.concatenate(list(map(np.arange, first[some], last[some]))), ids)
    return Cells(raw(values), raw(terms), raw(ids))
