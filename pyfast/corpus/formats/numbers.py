"""Write numbers as a sheet shows them."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache

_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|(E[+-]0+)|([0#?][0#?,.]*|\.[0#?]+)|(.)', re.DOTALL
)
_DIGITS = Context(prec=1000)  # a number can have 308 digits before its point
_SIGNS = {"%": "percent", "@": "digits"}
_CONDITION = re.compile(r"\[[<>=]")


def shown(value: float, form: str) -> str:
    """Write a number in a number format.

    Args:
        value: The number.
        form: The format as the file has it, such as `0.0%`. Fractions and conditions are not supported: such a
            number is written in full.

    Returns:
        The number as a text. For a format that shows nothing (`;;;`), the number in full.

    Example:
        >>> shown(0.375, "0.0%"), shown(1234567, "#,##0.00"), shown(42, "00000")
        ('37.5%', '1,234,567.00', '00042')
    """
    if form in ("General", "@", "") or value != value or value in (float("inf"), -float("inf")):
        return plain(value)
    sections = _sections(form)
    which = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    parts = sections[which]
    if parts is None:
        return plain(value)
    number = abs(Decimal(repr(value)))
    text = _written(number, parts)
    if not text.strip():
        return plain(value)
    return f"-{text}" if value < 0 and which == 0 and any(mark in text for mark in "123456789") else text


def plain(value: float) -> str:
    """Write a number with all of its digits: at most 15 of a fraction, as in a sheet, and never with an exponent
    where a sheet has digits."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    text = f"{value:.15g}"
    return f"{Decimal(text):f}" if 1e-9 < abs(value) < 1 else text


_Parts = tuple[tuple[str, str], ...]


@lru_cache(1024)
def _sections(form: str) -> tuple[_Parts | None, ...]:
    """The parts of each section of a format. A part is a kind (`text`, `digits`, `power` or `percent`) and its
    text. None for a section that is not supported."""
    sections: list[list[tuple[str, str]] | None] = [[]]
    if _CONDITION.search(form):
        return (None,)
    for literal, escaped, currency, power, digits, other in _TOKEN.findall(form):
        parts = sections[-1]
        text = literal or escaped or currency or power or digits or other
        if other == ";":
            sections.append([])
        elif other == "/" or (other.isalpha() and other.isascii()):
            sections[-1] = None
        elif text and parts is not None:
            kind = "power" if power else "digits" if digits else _SIGNS.get(other, "text")
            parts.append((kind, text))
    return tuple(None if parts is None else tuple(parts) for parts in sections)


def _written(number: Decimal, parts: _Parts) -> str:
    """Write a number that is not negative in one section of a format."""
    fields = [text for kind, text in parts if kind == "digits"]
    number *= 100 ** sum(kind == "percent" for kind, _ in parts)
    whole, _, fraction = "".join(fields).partition(".")
    # Commas after the last digit: thousands, millions.
    number /= 1000 ** sum(len(part) - len(part.rstrip(",")) for part in (whole, fraction))
    power = next((text for kind, text in parts if kind == "power"), "")
    if fields and not power:
        fraction = fraction.replace(",", "")
        digits = _digits(number, whole.rstrip(","), fraction)
    elif power:
        least = whole.count("0") or 1
        exponent = number.adjusted() - least + 1 if number else 0
        digits = _digits(number.scaleb(-exponent), whole, fraction)
        sign = "-" if exponent < 0 else "+" if power[1] == "+" else ""
        power = f"E{sign}{abs(exponent):0{len(power) - 2}d}"
    else:
        digits = ""
    if len(fields) > 1:
        return _spread(digits, parts)
    marks = {"digits": digits, "power": power}
    return "".join(marks.get(kind, text) for kind, text in parts)


def _digits(number: Decimal, whole: str, fraction: str) -> str:
    """Write the digits of a number: grouped, filled with zeros and rounded as a format says."""
    if whole == "@":
        return plain(float(number))
    rounded = number.quantize(Decimal(1).scaleb(-len(fraction)), ROUND_HALF_UP, _DIGITS)
    left, _, right = f"{rounded:f}".partition(".")
    least = whole.replace(",", "").count("0")
    left = left.lstrip("0").zfill(least) if least else left.lstrip("0")
    if "," in whole:
        left = f"{int(left):,}" if left and not left.startswith("0") else left
    optional = len(fraction) - len(fraction.rstrip("#?"))
    while optional and right.endswith("0"):
        right, optional = right[:-1], optional - 1
    return f"{left}.{right}" if right else left


def _spread(digits: str, parts: _Parts) -> str:
    """Put digits into the places of a format with text between them, such as `000-00-0000`."""
    places = sum(len(text.replace(",", "")) for kind, text in parts if kind == "digits")
    digits = digits.zfill(places) if any("0" in text for kind, text in parts if kind == "digits") else digits
    extra = len(digits) - places
    written, at = [], 0
    for kind, text in parts:
        if kind != "digits":
            written.append(text)
            continue
        end = at + len(text.replace(",", "")) + (extra if at == 0 else 0)
        written.append(digits[at : max(end, at)])
        at = max(end, at)
    return "".join(written)
