"""Write a passage as one line of text, for searches and for the LLM."""

import re
from collections.abc import Iterable, Sequence
from html import unescape
from itertools import zip_longest

from pyfast.utils.text_forms import NO_BREAK, shown_names

# Stars around words, as people write them: not 2*3*4, **kwargs, *.txt or a pointer in a program.
_EMPHASIS = re.compile(
    r"(?<![\w*\\/])(\*{1,3})(?=[\w\"'“‘«(\[`$€£])"
    r"([^*\n]*(?:\n[^*\n]+)*?)(?<=[^\s*\\(\[{<])\1(?![\w*/])"
)

# Code between fences, which can be in lists and quotes, and code in a line
_FENCED = (
    r"^[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})"
    r"(?:.*?^[ \t>]*(?P=fence)[`~]*[ \t\r]*$|.*)"
)
_FENCES = re.compile(_FENCED, re.DOTALL | re.MULTILINE)
# Code, and a comment within a line. Other comments, except those in code, were removed before.
_CODE_OR_COMMENT = re.compile(
    rf"(?P<code>{_FENCED}|(?<![`\\])(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))|(?<=\S)[ \t]*<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
_IN_CODE = {"*": "\udc2a", "&": "\udc26", "<": "\udc3c"}  # lone surrogates, which no stored text has
_HIDDEN = str.maketrans(_IN_CODE)
_SHIFT = re.compile(r"<(/?)(su[pb])>")
_ENTITY = re.compile(r"(?<!\\)&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});")

Fact = tuple[str, str, str, str | None]
"""The head, relation, tail and time of a triple."""

# Sequences for terminals: colours and moves, texts that end with BEL or ST, sets of characters, single letters.
# Searches would take `[31merror` for a word.
TERMINAL = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_k][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[ -/]{1,3}[0-~]|[6-9=>cDEHMNOZ\\])"
)
_LAST = "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
# NUL, U+0002 (PDF libraries write it for a hyphen), DEL, soft hyphens, zero-width spaces, word joiners, byte order
# marks and noncharacters stand within words. The others separate words. The first pattern matches every character
# of the second, and much faster.
_MAYBE_NO_TEXT = re.compile(
    r"[\x00-\x08\v\f\x0e-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffe-\U0010ffff]"
)
_NO_TEXT = re.compile(
    f"({TERMINAL}|{NO_BREAK}|[\\x00\\x02\\x7f\\xad\\u2060\\ufeff\\ufdd0-\\ufdef{_LAST}])"
    r"|[\x01-\x08\v\f\x0e-\x1f\x80-\x9f]"
)


def paragraph_line(title: str, text: str) -> str:
    """Write a paragraph as ``title. text``, without the title if it is empty or the text begins with it."""
    title, text = fold(title), fold(text)
    if not text:
        return title
    # A text that begins with `Agents` does not begin with the title `Age`.
    if text.startswith(title) and not (title[-1:].isalnum() and text[len(title) : len(title) + 1].isalnum()):
        return text
    return f"{title}. {text}"


def without_marks(text: str, fence: str = "") -> str:
    """Remove comments and the stars of emphasis from a Markdown text, such as those of `**bold**`, decode entities
    such as `&amp;`, and write raised and lowered texts (`<sup>`, `<sub>`) as `with_marks` does. Code and other
    marks stay, because in programs and names they mean something else. `fence` is the fence of the code in which
    the text begins.
    """
    if fence:
        text = f"{fence}\n{text}"
    if any(mark in text for mark in ("`", "~~~", "<!--")):
        text = _CODE_OR_COMMENT.sub(lambda found: (found["code"] or "").translate(_HIDDEN), text)
    for _ in range(2):  # Bold text may have italic text inside.
        if "*" not in text:
            break
        text = _EMPHASIS.sub(r"\2", text)
    text = _SHIFT.sub(lambda found: APART + SHIFTS[found[2]][bool(found[1])], text) if "<su" in text else text
    if "&" in text:
        text = _ENTITY.sub(lambda found: unescape(found[0]), text)
    text = with_marks(text)
    for mark, hidden in _IN_CODE.items():
        text = text.replace(hidden, mark)
    return text[len(fence) + 1 if fence else 0 :]


def fenced(text: str) -> list[tuple[int, int, str]]:
    """Find the code between fences in a Markdown text: where it begins and ends, and its fence."""
    if "```" not in text and "~~~" not in text:
        return []
    return [(found.start("fence"), found.end(), found["fence"]) for found in _FENCES.finditer(text)]


