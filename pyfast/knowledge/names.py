"""Names of entities and relations: when two are the same, when one stands in a text, how a prompt shows it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

MAX_WORDS = 12  # in a name that is looked for in a text
# Two letters or digits of one word. Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer names stand in words.
_IN_WORD = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]{2}")


def tidy(name: str) -> str:
    """A name on one line, with single spaces."""
    return " ".join(name.split())


def name_key(name: str) -> str:
    """What names of one entity have in common: no case, no accents' encodings, no spaces at the ends."""
    return tidy(unicodedata.normalize("NFKC", name)).casefold()


def is_named_in(key: str, text: str) -> bool:
    """Whether a name is in a text, both as `name_key` makes them: as whole words, if its script has such."""
    at = text.find(key)
    while at >= 0 and any(_IN_WORD.fullmatch(text, max(end - 1, 0), end + 1) for end in (at, at + len(key))):
        at = text.find(key, at + 1)
    return at >= 0


def words_of(name: str) -> str:
    """The words of a name or text as `name_key` has them, without punctuation around them and the possessive."""
    return " ".join(filter(None, map(_bare, name_key(name).split())))


def _bare(word: str) -> str:
    kept = [at for at, character in enumerate(word) if character.isalnum()]
    return word[kept[0] : kept[-1] + 1].removesuffix("'s").removesuffix("’s") if kept else ""


def named_in(text: str, by_words: Mapping[str, Sequence[int]]) -> list[int]:
    """Of things by the words of their names those that a text names: the longest names, none inside another."""
    words = words_of(text).split()
    places: set[int] = set()
    at = 0
    while at < len(words):
        for stop in range(min(at + MAX_WORDS, len(words)), at, -1):
            if named := by_words.get(" ".join(words[at:stop])):
                places.update(named)
                at = stop - 1
                break
        at += 1
    return sorted(places)


def escape_name(name: str) -> str:
    """A name within a line that an LLM reads: it cannot end the line, nor its own place between two `|`."""
    return tidy(name).replace("|", "/")


def relation_name(name: str) -> str:
    """`starred_actors` as a reader says it: `starred actors`."""
    return tidy(name.replace("_", " "))
