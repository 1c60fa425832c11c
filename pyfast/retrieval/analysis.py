"""How the texts of an index become terms: the tokenizer, the stemmer and the stop words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import local
from typing import Any, get_args

from pyfast.errors import InputError
from pyfast.extras import explained
from pyfast.options import Accents, StopWords, Tokenizer
from pyfast.text_forms import compared, marks, words

TOKENS = "letters, digits and marks, NFKC, no accents"
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
    `characters`: each word of any length, and each character of a script without blanks between words (Chinese,
    Japanese, Thai, Lao, Burmese, Khmer) by itself, with its signs
    """
    stemmer: str = ""
    """The language of the Snowball stemmer, such as `english`. The stemmer reduces a word to its stem. Empty:
    no stemmer, words stay unchanged
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
        if self.stemmer and self.stemmer not in (known := _snowball().algorithms()):
            raise InputError(f"stemmer: expected one of {', '.join(known)}, got {self.stemmer!r}")

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Analysis:
        """Return the analysis of an index, from the `parameters` in its manifest. If the parameters have no
        analysis, the result is the default analysis.
        """
        return cls(**parameters.get("analysis", {}))

    @property
    def is_default(self) -> bool:
        """Whether all settings of the analysis are the defaults."""
        return self == Analysis()

    def form(self, text: str) -> str:
        """Return a text in the form in which its words are compared."""
        return compared(text, self.accents == "keep")

    def tokens(self, text: str) -> list[str]:
        """Return the terms of a text, in order, with repetitions."""
        form = self.form(text)
        found = words(form) if self.tokenizer == "words" else _characters().findall(form)
        return self._stems(found) if self.stemmer else found

    def stop(self, words: Iterable[str]) -> frozenset[str]:
        """Return the terms of these stop words: their stems, if the analysis has a stemmer, otherwise the
        words.

        The result is empty if the setting `stop_words` is `none`.
        """
        if self.stop_words == "none":
            return frozenset()
        return frozenset(self._stems(list(words)) if self.stemmer else words)

    def _stems(self, words: list[str]) -> list[str]:
        stemmers: dict[str, Any] = _of_this_thread.__dict__  # A stemmer is not thread-safe.
        if self.stemmer not in stemmers:
            stemmers[self.stemmer] = _snowball().Stemmer(self.stemmer)
        stems: list[str] = stemmers[self.stemmer].stemWords(words)
        return stems


WORDS = Analysis()
"""The default analysis"""


def tokenize(text: str) -> list[str]:
    """Divide a text into words, in the form in which words are compared: `text_forms.words` of
    `text_forms.compared`."""
    return words(compared(text))


def term_ids(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Find the term ids of a text's words, in order, with repetitions. Words without an id are left out."""
    return [i for i in map(vocabulary.get, tokenize(text)) if i is not None]


@cache
def _characters() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSEPARATED}][{marks()}]*|[^\W_{_UNSEPARATED}](?:[^\W_{_UNSEPARATED}]|[{marks()}])*")


def _snowball() -> Any:
    with explained():
        import Stemmer
    return Stemmer
