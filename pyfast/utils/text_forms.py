"""The forms in which searches, graphs, links between facts, and filters compare words and names (stored texts
never change), and forms of numbers and names in messages."""

from __future__ import annotations

import codecs
import re
import string
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache

# Characters that need more than lower-casing, with the ASCII character before them, which may carry a mark.
_WITH_BASE = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")


def counted(number: int, one: str, several: str = "") -> str:
    """Write a number with its noun, as in `1 question`. `several` is the plural; empty: `one` with an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def some(names: Sequence[str], most: int = 5, where: str = "") -> str:
    """List the first `most` names for a message, with the number of the others and `where` to find them all.

    Example:
        >>> from pyfast.utils.text_forms import some
        >>> some(["q1", "q2", "q3"], 2, "--json")
        'q1, q2 and 1 more (--json)'
    """
    shown, left = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {left} more{where and f' ({where})'}" if left > 0 else shown


def compared(text: str, accents: bool = False) -> str:
    """Return the form of a text for comparisons: one Unicode form (NFKC), lower case, without accents.

    Accents are the nonspacing marks of Latin, Greek, Cyrillic, Hebrew and Arabic letters, including the points of
    Hebrew and Arabic. The signs of other scripts, such as the vowels of Devanagari and Thai, are kept, because
    readers see them as letters. Joiners and other invisible characters are removed.

    Args:
        text: A text.
        accents: Whether to keep the accents.

    Returns:
        The form. For an ASCII text, this is the text in lower case.

    Example:
        >>> from pyfast.utils.text_forms import compared
        >>> compared("Beyonce\u0301 DUFR\u00caNE"), compared("Beyonce\u0301", accents=True)
        ('beyonce dufrene', 'beyonc\u00e9')
    """
    if text.isascii():
        return text.lower()
    if accents:
        return _WITH_BASE.sub(lambda found: _form_of(found[0], True), text.lower())
    return text.lower().encode("ascii", "pyfast.form").decode("utf-8", "surrogatepass")


def _form_of(text: str, accents: bool) -> str:
    return _short_form(text, accents) if len(text) < 8 else _form(text, accents)


def _encoded_form(error: UnicodeError) -> tuple[bytes, int]:
    """Encode the form of the characters that are not ASCII, which the encoder finds much faster than a pattern
    does."""
    assert isinstance(error, UnicodeEncodeError)
    form = _form_of(error.object[error.start : error.end], False)
    return form.encode("utf-8", "surrogatepass"), error.end


codecs.register_error("pyfast.form", _encoded_form)


# Powers and footnote marks, but not units such as `km²`. NFKC alone would turn `10⁶` into the number 106.
_DIGITS = "\u2070\xb9\xb2\xb3\u2074-\u2079"
_RAISED = re.compile(
    rf"(?:(?<!\bm)(?<!\b[kcdmn]m)(?<!\b(?:ft|in|mi|yd))[\xb2\xb3]|[\u2070\xb9\u2074-\u2079])[{_DIGITS}]*"
)


# A zero-width space, except between words of scripts without blanks: Thai, Lao, Burmese, Khmer, Chinese, Japanese
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
NO_BREAK = f"(?<![{_UNSPACED}])\u200b(?![{_UNSPACED}])"
"""A pattern for zero-width spaces within words, as in long names and addresses"""


def _form(text: str, accents: bool) -> str:
    text = re.sub(NO_BREAK, "", text) if "\u200b" in text else text
    text = unicodedata.normalize("NFKC", _RAISED.sub(r" \g<0>", text).translate(_apart())).casefold()
    if not accents:
        text = unicodedata.normalize("NFD", text).translate(_ACCENTS)
    return unicodedata.normalize("NFKC", text)


_short_form = lru_cache(1 << 14)(_form)  # Texts repeat the same short parts, such as an accented letter or a dash.


def name_form(name: str) -> str:
    """Return the form in which names are compared: that of `compared`, with blanks for underscores, and single
    blanks.

    Example:
        >>> from pyfast.utils.text_forms import name_form
        >>> name_form("Beyonc\u00e9_Knowles ")
        'beyonce knowles'
    """
    return " ".join(compared(name).replace("_", " ").split())


PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(answer: str) -> str:
    """Normalise an answer as the official scripts do, after composing letters and accents (NFC): lower case, no
    punctuation, no articles, single blanks.

    Args:
        answer: Any text.

    Returns:
        The normalised text.

    Example:
        >>> from pyfast.evaluation import normalise
        >>> normalise("The Hague!")
        'hague'
    """
    composed = unicodedata.normalize("NFC", answer)
    return " ".join(ARTICLES.sub(" ", composed.lower().translate(PUNCTUATION)).split())


def shown_names(names: Sequence[str]) -> Sequence[str]:
    """Make the names of a graph readable: `Barack_Obama` becomes `Barack Obama`.

    If one of the names has a blank, underscores do not stand for blanks, so all names stay unchanged. Addresses,
    file names and identifiers such as `MAX_SIZE` stay unchanged too.

    Example:
        >>> from pyfast.utils.text_forms import shown_names
        >>> shown_names(["Odda_FC", "odda_fc@x.org"]), shown_names(["Ada Lund", "ada_lund"])
        (['Odda FC', 'odda_fc@x.org'], ['Ada Lund', 'ada_lund'])
    """
    if not any("_" in name for name in names) or any(" " in name for name in names):
        return names
    return [name if _NO_NAME.search(name) else name.replace("_", " ") for name in names]


_NO_NAME = re.compile(r"^_|__|_$|[@\s\\=]|://|\.[a-z][a-z0-9]{0,4}$|^[A-Z0-9_]+$")


_MAYBE_MARKS = re.compile("[\u0300-\u1fff\u20d0-\u20ff\u2c00-\u33ff\ua000-\uabff\uf900-\U000e01ef]")
# Patterns that find the same words as `_words`, much faster, in texts without marks: `_ASCII_...` in ASCII texts.
_ALONE = r"(?<![{0}][0-9][.,][0-9])(?!(?<=[0-9])[.,][0-9][{0}])"
_OF_ASCII, _OF_PLAIN = "A-Za-z0-9", r"^\W_"
_ASCII_WORDS = re.compile(rf"[{_OF_ASCII}](?:[{_OF_ASCII}]+|(?<![{_OF_ASCII}]'.){_ALONE.format(_OF_ASCII)})")
_ASCII_RUNS = re.compile(f"[{_OF_ASCII}]+")
_PLAIN_WORDS = re.compile(
    rf"[{_OF_PLAIN}](?:[{_OF_PLAIN}]+|(?<![{_OF_PLAIN}]['\u2019].){_ALONE.format(_OF_PLAIN)})"
)


def words(text: str) -> list[str]:
    """Divide a text into words: runs of letters, digits and their combining characters.

    A single character is a word only if it stands alone, not as the end of a word such as `it's`, nor as a part of
    a number next to a longer part, such as the 1 of `1.50`. The parts of `7.4` and `1.2.3` are words.

    Example:
        >>> from pyfast.utils.text_forms import words
        >>> words("It's AT&T's Apollo_7: 3.5, 1.50 C++")
        ['It', 'AT', 'T', 'Apollo', '7', '3', '5', '50', 'C']
    """
    if text.isascii():
        # Without these characters, as in most questions, every run is a word.
        return (_ASCII_WORDS if "." in text or "," in text or "'" in text else _ASCII_RUNS).findall(text)
    return (_words(marks()) if _MAYBE_MARKS.search(text) else _PLAIN_WORDS).findall(text)


@cache
def _words(marks: str) -> re.Pattern[str]:
    of_word = rf"[^\W_]|[{marks}]"
    end = rf"(?<![^\W_]['\u2019])(?<![{marks}]['\u2019])"
    longer = rf"(?<![^\W_][0-9][.,])(?<![{marks}][0-9][.,])[0-9](?![.,][0-9](?:{of_word}))"
    return re.compile(rf"[^\W_](?:{of_word})+|{end}(?:{longer}|[^\W_0-9])")


@cache
def marks() -> str:
    """Return all combining characters of Unicode (the categories Mn, Mc and Me), in order."""
    assigned = (*range(0x300, 0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x20000), *range(0xE0100, 0xE01F0))
    return "".join(c for c in map(chr, assigned) if unicodedata.category(c)[0] == "M")


@cache
def _apart() -> dict[int, str | None]:
    """Return replacements for what NFKC treats in another way than comparisons need: symbols such as `™` and
    fractions, whose letters and digits it would join to the word beside them; invisible characters, which it
    keeps; and variants of digits and apostrophes, which it keeps apart."""
    apart: dict[int, str | None] = dict.fromkeys(_UNSEEN)
    for code in (*range(0xBC, 0xBF), *range(0x2100, 0x2190), *range(0x2460, 0x2500), *range(0x3200, 0x3400)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if (plain != chr(code) and unicodedata.category(chr(code)) == "So") or "\u2044" in plain:
            apart[code] = f" {plain} "
    # Characters that look like an apostrophe and that few keyboards have, then the digits of other scripts.
    apart |= dict.fromkeys((0x2BB, 0x2BC, 0x2018, 0x2019), "'")
    digits = (code for code in range(0x660, 0xABFA) if unicodedata.decimal(chr(code), None) is not None)
    return apart | {code: str(unicodedata.decimal(chr(code))) for code in digits}


def _codes(*ranges: tuple[int, int]) -> list[int]:
    return [code for first, last in ranges for code in range(first, last + 1)]


# Soft hyphen, grapheme joiner, joiners and direction marks, word joiner, variation selectors, byte order mark
_UNSEEN = _codes((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x200C, 0x200F), (0x202A, 0x202E)) + _codes(
    (0x2060, 0x2064), (0x2066, 0x2069), (0x180B, 0x180D), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xE0100, 0xE01EF)
)
# Marks of Latin and Greek, Cyrillic, Hebrew, and Arabic; then marks for all alphabets, and more Cyrillic ones
_OF_LETTERS = _codes((0x300, 0x36F), (0x483, 0x489), (0x591, 0x5C7), (0x610, 0x6ED), (0x8CA, 0x8FF)) + _codes(
    (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0x2DE0, 0x2DFF), (0xA66F, 0xA67D), (0xFE20, 0xFE2F)
)
_ACCENTS: dict[int, str | None] = {0x640: None}  # the sign that stretches an Arabic word
_ACCENTS.update((code, None) for code in _OF_LETTERS if unicodedata.category(chr(code)) in ("Mn", "Me"))
# Persian yeh and keheh, which an Arabic keyboard lacks
_ACCENTS.update({0x6CC: "\u064a", 0x6A9: "\u0643"})
# Letters with a stroke, and ligatures, which Unicode does not decompose
_ACCENTS.update(
    (ord(letter), plain)
    for letter, plain in zip("øłđħŧıæœþð", ("o", "l", "d", "h", "t", "i", "ae", "oe", "th", "d"), strict=True)
)
