"""What the letters of symbol fonts, such as Wingdings, show."""

from __future__ import annotations

import re

# The characters of the font Symbol, by the first code of each group.
_SYMBOLS = {
    0x41: "\u0391\u0392\u03a7\u0394\u0395\u03a6\u0393\u0397\u0399\u03d1\u039a\u039b\u039c\u039d",
    0x4F: "\u039f\u03a0\u0398\u03a1\u03a3\u03a4\u03a5\u03c2\u03a9\u039e\u03a8\u0396",
    0x61: "\u03b1\u03b2\u03c7\u03b4\u03b5\u03d5\u03b3\u03b7\u03b9\u03c6\u03ba\u03bb\u03bc\u03bd",
    0x6F: "\u03bf\u03c0\u03b8\u03c1\u03c3\u03c4\u03c5\u03d6\u03c9\u03be\u03c8\u03b6",
    0xA3: "\u2264",
    0xA5: "\u221e",
    0xAB: "\u2194\u2190\u2191\u2192\u2193\u00b0\u00b1",
    0xB3: "\u2265\u00d7",
    0xB7: "\u2022\u00f7\u2260\u2261\u2248",
    0xCE: "\u2208\u2209",
    0xD6: "\u221a",
    0xE5: "\u2211",
    0xF2: "\u222b",
}
_SIGNS = {first + k: sign for first, signs in _SYMBOLS.items() for k, sign in enumerate(signs)}
# Those of Wingdings that mean something in a text: boxes, ticks, crosses, arrows and bullets
_WINGDINGS = dict(
    zip(
        b"\x28\x2a\x4a\x4c\x6c\x6e\x6f\x71\x75\x9f\xa7\xa8\xd8\xdf\xe0\xe1\xe2\xe8\xf0\xfb\xfc\xfd\xfe",
        "\u260e\u2709\u263a\u2639\u25cf\u25a0\u25a1\u2751\u25c6\u2022\u25aa\u25fb\u27a2\u2190\u2192\u2191\u2193\u2794\u21e8\u2717\u2713\u2612\u2611",
        strict=True,
    )
)
NO_LETTER = "\ufffd"
_SYMBOL_FONTS = ("Symbol", "Wingdings")
_PRIVATE = frozenset(map(chr, range(0xF000, 0xF100)))


def shown_in(font: str, text: str, signs: dict[str, None]) -> str:
    """Return what a text in a font shows. Symbols without a known character, such as `Wingdings F06A`, are added
    to `signs`."""
    of_symbols = font in _SYMBOL_FONTS
    if not of_symbols and _PRIVATE.isdisjoint(text):
        return text
    codes = {it: ord(it) | 0xF000 if of_symbols and it < "\u0100" else ord(it) for it in text}
    shown = {it: it if it.isspace() else sign_of(font, f"{code:X}") for it, code in codes.items()}
    signs |= {f"{font} {ord(it):04X}": None for it, sign in shown.items() if sign == NO_LETTER}
    return "".join(map(shown.__getitem__, text))


def sign_of(font: str, code: str) -> str:
    """The character of a symbol. Symbol fonts have their signs at the codes from F000 on."""
    number = int(code, 16) if re.fullmatch("[0-9A-Fa-f]{1,6}", code) else 0
    if 0xF000 <= number <= 0xF0FF:
        low = number - 0xF000
        if font == "Symbol":
            return _SIGNS.get(low, chr(low) if low < 0x7F else NO_LETTER)
        return _WINGDINGS.get(low, NO_LETTER) if font == "Wingdings" else NO_LETTER
    return chr(number) if 0x20 <= number < 0xD800 or 0xE000 <= number <= 0x10FFFF else NO_LETTER
