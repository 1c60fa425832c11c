"""Second implementations of the metrics, from their published descriptions, slow and plain.

They share no code with `pyfast.evaluation`: words are counted by hand, numbers are `Decimal`.
"""

from __future__ import annotations

import re
import string
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

ARTICLES = ("a", "an", "the")
WORD = re.compile(r"\w+|\W")


def words(text: str) -> list[str]:
    """Lower case without punctuation and articles, as words."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    pieces = [" " if piece in ARTICLES else piece for piece in WORD.findall(kept)]
    return "".join(pieces).split()


def shared(one: list[str], other: list[str]) -> int:
    left, count = list(other), 0
    for word in one:
        if word in left:
            left.remove(word)
            count += 1
    return count


def prf(common: int, given: int, right: int) -> tuple[float, float, float]:
    precision = common / given if given else 0.0
    recall = common / right if right else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def em(answer: str, gold: str) -> float:
    return 1.0 if words(answer) == words(gold) else 0.0


def tokens(answer: str, gold: str, script: str) -> tuple[float, float, float]:
    """(precision, recall, F1) by the rule of `script`."""
    a, g = words(answer), words(gold)
    if script in ("hotpotqa", "em_f1"):
        for verdict in ("yes", "no", "noanswer"):
            if [verdict] in (a, g) and a != g:
                return 0.0, 0.0, 0.0
    if script in ("hybridqa", "em_f1") and (not a or not g):
        return (1.0, 1.0, 1.0) if a == g else (0.0, 0.0, 0.0)
    return prf(shared(a, g), len(a), len(g))


def supporting(found: set[tuple[str, int]], gold: set[tuple[str, int]]) -> tuple[float, float, float, float]:
    """(EM, precision, recall, F1) of facts."""
    right = sum(1 for fact in found if fact in gold)
    wrong, missed = len(found) - right, len(gold) - right
    precision, recall, f1 = prf(right, right + wrong, right + missed)
    return (0.0 if wrong or missed else 1.0), precision, recall, f1


def joint(answer: tuple[float, ...], facts: tuple[float, ...]) -> tuple[float, float]:
    """(EM, F1) of (EM, precision, recall, ...) of both."""
    precision, recall = answer[1] * facts[1], answer[2] * facts[2]
    return answer[0] * facts[0], 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def item_set(answer: str) -> list[str]:
    found: list[str] = []
    for piece in answer.replace(";", ",").split(","):
        item = " ".join(words(piece))
        if item and item not in found:
            found.append(item)
    return found


def hits(answer: str | None, gold: list[str], ranked: list[str]) -> tuple[float, float, float]:
    """(H@1, H@5, reciprocal rank); `ranked` are entities, nearest first."""
    wanted = [" ".join(words(one)) for one in gold]
    wanted = [one for one in wanted if one]
    if answer is None:
        return 0.0, 0.0, 0.0
    if " ".join(words(answer)) in wanted:
        return 1.0, 1.0, 1.0
    for place, entity in enumerate(ranked):
        if " ".join(words(entity)) in wanted:
            return float(place == 0), float(place < 5), 1 / (place + 1)
    return 0.0, 0.0, 0.0


# TAT-QA: every number becomes what it is worth, with four decimals; everything else is text.

SCALES = {"thousand": 3, "million": 6, "billion": 9, "percent": -2}
JUNK = "'\"\\$€£¥%(),[]"


def value(text: str) -> Decimal | None:
    """What a number is worth, as it stands; None for a text."""
    parts = ["".join(c for c in part if c not in JUNK) for part in text.split()]
    parts = [part for part in parts if part]
    if not parts or (len(parts) > 1 and not any(scale in parts[1].lower() for scale in (*SCALES, "hundred"))):
        return None
    try:
        worth = Decimal(parts[0])
    except InvalidOperation:
        return None
    after = re.search(r"[\d.]+\s?([a-zA-Z]+)", text)
    power = next((p for scale, p in {"hundred": 2, **SCALES}.items() if after and scale in after[1].lower()), 0)
    worth = worth.scaleb(power)
    if re.search(r"\([\d.\s]+\)", text):
        worth = -worth
    if re.search(r"[\d.\s]+%", text):
        worth = worth.scaleb(-2)
    return worth.quantize(Decimal("0.0001"), ROUND_HALF_EVEN) + 0


def told(spans: list[str], scale: str) -> str:
    found = []
    for span in sorted(spans):
        worth = value(span)
        if worth is None:
            found.append(f"{span} {scale}".strip())
        elif "%" in span:
            found.append(f"{worth:.4f}")
        else:
            scaled = worth.quantize(Decimal("0.01"), ROUND_HALF_EVEN).scaleb(SCALES.get(scale, 0))
            found.append(f"{scaled:.4f}")
    return " ".join(found)


def tatqa_words(text: str) -> list[str]:
    found = []
    for word in text.lower().split(" "):
        worth = value(word)
        found += [f"#{worth:.4f}"] if worth is not None else words(word)
    return found


def tatqa(answer: str, scale: str, gold: list[str], gold_scale: str, kind: str) -> tuple[float, float]:
    """(EM, F1) of an answer of one span, whose scale is known."""
    right = tatqa_words(told(gold, gold_scale))
    given = [tatqa_words(told([answer], scale))]
    if value(answer) is not None and "%" not in answer and not scale:
        given.append([f"#{value(answer):.4f}"])
    best = (0.0, 0.0)
    for one in given:
        a, g = set(one), set(right)
        f1 = prf(len(a & g), len(a), len(g))[2] if a and g else float(a == g)
        best = max(best, (float(one == right), round(f1, 2)))
    return best[0], best[0] if kind in ("arithmetic", "count") else best[1]
