"""The vectorised rules against the same rules written character by character."""

import re

import pytest
from corpus_strategies import texts
from hypothesis import given, settings

from pyfast.corpus import Level, TextDocument, encode
from pyfast.corpus.formats.markdown import headings
from pyfast.corpus.text_splitting import ABBREVIATIONS


def reference_paragraphs(text: str) -> list[str]:
    blocks = (block.strip() for block in re.split(r"\n[^\S\n]*\n", text))
    return [block for block in blocks if block]


def reference_sentences(paragraph: str) -> list[str]:
    def word(c: str) -> bool:
        return c <= "\uffff" and c.isalnum()

    sentences = []
    begin = 0
    for i, mark in enumerate(paragraph):
        if mark not in ".!?…。！？":
            continue
        end = i + 1
        while end < len(paragraph) and end < i + 4 and paragraph[end] in "\"')]}”’»」』）】":
            end += 1
        start = end
        while start < len(paragraph) and paragraph[start].isspace():
            start += 1
        if start == end and mark not in "。！？":
            continue
        first = start
        while first < len(paragraph) and first < start + 2 and paragraph[first] in "\"'([{“‘„«¿¡「『（【":
            first += 1
        if first == len(paragraph) or not word(paragraph[first]) or paragraph[first].islower():
            continue
        before = i
        while before > 0 and word(paragraph[before - 1]):
            before -= 1
        last = paragraph[before:i]
        if mark == "." and (last in ABBREVIATIONS or (len(last) == 1 and last.isalpha())):
            continue
        sentences.append(paragraph[begin:end])
        begin = start
    return [*sentences, paragraph[begin:]]


@settings(max_examples=150, deadline=None)
@given(texts)
def test_rules_against_the_reference(text: str) -> None:
    corpus = encode([TextDocument("u", "", text)])
    by_level: dict[int, list[str]] = {}
    for i, level in enumerate(corpus.level.tolist()):
        by_level.setdefault(level, []).append(corpus.content(i))
    paragraphs = reference_paragraphs(text)
    assert by_level.get(Level.PARAGRAPH, []) == paragraphs
    assert by_level.get(Level.SENTENCE, []) == [s for block in paragraphs for s in reference_sentences(block)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Born in St. Louis, J. R. Smith won 3.5 points. He left.", 2),
        ('He said "Stop!" Then (at last.) "Go." Why?', 4),
        ("It is, e.g. Paris or i.e. London. no capital here.", 1),
        ("今日は晴れ。明日は雨？「はい。」そう。", 4),
        ("Wait... What?! Yes.", 3),
        ("One.\nTwo.\r\nThree.", 3),
        ("Far.          Near.", 2),
        ('(He said ["word.")] Next.', 2),
        ('([He said ["word.")]) Next.', 1),  # four closers
        ('One word. ("Next.")', 2),
        ("One word. (((Next.", 1),
        ("x" * 50, 1),
    ],
)
def test_sentences(text: str, expected: int) -> None:
    corpus = encode([TextDocument("u", "", text)])
    assert int((corpus.level == Level.SENTENCE).sum()) == expected


def test_headings_are_those_of_markdown() -> None:
    text = "# A\r\nx\n\nB *b*\n===\n```\n# code\n```\n- # item\n> # quote\n\n"
    text += "<!--\n# comment\n-->\n\n    # code\n\n## C ##"
    assert [(text[h.start : h.end], h.depth, h.text) for h in headings(text)] == [
        ("# A\r\n", 1, "A"),
        ("B *b*\n===\n", 1, "B b"),
        ("## C ##", 2, "C"),
    ]
    assert headings("no heading\n\n-\n#") != [] and headings("a # b - c") == []
