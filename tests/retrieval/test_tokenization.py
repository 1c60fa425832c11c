"""Words in texts and questions, against a slow version, character by character."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_words import slow_words

import pyfast
from pyfast.retrieval.terms import WORDS
from pyfast.utils.text_forms import _MAYBE_MARKS, compared, marks, name_form, words

some = st.one_of(st.text(), st.text("aB1_ -.,'\u2019\u00e9\u0130\u00df\u0301\u200b\u0660\u6f22\u0939\u093f\n\t"))


@given(some)
def test_words(text: str) -> None:
    assert words(text) == list(slow_words(text))


def test_marks() -> None:
    assert marks() == "".join(c for c in map(chr, range(0x110000)) if unicodedata.category(c)[0] == "M")


@given(some, st.booleans())
def test_forms_of_a_text_are_equal(text: str, accents: bool) -> None:
    form = compared(text, accents)
    for other in ("NFC", "NFD"):
        assert compared(unicodedata.normalize(other, text), accents) == form
    assert text.isascii() <= (form == text.lower())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Beyonc\u00e9 Dufr\u00eane", "Beyonce Dufrene"),
        ("\u0141\u00f3d\u017a S\u00f8ren", "lodz soren"),
        ("\ufb01sh \uff21\uff22\uff23 Stra\u00dfe", "fish ABC STRASSE"),
        ("\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\u0645\u064f\u062d\u0645\u0651\u064e\u062f", "\u0645\u062d\u0645\u062f"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"),
        ("Kindle\u2122", "Kindle TM"),
        ("\u043c\u02bc\u044f\u0442\u0430 O\u02bbzbek", "\u043c\u2019\u044f\u0442\u0430 O'zbek"),
        ("\u0627\u06cc\u0631\u0627\u0646 \u06a9", "\u0627\u064a\u0631\u0627\u0646 \u0643"),
        ("\u06f1\u06f4\u06f0\u06f3 \u0668 \u0967\u0968", "1403 8 12"),
    ],
)
def test_the_same_words(one: str, other: str) -> None:
    assert WORDS.words(one) == WORDS.words(other)


@pytest.mark.parametrize(
    "word",
    [
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0b9c\u0bc6\u0baf\u0bb2\u0bb2\u0bbf\u0ba4\u0bbe",
        "\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e",
    ],
)
def test_signs_of_other_scripts_are_letters(word: str) -> None:
    assert WORDS.words(word) == [word]


def test_characters_that_stand_alone() -> None:
    assert WORDS.words("Apollo 7, Vitamin C, AT&T, H&M, C++, U.S., it's pH 7.4 or 1,000 or 1.50, 12.5") == (
        [
            "apollo",
            "7",
            "vitamin",
            "c",
            "at",
            "t",
            "h",
            "m",
            "c",
            "cplusplus",
            "u",
            "s",
            "it",
            "ph",
            "7",
            "4",
            "or",
            "000",
            "or",
            "50",
            "12",
        ]
    )
    assert name_form(" Barack__Obama") == "barack obama" and WORDS.words("Barack_Obama") == ["barack", "obama"]


def test_every_mark_is_maybe_a_mark() -> None:
    assert all(map(_MAYBE_MARKS.match, marks()))


def test_names_with_signs_are_found_first(tmp_path: Path) -> None:
    languages = ("C", "C#", "C++", "F#")
    documents = [{"id": it, "text": f"The language {it} is old."} for it in languages]
    index = pyfast.build_index(documents, tmp_path / "IDX")
    assert [index.uri(int(index.search([it], 4)[0].passages[0])) for it in languages] == list(languages)
    found = " ".join(WORDS.words("c#, i++; a+b #42 C#5 ## x+++"))
    assert found == "c csharp i iplusplus a b 42 c csharp 5 x"
