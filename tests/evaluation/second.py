"""Second implementations of the metrics, from their published descriptions, slow and plain.

They share no code with `pyfast.evaluation`: words are counted by hand, numbers are `Decimal`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

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


def distance(a: str, b: str) -> int:
    """Levenshtein's, by its recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


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
WIDE = Context(prec=6_000, rounding=ROUND_HALF_EVEN)  # a model that loops writes a number of 5,000 digits
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
    if not worth.is_finite():  # a film may be called Infinity
        return None
    after = re.search(r"(?<![\d.])[\d.]+\s?([a-zA-Z]+)", text)  # from where a number begins
    power = next((p for scale, p in {"hundred": 2, **SCALES}.items() if after and scale in after[1].lower()), 0)
    worth = worth.scaleb(power, WIDE)
    if re.search(r"\([\d.\s]+\)", text):
        worth = worth.copy_negate()
    if re.search(r"[\d.\s]%", text):
        worth = worth.scaleb(-2, WIDE)
    worth = WIDE.quantize(worth, Decimal("0.0001"))
    return worth if worth else Decimal("0.0000")  # no negative zero


def told(spans: list[str], scale: str) -> str:
    found = []
    for span in sorted(spans):
        worth = value(span)
        if worth is None:
            found.append(f"{span} {scale}".strip())
        elif "%" in span:
            found.append(f"{worth:.4f}")
        else:
            scaled = WIDE.quantize(worth, Decimal("0.01")).scaleb(SCALES.get(scale, 0), WIDE)
            found.append(f"{scaled:.4f}")
    return " ".join(found)


def tatqa_words(text: str) -> list[str]:
    """Words, and numbers as they are worth. The script writes a whole number that has no point apart from one that
    has: 2017 in a text is not 2017.0. A point that ends a sentence is none of these.
    """
    found = []
    for word in text.lower().split(" "):
        for form in (word, "".join(letter for letter in word if letter not in string.punctuation)):
            worth = value(form)
            if worth is not None:
                found.append(f"#{worth:.4f}" if re.search(r"\.\d|%", form) else f"#{worth:.0f}")
                break
        else:
            found += words(word)
    return found


def tatqa(answer: str, scale: str, gold: list[str], gold_scale: str, kind: str) -> tuple[float, float]:
    """(EM, F1) of an answer of one span, whose scale is known."""
    return tatqa_spans([answer], scale, gold, gold_scale, kind)


def tatqa_spans(spans: list[str], scale: str, gold: list[str], gold_scale: str, kind: str) -> tuple[float, float]:
    """(EM, F1) of the spans of an answer, whose scale is known."""
    right = tatqa_words(told(gold, gold_scale))
    given = [tatqa_words(told(spans, scale))]
    if len(spans) == 1 and value(spans[0]) is not None and "%" not in spans[0] and not scale:
        given.append([f"#{value(spans[0]):.4f}"])
    best = (0.0, 0.0)
    for one in given:
        a, g = set(one), set(right)
        f1 = prf(len(a & g), len(a), len(g))[2] if a and g else float(a == g)
        best = max(best, (float(one == right), round(f1, 2)))
    return best[0], best[0] if kind in ("arithmetic", "count") else best[1]


def tatqa_text(answer: str, gold: list[str], gold_scale: str, kind: str) -> tuple[float, float]:
    """(EM, F1) of an answer as one text: the better reading, with or without its last word as the scale."""
    if not answer.strip():
        return 0.0, 0.0
    spans = [answer]
    if kind == "multi-span":
        spans = answer.replace("\n", ";").split(";") if ";" in answer or "\n" in answer else answer.split(", ")
    spans = [span.strip() for span in spans if span.strip()]
    readings, values, scales = [(spans, "")], [], []
    for span in spans:
        *number, word = span.split(" ")
        has_scale = word.lower() in SCALES and value(" ".join(number)) is not None
        values.append(" ".join(number) if has_scale else span)
        scales.append(word.lower() if has_scale else "")
    if scales and scales[-1] and all(scale in ("", scales[-1]) for scale in scales):
        readings.append((values, scales[-1]))
    forms = [gold] if kind == "multi-span" else [[one] for one in gold]
    return max(tatqa_spans(given, scale, form, gold_scale, kind) for given, scale in readings for form in forms)


