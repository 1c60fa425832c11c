"""TAT-QA's exact match and F1, which compare numbers by their value and scale.

These metrics follow the data set's own script, which expects a scale (such as million) with each answer. In
pyfast an answer is one text. So pyfast reads an answer in up to three ways. First, as it is. Second, with
its last word as the scale ("58.2 million"). Third, a single number without a percent sign can stand for a
percentage: 0.2342 is then equal to 23.42 percent. Four decimals of it count. The first two ways round
numbers to two decimals. The best score counts. A multi-span question has several answers, the spans.
Semicolons or line ends separate them. If the text has neither, commas followed by a space separate them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyfast.engine import Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.metrics import ARTICLES, PUNCTUATION
from pyfast.evaluation.protocol import Values, of_answers

_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000, "percent": 0.01}
_NO_FIGURE = str.maketrans("", "", "'\"\\$€£¥%(),[]")
_FIGURE = re.compile(r"[+-]?\d+(\.\d+)?|[+-]?\.\d+")
_WITH_WORD = re.compile(r"[\d.]+\s?[a-zA-Z]+")
_NEGATIVE = re.compile(r"\([\d.\s]+\)")
_PERCENT = re.compile(r"[\d.\s]+%")
_SPANS = re.compile(r"[;\n]")
_COUNTED = ("arithmetic", "count")
_MOST = 300  # the maximum number of characters of a number; a longer one counts as text

Number = int | float


@of_answers
def tatqa(record: Record, gold: Gold) -> Values:
    """Compute EM and F1, comparing numbers with their scales. If the gold answer is a count or a calculation,
    F1 equals EM."""
    em, f1 = tatqa_score(record.answer, gold.answers, gold.scale or "", gold.type or "")
    return {"em": em, "f1": f1}


def tatqa_score(prediction: str | None, answers: Sequence[str], scale: str, kind: str) -> tuple[float, float]:
    """Compute (exact match, F1) of an answer.

    Args:
        prediction: The answer.
        answers: All spans of a `multi-span` question, otherwise accepted forms of one answer.
        scale: The scale of the gold answer: thousand, million, billion, percent or empty.
        kind: `span`, `multi-span`, `arithmetic` or `count`.
    """
    if not prediction or not prediction.strip() or not answers:
        return 0.0, 0.0
    spans = _spans(prediction, kind == "multi-span")
    given = [_joined(spans, ""), _joined(*_with_scale(spans))]
    if len(spans) == 1 and "%" not in spans[0] and is_number(spans[0]):
        given.append(_plain(to_number(spans[0])))  # 0.2342 for 23.42 percent
    right = [_joined(answers, scale)] if kind == "multi-span" else [_joined([a], scale) for a in answers]
    em, f1 = max(_compared(one, other) for one in given for other in right)
    return em, em if kind in _COUNTED else f1


def _spans(prediction: str, many: bool) -> list[str]:
    spans = _SPANS.split(prediction) if many else [prediction]
    if many and len(spans) == 1:
        spans = prediction.split(", ")
    return [span.strip() for span in spans if span.strip()]


def _with_scale(spans: list[str]) -> tuple[list[str], str]:
    """Remove the scale from the end of each span. Returns (the spans without it, the scale).

    If the last span has no scale, or two spans have different scales, the result is (the unchanged spans, "").
    """
    parts = [_without_scale(span) for span in spans]
    scales = {scale for _, scale in parts if scale}
    if len(scales) != 1 or not parts[-1][1]:
        return spans, ""
    return [value for value, _ in parts], scales.pop()


def _without_scale(span: str) -> tuple[str, str]:
    """Split "58.2 million" into ("58.2", "million"). If a text is not a number with a scale, return (the
    text, "").
    """
    value, _, scale = span.rpartition(" ")
    scale = scale.lower()
    return (value, scale) if scale in _SCALES and scale != "hundred" and is_number(value) else (span, "")


def _joined(spans: Sequence[str], scale: str) -> str:
    """Join the sorted spans into one text. With the scale "million", the span "3" becomes "3000000.0000",
    "3%" becomes "0.0300", and "about 3" becomes "about 3 million"."""
    return " ".join(_scaled(span, scale) for span in sorted(spans))


def _scaled(span: str, scale: str) -> str:
    if not is_number(span):
        return f"{span} {scale}" if scale else span
    number = to_number(span)
    return _plain(number if "%" in span else round(number, 2) * _factor(scale))


def _plain(number: Number) -> str:
    return f"{number:.4f}"


def _factor(words: str) -> Number:
    return next((factor for name, factor in _SCALES.items() if name in words.lower()), 1)


def is_number(text: str) -> bool:
    """Return whether a text is a number. The number may have a currency, brackets, a percent sign or a scale
    such as million."""
    words = " ".join(word.translate(_NO_FIGURE) for word in text.split()).split()
    if not words or len(text) > _MOST or _FIGURE.search(text.translate(_NO_FIGURE)) is None:
        return False
    try:
        float(words[0])
    except ValueError:
        return False
    return len(words) < 2 or _factor(words[1]) != 1


def to_number(text: str) -> Number:
    """Convert a text that `is_number` accepts to a number. A number in brackets is negative."""
    match = _FIGURE.search(text.translate(_NO_FIGURE))
    assert match is not None
    number: Number = float(match[0]) if "." in match[0] else int(match[0])
    word = _WITH_WORD.search(text)
    factor = 1 if word is None else _factor(word[0])
    sign = -1 if _NEGATIVE.search(text) else 1
    percent = 0.01 if _PERCENT.search(text) else 1
    return round(number * factor * sign * percent, 4) + 0  # + 0 turns -0.0 into 0.0


def _compared(given: str, right: str) -> tuple[float, float]:
    a, b = _normalised(given), _normalised(right)
    bags = set(a.split()), set(b.split())
    common = len(bags[0] & bags[1])
    precision, recall = (common / len(bag) if bag else 1.0 for bag in bags)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return float(a == b), round(f1, 2)


def _normalised(text: str) -> str:
    return " ".join(filter(None, (_token(token) for token in text.split(" "))))


def _token(token: str) -> str:
    token = token.lower()
    if not is_number(token):
        token = token.translate(PUNCTUATION)
    if is_number(token):
        return str(to_number(token))
    return " ".join(ARTICLES.sub(" ", token).split())
