"""Read HTML. Headings, lists and tables are kept. Scripts, styles, navigation, footers, hidden text and link
targets are left out.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from itertools import chain, cycle, pairwise, takewhile, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyfast.corpus.documents import Document, Unread, depth_within
from pyfast.corpus.formats.drawings import fraction, grouped
from pyfast.corpus.formats.files import guessed, not_text, refuse_binary
from pyfast.corpus.grids import TableParts, Text, alternative, written
from pyfast.corpus.rendering import APART, SHIFTS, struck, with_marks
from pyfast.errors import InputError

_LEFT_OUT = frozenset(("script", "style", "noscript", "template", "nav", "footer", "svg", "head", "iframe"))
_LEFT_OUT |= {"object", "datalist", "textarea"}
_ROLES = frozenset(("navigation", "contentinfo"))
_NOT_SHOWN = re.compile(r"(?:^|;)\s*display\s*:\s*none", re.IGNORECASE)
_NOT_SEEN = re.compile(r"(?:^|;)\s*visibility\s*:\s*(?:hidden|collapse)", re.IGNORECASE)
_STRUCK = frozenset(("del", "s", "strike"))
_LINE_THROUGH = re.compile(r"text-decoration[a-z-]*\s*:[^;]*line-through", re.IGNORECASE)
_SHIFT = re.compile(r"(?:^|;)\s*vertical-align\s*:\s*(su(?:per|b)|baseline)\b", re.IGNORECASE)
_NOTE = re.compile(r"\w{1,3}|[*\u2020\u2021\xa7\xb6]{1,3}")
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure form header hgroup hr html legend li main menu ol option p pre search section "
    "select summary table tbody td tfoot th thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_LISTS = frozenset(("ul", "ol", "menu", "dir", "dl"))
# The forms of list numbers, by the attribute `type` and by CSS. Empty: the items have no numbers.
_FORMS = {
    "none": "", "disc": "", "circle": "", "square": "",
    "1": "decimal", "decimal": "decimal", "decimal-leading-zero": "decimalZero",
    "a": "lowerAlpha", "lower-alpha": "lowerAlpha", "lower-latin": "lowerAlpha",
    "A": "upperAlpha", "upper-alpha": "upperAlpha", "upper-latin": "upperAlpha",
    "i": "lowerRoman", "lower-roman": "lowerRoman", "I": "upperRoman", "upper-roman": "upperRoman",
}  # fmt: skip
_LIST_STYLE = re.compile(r"(?:^|;)\s*list-style(?:-type)?\s*:([^;!]*)", re.IGNORECASE)
_TERM, _OF_TERM = "term", "of the term"  # in place of the mark of an item, in a list of terms
_TERMS = {_TERM: "", _OF_TERM: "  "}
_NAMES_BOX = frozenset(("li", "label", "p", "dd", "span"))
_HEADINGS = {f"h{depth}": depth for depth in range(1, 7)}
_SOFT_HYPHEN = "\u00ad"
_SPACE = re.compile(r"[ \t\r\n\f]+")
_LINE_END = re.compile(r" *\n[ \n]*")
_SHOWN = frozenset(("Tag", "NavigableString", "CData"))  # not comments
_MOST_COLUMNS = 1000  # the limit of browsers
# The encodings that browsers use in place of the one that a page names: the WHATWG's table, with Python's names.
_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}


# In a Google sheet: the letters of columns, the numbers of rows, and the bars beside frozen ones
_LABELS_OF_SHEET = (
    ".waffle:has(th.row-headers-background) thead, .waffle tr:has(> .row-header-shim), "
    ".waffle th.row-headers-background, .waffle .freezebar-cell"
)


def read_html(uri: str, path: Path) -> Iterator[Document | Unread]:
    """Read the text and the tables of a page, as far as a browser shows them. If the page does not name its
    encoding, it is guessed as for text files."""
    data = path.read_bytes()
    refuse_binary(path, data)
    unread: list[Unread] = []
    encoding = _encoding(data)
    if encoding is None or not _can_decode(data, encoding):
        other = guessed(data)[0]
        if other is None and (encoding is None or b"\0" in data):
            raise not_text(path)
        if other in (None, encoding):
            unread.append(Unread(path, f"some characters are not valid {encoding}; save the file as UTF-8"))
        elif encoding is not None:
            unread.append(Unread(path, f"read as {other}, because the page is not {encoding}", missing=False))
            encoding = other
    soup = _parsed(data, encoding)
    text = Text()
    _read(soup, text, path, unread)
    named = soup.find(lambda it: it.name == "title" and it.find_parent("svg") is None)
    title = named.get_text(" ", strip=True).replace(_SOFT_HYPHEN, "") if named else ""
    first = next((heading.text for heading in text.headings if heading.depth == 1), "")
    yield from text.documents(uri, title or first or path.stem)
    yield from unread


def _can_decode(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def tables_of_html(written: str) -> list[TableParts]:
    """Return the tables in a piece of HTML, with their captions."""
    text = Text()
    _read(_parsed(written), text, Path(), [])
    return text.tables()


def _parsed(page: str | bytes, encoding: str | None = None) -> Any:
    """Parse a page. Styles of classes become those of their elements. Equations, the readings of words and
    quotation marks are written out as text."""
    from bs4 import BeautifulSoup

    soup: Any = BeautifulSoup(page, "lxml", from_encoding=encoding)
    _style(soup)
    for it in soup.select(_LABELS_OF_SHEET) if soup.find("table", class_="waffle") else ():
        it.extract()
    for it in soup.find_all(class_="expand-content"):  # Readers of Confluence can open it.
        del it["style"]
    for it in soup.find_all(["math", "q", "rp", "rt"]):
        if it.name == "math":
            above, said = it.parent, _equation(it)
            image = next((one for one in above.next_siblings if one.name or one.strip()), None)
            it.replace_with(said)
            if _hidden(above) and image is not None and image.name == "img":
                # The equation is for screen readers only: Wikipedia shows an image of it instead.
                image.decompose()
                above.replace_with(said)
        elif it.name == "q":
            opening, closing = "\u2018\u2019" if len(it.find_parents("q")) % 2 else "\u201c\u201d"
            it.insert(0, opening)
            it.append(closing)
        elif not _hidden(it):  # Beautiful Soup does not count a reading (`rt`) as text.
            said = it.get_text()
            # Pages write their own brackets around a reading as `rp`. The closing one is still an element here.
            is_bare = (
                it.name == "rt"
                and said.strip()
                and it.find_previous_sibling("rp") is None
                and it.find_next_sibling("rp") is None
            )
            it.replace_with(f"\uff08{said.strip()}\uff09" if is_bare else said)
    return soup


_AT_RULES = re.compile(r"/\*.*?(?:\*/|\Z)|@[^{};@]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL)
_OF_CLASS = re.compile(r"(\w*)([.#][\w-]+)")
_HIDES = ("display", "visibility")
_READ_OF_CLASS = (*_HIDES, "text-decoration", "text-decoration-line", "vertical-align")


def _style(soup: Any) -> None:
    """Write what the page says of a class or an id, such as `.c5{vertical-align:super}`, into the style of its
    elements. Only rules for a class or an id alone, or of one kind of element, are read. One that other rules
    show, such as `.tab.open`, or that a script names, hides nothing: a reader can open it."""
    sheets = [it for it in soup.find_all("style") if str(it.get("media", "all")).lower() in ("all", "screen", "")]
    css = _AT_RULES.sub("", " ".join(it.get_text() for it in sheets if it.find_parent("noscript") is None))
    if not any(name in css for name in _READ_OF_CLASS):
        return
    opened = {name for it in soup.find_all("script") for name in re.findall(r"[\w-]+", it.get_text())}
    rules: dict[str, list[tuple[tuple[bool, int], str, dict[str, str]]]] = {}
    for order, rule in enumerate(css.split("}")):
        selectors, _, body = rule.partition("{")
        said = {name: value for name, value in _properties(body).items() if name in _READ_OF_CLASS}
        for selector in map(str.strip, selectors.split(",") if said else ()):
            if one := _OF_CLASS.fullmatch(selector):
                rules.setdefault(one[2], []).append(((one[2][0] == "#", order), one[1].lower(), said))
            elif said.get("display", "none") != "none" or said.get("visibility") == "visible":
                opened.update(name[1:] for _, name in _OF_CLASS.findall(selector))
    for it in soup.find_all(lambda it: "class" in it.attrs or "id" in it.attrs) if rules else ():
        found: dict[str, str] = {}
        names = [f".{name}" for name in it.get("class", ())] + [f"#{it.get('id')}"]
        # The rules for an id count more, and so come last.
        several = sorted(((*rule, name) for name in names for rule in rules.get(name, ())), key=itemgetter(0))
        for _, kind, said, name in several:
            if kind in ("", it.name):
                is_opened = name[1:] in opened
                found |= {key: value for key, value in said.items() if key not in _HIDES or not is_opened}
        own = str(it.get("style", ""))
        named = _properties(own)
        it["style"] = ";".join([own, *(f"{key}:{value}" for key, value in found.items() if key not in named)])


def _properties(style: str) -> dict[str, str]:
    """The properties of a style."""
    pairs = (it.partition(":") for it in style.split(";"))
    return {name.strip().lower(): value.replace("!important", "").strip() for name, colon, value in pairs if colon}


def _encoding(data: bytes) -> str | None:
    """The encoding in which browsers read a page that names its encoding, or else the one that its bytes suggest.
    None if Beautiful Soup shall guess."""
    from bs4.dammit import EncodingDetector

    without, mark = EncodingDetector.strip_byte_order_mark(data)
    if mark:
        return str(mark)
    named = EncodingDetector.find_declared_encoding(without, is_html=True)
    if not named:
        return guessed(data)[0]
    try:
        name = codecs.lookup(named).name
    except LookupError:  # Beautiful Soup then guesses.
        return None
    if _BROWSERS.get(name) == "cp1252" and not data.isascii() and _can_decode(data, "utf-8"):
        return "utf-8"  # Text in cp1252 is hardly ever valid UTF-8.
    return _BROWSERS.get(name, name)


_SCRIPTS = {"msup": "^", "msub": "_", "msubsup": "_^", "munder": "_", "mover": "^", "munderover": "_^"}
_AROUND = frozenset(("mrow", "mstyle", "mpadded"))
_INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))  # operators between factors, and after functions
_NOT_IN_EQUATION = frozenset(("annotation", "annotation-xml", "mphantom"))
_MOST_NESTED = 50


def _equation(element: Any, depth: int = 0) -> str:
    """The text of an equation in MathML on one line, so that a half is `1/2` and not 12."""
    name = element.name
    parts = _parts(element)
    if not parts or depth > _MOST_NESTED:
        return " ".join(element.get_text().translate(_INVISIBLE).split())
    texts = [_equation(part, depth + 1) for part in parts]
    # A number or a name of several characters is a unit.
    alone = [text if part.name in ("mi", "mn") else grouped(text) for part, text in zip(parts, texts, strict=True)]
    if name == "mfrac" and len(parts) == 2:
        return "/".join(alone)
    if name in _SCRIPTS and len(parts) == len(_SCRIPTS[name]) + 1:
        return alone[0] + "".join(mark + it for mark, it in zip(_SCRIPTS[name], alone[1:], strict=True))
    if name == "mmultiscripts":
        at = next((k for k, part in enumerate(parts) if part.name == "mprescripts"), len(parts))
        behind, ahead = (
            "".join(mark + it for mark, it in zip(cycle("_^"), some, strict=False) if it)
            for some in (alone[1:at], alone[at + 1 :])
        )
        return f"{ahead} {alone[0]}{behind}".strip()
    if name == "mroot" and len(parts) == 2:
        return f"\u221a[{texts[1]}]({texts[0]})"
    if name == "mfenced":
        marks = "".join(str(element.get("separators", ",")).split())
        between = [marks[min(k, len(marks) - 1)] if marks else "" for k in range(len(texts) - 1)]
        said = "".join(chain.from_iterable(zip_longest(texts, between, fillvalue="")))
        return f"{element.get('open', '(')}{said}{element.get('close', ')')}"
    if name in ("mtable", "mtr", "mlabeledtr"):
        return f"[{'; '.join(texts)}]" if name == "mtable" else ", ".join(texts)
    said, was_apart = "", False
    row = [(part, text) for part, text in zip(parts, texts, strict=True) if text]
    for (part, text), (_, following) in pairwise([*row, (None, "")]):
        while part.name in _AROUND and len(inner := _parts(part)) == 1:
            part = inner[0]
        if part.name == "mfrac":
            text = fraction(text, said[-1:], following[:1])
        # Names and sums have blanks beside them: sin x, \u2211_(i=1)^n i
        is_apart = part.name.startswith("munder") or (part.name in ("mi", "mo", "mtext") and len(text) > 1)
        said += " " * ((is_apart or was_apart) and said[-1:].isalnum() and text[0].isalnum()) + text
        was_apart = is_apart
    return f"\u221a{grouped(said)}" if name == "msqrt" else said


def _parts(element: Any) -> list[Any]:
    """The elements of an equation within another one, as far as they are shown."""
    return [it for it in element.find_all(True, recursive=False) if it.name not in _NOT_IN_EQUATION]


def _events(root: Any, is_whole: Callable[[Any], bool] = lambda _: False) -> Iterator[tuple[str, Any]]:
    """Yield the texts and the elements of a tree that are shown: (`text`, the text), (`open`, the element) and
    (`close`, the element). An element that `is_whole` comes alone, as (`whole`, the element)."""
    from bs4 import Tag
    from bs4.element import CData, NavigableString

    above: list[tuple[Any, Iterator[Any]]] = [(None, iter(root.contents))]
    while above:
        element, rest = above[-1]
        child = next(rest, None)
        if child is None:
            above.pop()
            if element is not None:
                yield "close", element
        elif type(child) in (NavigableString, CData):
            yield "text", str(child)
        elif isinstance(child, Tag) and (said := _image(child)):
            yield "text", f" {said} "
        elif isinstance(child, Tag) and not _hidden(child):
            if is_whole(child):
                yield "whole", child
            else:
                yield "open", child
                above.append((child, iter(child.contents)))


def _image(element: Any) -> str:
    """The text that stands for an image, as a browser shows it if the image is missing, or for a box that can be
    ticked. Empty for other elements, for hidden images, and for images whose caption is the same."""
    said: Any = ""
    if element.name == "input" and element.get("type") in ("checkbox", "radio"):
        is_named = element.parent.name in ("td", "th") or (
            element.parent.name in _NAMES_BOX and element.parent.get_text(strip=True)
        )
        return ("☒" if element.has_attr("checked") else "☐") if is_named and not _hidden(element) else ""
    if element.name == "img":
        said = element.get("alt")
    elif element.name == "svg" or (element.get("role") == "img" and not element.get_text(strip=True)):
        title = element.find("title", recursive=False)
        said = element.get("aria-label") or (title.get_text() if title else "")
    if not said or str(element.get("role", "")) in ("presentation", "none"):
        return ""
    if _hidden(element) and (element.name != "svg" or _not_shown(element) or element.has_attr("aria-hidden")):
        return ""
    said = alternative(str(said))
    figure = element.find_parent("figure") if said else None
    caption = figure.find("figcaption") if figure else None
    return "" if caption and " ".join(caption.get_text().split()) == said else said


def _is_struck(element: Any) -> bool:
    return element.name in _STRUCK or ("style" in element.attrs and _is_styled(element, _LINE_THROUGH))


def _hidden(element: Any) -> bool:
    name = element.name
    if name in ("html", "body"):  # Scripts may show them later.
        return False
    return (
        (name in _LEFT_OUT and not (name == "footer" and element.find_parent("blockquote")))
        or str(element.get("role", "")).strip().lower() in _ROLES
        or "mw-editsection" in element.get("class", ())
        or _is_permalink(element)
        or (element.has_attr("hidden") and element["hidden"] != "until-found")
        or str(element.get("aria-hidden", "")).strip().lower() == "true"
        or _is_styled(element, _NOT_SHOWN)
        or _is_styled(element, _NOT_SEEN)
    )


def _is_permalink(element: Any) -> bool:
    """Whether an element is the link of a heading or a term to itself: `¶`."""
    if element.name != "a" or not (element.parent.name in _HEADINGS or "headerlink" in element.get("class", ())):
        return False
    return element.get_text().strip() in ("\xb6", "#") and str(element.get("href", "")).startswith("#")


def _is_styled(element: Any, how: re.Pattern[str]) -> bool:
    return bool(how.search(str(element.get("style", ""))))


def _shift(element: Any) -> str:
    """How an element shifts its text: `sup`, `sub`, or not at all."""
    said = _SHIFT.search(str(element.get("style", "")))
    return said[1].lower().replace("super", "sup") if said else str(element.name)


def _is_note(element: Any) -> bool:
    """Whether a raised text is a link to a footnote."""
    if not _NOTE.fullmatch(element.get_text().strip()):
        return False
    link = element.find("a", href=True) or element.find_parent("a", href=True)
    return link is not None and "#" in link["href"]


class _Lines:
    """Collects texts as lines, with spaces as a browser shows them."""

    def __init__(self, is_struck: bool = False) -> None:
        self._parts: list[str] = []
        self.struck = int(is_struck)
        """How many of the open elements strike their text through"""
        self.preformatted = 0
        """How many of the open elements show spaces and line ends as they are written"""

    def add(self, kind: str, it: Any) -> None:
        """Add an event: a text, or the beginning or end of an element that belongs to a line."""
        if kind == "text":
            it = it.replace(_SOFT_HYPHEN, "")  # which a browser shows only at the end of a line
            it = it if self.preformatted else _SPACE.sub(" ", it)
            self._parts.append(struck(it) if self.struck else it)
            return
        if _is_struck(it):
            self.struck += 1 if kind == "open" else -1
        if it.name == "br" and kind == "open":
            self.between("\n")
        elif it.name not in _BLOCKS and (how := _shift(it)) in SHIFTS:
            # A link to a place on a page is the mark of a footnote: `[4]`.
            is_note = how == "sup" and _is_note(it)
            mark = ("[", "]") if is_note else SHIFTS[how]
            self._parts.append(APART + mark[kind == "close"])

    def between(self, blocks: str) -> None:
        """Add what divides two blocks."""
        self._parts.append(blocks)

    def take(self) -> str:
        text = with_marks("".join(self._parts))
        self._parts.clear()
        if self.preformatted:
            return text.strip("\n")
        return _LINE_END.sub("\n", re.sub("  +", " ", text)).strip()


def _plain(element: Any, is_struck: bool = False) -> str:
    """The text in an element, with a line for each block in it."""
    lines = _Lines(is_struck or _is_struck(element))
    for kind, it in _events(element):
        lines.add(kind, it)
        if kind != "text" and (it.name in _BLOCKS or it.name in _HEADINGS):
            lines.between(" " if it.name in ("td", "th") else "\n")
    return lines.take()


def _read(root: Any, text: Text, path: Path, unread: list[Unread]) -> None:
    """Add the paragraphs, headings, lists and tables in an element to a text."""
    lines, listed = _Lines(), list[str]()
    lists: list[tuple[int, int, str]] = []  # the number of the last item, the step to the next one, and their form
    summaries: dict[int, int] = {}  # the depth of the summary of each open `details`
    mark, tables = "", 0

    def flush() -> None:
        nonlocal mark
        said = lines.take()
        if said and listed and mark == _OF_TERM:
            listed[-1] = f"{listed[-1].removesuffix(':')}: {said}"
            mark = ""
        elif said and lists:
            indent = "  " * (len(lists) - 1)
            listed.append(f"{indent}{_TERMS.get(mark, mark or '  ')}{said}")
            mark = _TERM if mark == _TERM else ""
        elif said:
            text.add(said)

    def close_list() -> None:
        text.add("\n".join(listed))
        listed.clear()

    for kind, it in _events(root, _is_whole):
        if kind == "whole":
            flush()
            close_list()
            if it.name != "table":
                level = str(it.get("aria-level", "2"))
                depth = _HEADINGS.get(it.name) or (int(level) if level.isdecimal() else 2)
                if it.name == "summary":
                    depth = summaries.setdefault(id(it.parent), depth_within(text.headings))
                text.heading(" ".join(_plain(it, lines.struck > 0).split()), depth)
                continue
            tables += 1
            for other in _beside_rows(it):
                text.add(other)
            try:
                _add_table(it, text, lines.struck > 0 or _is_struck(it))
            except InputError as error:
                unread.append(Unread(path, f"table {tables}: {error}"))
            continue
        lines.add(kind, it)
        if kind != "text" and it.name in _BLOCKS:
            flush()
            if kind == "close" and id(it) in summaries:
                close_list()
                text.end_section(summaries[id(it)])
            elif it.name == "pre":
                lines.preformatted += 1 if kind == "open" else -1
            elif it.name in _LISTS:
                if kind == "open":
                    lists.append(_numbering(it))
                elif lists:
                    lists.pop()
                if not lists:
                    close_list()
            elif it.name == "dt" and kind == "open":
                mark = _TERM
            elif it.name == "dd":
                mark = _OF_TERM if mark == _TERM and kind == "open" and listed else ""
            elif it.name == "li" and kind == "open" and lists:
                last, step, form = lists[-1]
                lists[-1] = (number := _whole(it, "value", last + step), step, form)
                mark = f"{written(number, own)}. " if (own := _form(it, form)) else "- "
                if "inline-task-list" in it.parent.get("class", ()):  # a task list of Confluence
                    mark += "☒ " if "checked" in it.get("class", ()) else "☐ "
    flush()
    close_list()


def _is_whole(element: Any) -> bool:
    """Whether an element is read as a whole: a heading, a summary, or a table that has data."""
    name = element.name
    said = element.get("role") == "heading" and name not in ("br", "sup")
    return name in _HEADINGS or name == "summary" or said or (name == "table" and not _is_layout(element))


def _numbering(element: Any) -> tuple[int, int, str]:
    """The number before that of the first item of a list, the step from each item to the next one, and the form of
    the numbers."""
    step = -1 if element.has_attr("reversed") else 1
    items = len(element.find_all("li", recursive=False))
    form = _form(element, "decimal" if element.name == "ol" else "")
    return _whole(element, "start", items if step < 0 else 1) - step, step, form


def _form(element: Any, default: str) -> str:
    """The form in which a list or an item shows its number. A style is stronger than the attribute `type`."""
    said = " ".join(_LIST_STYLE.findall(str(element.get("style", "")))).lower().split()
    return next((_FORMS[it] for it in (*reversed(said), element.get("type")) if it in _FORMS), default)


def _whole(element: Any, name: str, default: int) -> int:
    """The integer in an attribute."""
    found = re.fullmatch(r"\s*([-+]?\d{1,9})\s*", str(element.get(name, "")))
    return int(found[1]) if found else default


def _is_layout(table: Any) -> bool:
    """Whether a table only arranges the parts of a page: it says so, or its one row or column has tables in it."""
    if str(table.get("role", "")).lower() in ("presentation", "none"):
        return True
    rows = [row for group in _groups(table)[0] for row in group]
    if any(cell.name == "th" for row in rows for cell in row) or table.find("caption", recursive=False):
        return False
    widest = max((len(row) for row in rows), default=0)
    if widest <= 1:
        return True
    return len(rows) == 1 and table.find(["table", *_HEADINGS]) is not None


def _groups(table: Any) -> tuple[list[list[list[Any]]], int]:
    """The cells of the rows that are shown, in groups (head, bodies, foot), and the number of rows of the foot. No
    cell reaches beyond its group."""
    groups: dict[str, list[list[list[Any]]]] = {"thead": [], "tbody": [], "tfoot": []}
    loose: list[list[Any]] | None = None
    for part in table.find_all([*groups, "tr"], recursive=False):
        if _not_shown(part):
            continue
        if part.name != "tr":
            loose = None
            rows = part.find_all("tr", recursive=False)
            groups[part.name].append([_cells(row) for row in rows if not _not_shown(row)])
            continue
        if loose is None:
            groups["tbody"].append(loose := [])
        loose.append(_cells(part))
    return [*chain.from_iterable(groups.values())], sum(map(len, groups["tfoot"]))


def _cells(row: Any) -> list[Any]:
    return [cell for cell in row.find_all(["td", "th"], recursive=False) if not _not_shown(cell)]


def _not_shown(element: Any) -> bool:
    """Whether an element takes no place. One that is only invisible does."""
    return element.has_attr("hidden") or _is_styled(element, _NOT_SHOWN)


def _beside_rows(table: Any) -> Iterator[str]:
    """The texts in a table beside its rows, where HTML allows none."""
    parts = [table, *table.find_all(["thead", "tbody", "tfoot"], recursive=False)]
    rows = [row for part in parts for row in part.find_all("tr", recursive=False)]
    inside = {"thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup", "col"}
    for part in [*parts, *rows]:
        for it in part.contents:
            if it.name not in inside and not (it.name and _hidden(it)) and type(it).__name__ in _SHOWN:
                yield _plain(it) if it.name else str(it)


def _add_table(table: Any, text: Text, is_struck: bool) -> None:
    groups, foot = _groups(table)

    def spanning(cell: Any, left: int) -> tuple[str, int, int]:
        down = min(_span(cell, "rowspan", least=0) or left, left)  # 0: down to the end of the group
        said = "" if _hidden(cell) else _plain(cell, is_struck or _is_struck(cell.parent))
        return said, down, _span(cell, "colspan", least=1)

    rows = [
        [spanning(cell, len(group) - number) for cell in cells]
        for group in groups
        for number, cells in enumerate(group)
    ]
    caption = table.find("caption", recursive=False)
    named = _plain(caption) if caption is not None and not _hidden(caption) else ""
    # Of several names in rows of their own, the first can be a title, unless each begins a body or specifications.
    starts = [group[0] for group in groups if group]
    single = [cells for group in groups for cells in group if len(cells) == 1]
    is_sure = "spec" in " ".join(table.get("class", ())).lower() or single == starts
    has_sections = is_sure and len(single) > 1 and all(cells[0].name == "th" for cells in single)
    text.table(rows, _MOST_COLUMNS, _header_rows(table, groups), named, foot, has_sections)


def _header_rows(table: Any, groups: list[list[list[Any]]]) -> int | None:
    """How many rows are the header: those of the head, or the first rows that have header cells only. 0 if the
    first header cells are the names of rows. None if the table does not say it."""
    rows = [row for group in groups for row in group]
    # Titles, and a photo with its caption, stand above the rest. Neither is a header.
    above = len(list(takewhile(lambda row: len(row) < 2, rows)))
    above = above if above < len(rows) else 0
    heading = above + len(list(takewhile(_is_header, rows[above:])))
    head = table.find("thead", recursive=False)
    if head is not None and groups and any(groups[0]):
        heading = max(heading, len(groups[0]))
    # Below the names of the columns, a single name for all of them begins a group of rows.
    while heading > 1 and len(rows[heading - 1]) == 1 and max(map(len, rows[: heading - 1])) > 1:
        heading -= 1
    if heading == len(rows):
        return None
    if heading and max(map(len, rows[:heading])) > 1:
        return heading
    # What follows says whether there is a header.
    below = rows[heading]
    return heading if any(cell.name == "th" for cell in below) else None


def _is_header(row: list[Any]) -> bool:
    """Whether a row has header cells and, apart from a corner, no others. A name with only empty cells beside it
    is that of a row, or of a group of rows."""
    if len(row) > 1 and row[0].name == "th" and all(cell.name == "td" for cell in row[1:]):
        return False
    return any(cell.name == "th" for cell in row) and all(cell.name == "th" or not _plain(cell) for cell in row)


def _span(cell: Any, name: str, least: int) -> int:
    """The number of rows or columns that a cell spans, by the rules of HTML."""
    found = re.match(r"\s*\+?(\d{1,6})", str(cell.get(name, "")))
    return max(int(found[1]), least) if found else 1