# Evidence, abstention, sequences.


def documents(cited: list[str], gold: list[str]) -> tuple[int, int, int]:
    """(right, cited, wanted) documents, each counted once."""
    kept: list[str] = []
    for uri in cited:
        if uri not in kept:
            kept.append(uri)
    return sum(1 for uri in kept if uri in gold), len(kept), len(set(gold))


def micro(counts: list[tuple[int, int, int]]) -> tuple[float, float, float]:
    """(precision, recall, F1) of the sums over all questions."""
    right, cited, wanted = (sum(one[i] for one in counts) for i in range(3))
    return prf(right, cited, wanted)


def coverage_and_risk(answers: list[str | None], golds: list[list[str]]) -> tuple[float, float]:
    """The share of questions that were answered, and the share of wrong answers among these."""
    given = [(answer, gold) for answer, gold in zip(answers, golds, strict=True) if answer is not None]
    wrong = [answer for answer, gold in given if not any(em(answer, one) for one in gold)]
    return len(given) / len(answers), len(wrong) / len(given) if given else 0.0


def rouge_l(answer: str, gold: str) -> float:
    """F1 of the longest common subsequence of words: runs of letters a to z and digits, in lower case."""
    a, g = (re.sub("[^a-z0-9]", " ", text.lower()).split() for text in (answer, gold))
    longest = [[0] * (len(g) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(g):
            longest[i + 1][j + 1] = longest[i][j] + 1 if x == y else max(longest[i][j + 1], longest[i + 1][j])
    return prf(longest[-1][-1], len(a), len(g))[2]


def of_items(answer: str | None, gold: list[str]) -> dict[str, float]:
    """MetaQA's figures, of a set of answers."""
    given, wanted = item_set(answer or ""), item_set(";".join(gold))
    whole = {" ".join(words(one)) for one in gold}
    if all(one in whole for one in given):  # a title may hold a comma itself
        wanted = [one for one in whole if one]
    first = bool(given) and (given[0] in wanted or given[0] in whole or given[0] in item_set(";".join(gold)))
    precision, recall, f1 = prf(shared(given, wanted), len(given), len(wanted))
    exact = answer is not None and bool(gold) and sorted(given) == sorted(wanted)
    return {"hits@1": float(first), "em": float(exact), "f1": f1, "precision": precision, "recall": recall}


def of_aliases(script: str, answer: str | None, gold: list[str]) -> dict[str, float]:
    """EM, and the tokens shared with the alias of the best F1."""
    best, exact = (0.0, 0.0, 0.0), 0.0
    for alias in gold if answer is not None else []:
        scored = tokens(answer or "", alias, script)
        best = scored if scored[2] > best[2] else best
        exact = max(exact, em(answer or "", alias))
    return {"em": exact, "f1": best[2], "precision": best[0], "recall": best[1]}


def figures(
    metric: str, answer: str | None, cited: list[str], gold: dict[str, Any], entities: Sequence[str] = ()
) -> dict[str, float]:
    """The figures of one question's answer, cited documents and entities, by the name of a metric."""
    answers, supporting = gold["answers"], gold.get("supporting")
    if metric == "hits":
        said = (answer or "").casefold()
        ranked = sorted(entities, key=lambda entity: distance(said, entity.casefold()))
        return dict(zip(("h@1", "h@5", "mrr"), hits(answer, answers, ranked), strict=True))
    if metric == "tatqa":
        exact, f1 = tatqa_text(answer or "", answers, gold.get("scale") or "", gold.get("type") or "")
        return {"em": exact, "f1": f1}
    if metric == "metaqa":
        return of_items(answer, answers)
    if metric == "em_f1" and gold.get("answer_mode") == "all":
        found = of_items(answer, answers)
        del found["hits@1"]
        return found
    if metric == "evidence":
        right, many, wanted = documents(cited, supporting or [])
        precision, recall, _ = prf(right, many, wanted)
        return {"evidence_precision": precision, "evidence_recall": recall} if wanted else {}
    found = of_aliases("hybridqa" if metric == "musique" else metric, answer, answers)
    if metric == "musique" and supporting is not None:
        right, many, wanted = documents(cited, supporting)
        found["support_f1"] = prf(right, many, wanted)[2] if many + wanted else 1.0
    return found
