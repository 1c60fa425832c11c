"""count_words against its reference, against `text_forms.words` for every character, and malformed input."""

import sys
import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import count_words_reference

from pyfast import ops
from pyfast.errors import ArrayError
from pyfast.ops.arrays import utf8
from pyfast.utils.text_forms import words

some = st.text(
    st.sampled_from("ab_1é漢😀\u0307\0- \n.,'\u2019") | st.characters(exclude_categories=["Cs"]), max_size=40
)


def counted(texts: list[str], separated: bool) -> list[Counter[str]]:
    offsets, words, counts, vocabulary = ops.count_words(utf8(texts), separated)
    assert vocabulary == sorted(set(vocabulary))
    rows = [slice(*pair) for pair in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    assert all((np.diff(words[row]) > 0).all() for row in rows)
    return [
        Counter(dict(zip([vocabulary[w] for w in words[row]], counts[row].tolist(), strict=True))) for row in rows
    ]


@given(st.lists(some, max_size=8), st.booleans())
def test_reference(texts: list[str], separated: bool) -> None:
    assert counted(texts, separated) == count_words_reference(texts, separated)


def test_many_words() -> None:
    texts = [" ".join(f"word{k % 5000}" for k in range(first, first + 700)) for first in range(0, 20_000, 400)]
    assert counted(texts, False) == count_words_reference(texts)


def is_alike(code: int) -> bool:
    """Of those that stand for nothing, for what who writes wants, or for one of a script's many words."""
    return (
        unicodedata.category(chr(code)) in ("Cn", "Co")
        or 0x3400 <= code < 0xA000
        or 0xAC00 <= code < 0xD800
        or code >= 0x17000
    )


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow(suite="native"))])
def test_every_character(step: int) -> None:
    """Of those that are alike, one in `step`."""
    codes = (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    text = " ".join(f"aa{chr(code)}bb" for code in codes if not code % step or not is_alike(code))
    assert ops.count_words(utf8([text]))[3] == sorted(set(words(text)))


@pytest.mark.parametrize(
    "broken", [b"\xff", b"\xc3", b"\xe2\x82", b"\xc1\x81", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_bytes_that_are_no_text_are_in_no_word(broken: bytes) -> None:
    text = b"moon" + broken + b"sea" + broken
    for separated in (False, True):
        assert ops.count_words(([0, len(text)], text), separated)[3] == ["moon", "sea"]


@pytest.mark.parametrize(
    "texts",
    [
        ([0, 9], b"moon"),
        ([0, 3, 2, 4], b"moon"),
        ([-1, 4], b"moon"),
        ([], b"moon"),
        (["moon"], b"moon"),
        ["moon"],
    ],
)
def test_malformed(texts: Any) -> None:
    with pytest.raises(ArrayError, match="texts"):
        ops.count_words(texts)
