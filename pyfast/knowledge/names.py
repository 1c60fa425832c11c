"""Names of entities and relations: compare them, find them in a text, and escape them for prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyfast.utils.text_forms import name_form

MAX_WORDS = 12  # the maximum number of words in a name that is searched for in a text
# Two letters or digits of one word. Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer do not separate words.
_IN_WORD = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]{2}")


def tidy(name: str) -> str:
    """Write a name on one line, with single spaces."""
    return " ".join(name.split())


def name_key(name: str) -> str:
    """Return the form of a name for comparisons: the form of words (`text_forms.compared`), with spaces for
    underscores, single spaces, and no spaces at the ends."""
    return name_form(name)


def is_named_in(key: str, text: str) -> bool:
    """Whether a text contains a name.

    Name and text must have the form of `name_key`. The name must not begin or end inside a word of the text.
    (In writing systems without spaces, such as Chinese, a name can begin and end anywhere.)
    """
    at = text.find(key)
    while at >= 0 and any(_IN_WORD.fullmatch(text, max(end - 1, 0), end + 1) for end in (at, at + len(key))):
        at = text.find(key, at + 1)
    return at >= 0


def words_of(name: str) -> str:
    """Return the words of a name or text, without punctuation or possessive endings. The words have the form
    of `name_key`."""
    return " ".join(filter(None, map(_bare, name_key(name).split())))


def _bare(word: str) -> str:
    kept = [at for at, character in enumerate(word) if character.isalnum()]
    return word[kept[0] : kept[-1] + 1].removesuffix("'s").removesuffix("’s") if kept else ""


def named_in(text: str, by_words: Mapping[str, Sequence[int]]) -> list[int]:
    """Find the names that occur in a text. `by_words` maps each name (in the form of `words_of`) to numbers, such
    as the numbers of the entities with this name. Returns the numbers of all names that were found, ascending.

    If two names begin at the same word, only the longer name is found. Names inside this name are not found.
    """
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
    """Replace line ends with spaces and `|` with `/` in a name, because line ends and `|` have a meaning in
    prompts."""
    return tidy(name).replace("|", "/")


def relation_name(name: str) -> str:
    """Write a relation in words: `starred_actors` becomes `starred actors`."""
    return tidy(name.replace("_", " "))