def row_line(title: str, section: str, header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a table row as ``title | section | header: cell | header: cell | ...``, without empty parts."""
    parts = [part for part in (title.strip(), section.strip()) if part]
    parts += [
        f"{name}: {cell}" if name else cell
        for name, cell in zip_longest(header, map(str.strip, cells), fillvalue="")
        if cell
    ]
    return fold(" | ".join(parts))


def table_line(title: str, section: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a whole table, with the header before the rows: ``title | section | name; name; ... | cell; cell;
    ...``."""
    lines = ["; ".join(map(fold, cells)) for cells in (header, *rows) if any(cells)]
    return fold(" | ".join([part for part in (title.strip(), section.strip()) if part] + lines))


def subgraph_line(facts: Sequence[Fact]) -> str:
    """Write triples with the same head: ``head relation tail; relation tail (time); ...``."""
    head, *tails = shown_names([facts[0][0], *(tail for _, _, tail, _ in facts)])
    parts = [
        f"{relation.replace('_', ' ')} {tail}" + (f" ({time})" if time else "")
        for (_, relation, _, time), tail in zip(facts, tails, strict=True)
    ]
    return fold(f"{head} {'; '.join(parts)}")


def linear_sentence(title: str, text: str) -> str:
    """Write a sentence as an evidence item of graph_convqa: ``title, text``."""
    return fold(", ".join([part for part in (title.strip(), text.strip()) if part]))


def linear_row(title: str, section: str, header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a table row as an evidence item: ``title, header cell, header cell, ...``, without empty parts. For an
    infobox: ``title, key, value``."""
    names = () if section.strip().lower() == "infobox" else header
    pairs = zip_longest(names, map(str.strip, cells), fillvalue="")
    return fold(", ".join([title.strip(), *[f"{name} {cell}".strip() for name, cell in pairs if cell]]))


def linear_fact(fact: Fact) -> str:
    """Write a triple as an evidence item: ``head, relation, tail``, and the time if it is known."""
    head, relation, tail, time = fact
    head, tail = shown_names((head, tail))
    parts = [head, relation.replace("_", " "), tail]
    return fold(", ".join([*parts, *([time] if time else [])]))


def fold(text: str) -> str:
    """Put a text on one line. Each line end, with the whitespace around it, becomes one space, and control
    characters are left out. A text that consists only of control characters becomes U+FFFD, so that its line is
    not empty."""
    if "\n" in text or "\r" in text:
        text = " ".join([line for line in map(str.strip, text.splitlines()) if line])
    text = text.strip()
    if text.isprintable():  # Almost every line is printable, and this is the cheapest check.
        return text
    return without_controls(text).strip() or "\ufffd"


def without_controls(text: str) -> str:
    """Leave out control characters other than tab and line end, soft hyphens and noncharacters. A control
    character that separates words becomes a space."""
    return _NO_TEXT.sub(lambda found: "" if found[1] else " ", text) if _MAYBE_NO_TEXT.search(text) else text


# Noncharacters, which no file has: around what is struck through, raised and lowered, and between two of them
_STRUCK, _HOLDS, _UP, _TOP, _DOWN, _BOTTOM, APART = map(chr, range(0xFDD0, 0xFDD7))
SHIFTS = {"sup": (_UP, _TOP), "sub": (_DOWN, _BOTTOM)}
"""The marks around a raised and a lowered text, for `with_marks`. Two such texts that follow each other belong
together, unless `APART` is between them"""
_MARKS = re.compile(f"[{_STRUCK}-{APART}]")
_STRUCK_ON = re.compile(f"{_HOLDS}(\\s*){_STRUCK}")
_BESIDE_STRUCK = re.compile(f"(?<=\\w){_STRUCK}|{_HOLDS}(?=\\w)")
_SHIFTED = re.compile(f"([{_UP}{_DOWN}])([^{_UP}-{_BOTTOM}]*)[{_TOP}{_BOTTOM}]")
_FRACTION = re.compile(f"(\\w?){_UP}(\\d+){_TOP}([/\u2044]){_DOWN}(\\d+){_BOTTOM}")
_BEFORE = 40
_MOST_NESTED = 20
_SIGN, _LETTER = "[-+\u2212]", r"[^\W\d_]"
_NUMBER = re.compile(rf"{_SIGN}?\d")
# A letter is raised where it is a power: 10^n, (1+r)^t, e^x. Not so in 2nd, 1er, 2e and n\xba.
_LETTERS = re.compile(rf"{_SIGN}?(?![eo]\b){_LETTER}(?:\s*[-+\u2212*/,]\s*\w+)*")
_POWER = re.compile(r"[\d)\]}]$")
_VARIABLE = re.compile(rf"(?<![^\W_]){_LETTER}$")
_OF_CAPITAL = ("n", "k", "T")
# The marks of footnotes behind a word: `a`, `a,b`, `*b`. Not so in XXe, as the French write a century.
_WORD = re.compile(rf"[^\W_]{_LETTER}$")
_STARS = r"[*\u2020\u2021\xa7\xb6#]"
_NOTE = rf"(?:{_STARS}*(?:{_LETTER}{{1,2}}|\d+){_STARS}*|{_STARS}+)"
_NOTES = re.compile(rf"(?=\W*{_LETTER}){_NOTE}(?:(?:\s*[-,;\u2013]\s*|\s){_NOTE})*\)?")
_ROMAN = re.compile(r"(?<![^\W_])(?:[IVX]{2,}|[ivx]{2,})$")
_ORDINAL = ("e", "er", "re", "th", "st", "nd", "rd")
_TRADE_MARKS = ("TM", "SM")
_BEFORE_NUMBER = re.compile(r"[\w.,;:!?%)\]}\"'\u2019\u201d\xbb]$")
# A single number or letter, the charge of an ion, or the marks of several footnotes
_SIMPLE = re.compile(rf"{_SIGN}?{_LETTER}|{_SIGN}?\d+(?:\s*[-.,;\u2013]\s*\d+)*{_SIGN}?|\([^()]*\)")
_OPERAND = rf"(?:\d+(?:\.\d+)?{_LETTER}{{0,2}}|{_LETTER}{{1,2}}\d?|\([^()]*\))(?:[\^_](?:[^\W_]+|\([^()]*\)))*"
_FORMULA = re.compile(rf"(?:{_SIGN}\s*)?{_OPERAND}(?:\s*[-+\u2212*/\xb7\xd7=,]\s*{_OPERAND})*")
_OPERATOR = re.compile(r"[-+\u2212*/\xb7\xd7=^]")


def struck(text: str) -> str:
    """Mark a text that is struck through, and so no longer holds, as Markdown does: `~~99 €~~`. The marks are
    written by `with_marks`."""
    said = text.strip()
    return text.replace(said, f"{_STRUCK}{said}{_HOLDS}") if said else text


def with_marks(text: str) -> str:
    """Write the marks of struck texts: one pair around neighbouring texts, separated from the words beside it.
    Write raised and lowered texts so that they do not become part of another number or of a word: `10^6`,
    `Rome^2`, `Yield^a`, `x^(n+1)`, `a_(i,j)`, but `2nd`, `XXe` and `H2O`."""
    if not _MARKS.search(text):
        return text
    text = _STRUCK_ON.sub(r"\1", text).replace(_TOP + _UP, "").replace(_BOTTOM + _DOWN, "").replace(APART, "")
    text = _FRACTION.sub(lambda it: f"{it[1]}{it[1] and ' '}{it[2]}{it[3]}{it[4]}", text)
    for _ in range(_MOST_NESTED):
        text, found = _SHIFTED.subn(_with_signs, text)
        if not found:
            break
    text = _STRUCK_ON.sub(r"\1", text)
    text = _BESIDE_STRUCK.sub(lambda found: f" {found[0]}" if found[0] == _STRUCK else f"{found[0]} ", text)
    return _MARKS.sub("", text.replace(_STRUCK, "~~").replace(_HOLDS, "~~"))


def _with_signs(found: re.Match[str]) -> str:
    """Write a `^` before a raised text, or a `_` before a lowered one, where the meaning changes without it."""
    start, end = found.span()
    before = _MARKS.sub("", found.string[max(start - _BEFORE, 0) : start])
    after = found.string[end : end + 2].lstrip(_STRUCK + _HOLDS)[:1]
    said = found[2].strip(f"{_STRUCK}{_HOLDS} \t\r\n")
    is_variable = bool(_VARIABLE.search(before))
    is_single, is_enclosed = bool(_SIMPLE.fullmatch(said)), said.startswith("(")
    if are_notes := bool(found[1] == _UP and _NOTES.fullmatch(said) and _WORD.search(before)):
        are_notes = is_single = not (after.isalnum() or (said in _ORDINAL and _ROMAN.search(before)))
    is_formula = not is_single and _FORMULA.fullmatch(said) and (_OPERATOR.search(said) or said[:1].isdigit())
    clashes = after.isdigit() and said[-1:].isdigit()
    if found[1] == _DOWN:
        is_formula = is_formula or (not is_single and "," in said and _FORMULA.fullmatch(said))
        in_number = before[-1:].isdigit() and said[:1].isdigit()
        sign = "_" if is_formula or in_number or clashes or (is_enclosed and is_variable) else ""
    else:
        is_power = bool(_POWER.search(before))
        of_letter = is_variable and (before[-1:].islower() or said in _OF_CAPITAL)
        is_raised = (
            are_notes
            or ((_NUMBER.match(said) or said in _TRADE_MARKS) and _BEFORE_NUMBER.search(before))
            or (_LETTERS.fullmatch(said) and (is_power or of_letter))
            or ((is_formula or is_enclosed) and (is_power or is_variable))
        )
        sign = "^" if is_raised else ""
    is_grouped = sign and not is_enclosed and (is_formula or clashes)
    return found[2].replace(said, f"{sign}({said})" if is_grouped else sign + said, 1) if said else found[2]
