"""The interface of metrics, how to find a metric by name, and the metrics that compare answers.

A metric is a function that takes a list of questions, each as a record with its gold answers, and returns values
by name for each question. A value is a number in [0, 1], or a pair (numerator, denominator) for micro averages:
the sum of all numerators is divided by the sum of all denominators. To leave a question out, the metric returns
None for it. Packages register metrics as entry points of the group `pyfast.metrics`. Any other metric is named
by `MODULE:NAME`.

    >>> from pyfast.evaluation import of_each
    >>> @of_each
    ... def letters(record, gold):
    ...     return {"letters": min(len(record.answer or "") / 100, 1)}

Exact match and token F1 are computed as in the data sets' official scripts. All scripts normalise in the same
way: lower case, no ASCII punctuation, no articles, single blanks. pyfast first composes letters and their
accents (NFC), so that different encodings of a letter are equal. The scripts differ in two points:

| | `yes` and `no` are ordinary words | F1 of two answers that are empty after normalising |
|---|---|---|
| SQuAD 1.1 (`squad`) | yes | 0 |
| HybridQA, MuSiQue (`hybridqa`, `musique`): SQuAD 2's | yes | 1 |
| HotpotQA, 2WikiMultihopQA (`hotpotqa`) | no | 0 |
| `em_f1`, for all sets alike | no | 1 |
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import NamedTuple, Protocol

import pyfast.utils.plugins as plugins
from pyfast.engine import Record, Usage
from pyfast.errors import InputError
from pyfast.evaluation.gold import Gold
from pyfast.utils.text_forms import ARTICLES, PUNCTUATION
from pyfast.utils.text_forms import normalise as normalise

Share = tuple[float, float]
"""A value as (numerator, denominator)"""
Values = Mapping[str, float | Share]


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of one question."""

    id: str
    state: str
    answer: str | None
    groups: Mapping[str, str]
    conversation: str | None
    shares: Mapping[str, Share] = field(repr=False)
    """(numerator, denominator) of each figure, by the name of the figure"""
    usage: Usage = field(default_factory=Usage)
    """What the answer used"""
    reason: str | None = None
    """Why the question failed. None: it did not fail"""

    @property
    def figures(self) -> dict[str, float | None]:
        """The value of each figure for this question alone. A value is None if its denominator is 0."""
        return {name: above / below if below else None for name, (above, below) in self.shares.items()}


class Metric(Protocol):
    """A function that scores questions."""

    def __call__(self, questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
        """Return the values of each question by name, or None to leave the question out."""
        ...


def of_each(score: Callable[[Record, Gold], Values | None]) -> Metric:
    """Make a metric from a function that scores one question.

    Args:
        score: A function of a record and its gold answers. It returns values by name, or None to leave the
            question out.

    Returns:
        The metric.
    """

    @wraps(score)
    def metric(questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
        return [score(record, gold) for record, gold in questions]

    return metric


def of_answers(score: Callable[[Record, Gold], Values | None]) -> Metric:
    """Make a metric as `of_each` does, which leaves out the questions without gold answers."""

    @wraps(score)
    def scored(record: Record, gold: Gold) -> Values | None:
        return score(record, gold) if gold.has_answer else None

    return of_each(scored)


def open_metric(name: str) -> Metric:
    """Find a metric by its name or `MODULE:NAME`. Raises `InputError` if there is no such metric."""
    metric: object = plugins.load("metrics", name)
    if not callable(metric):
        raise InputError(f"the metric {name!r} is not a function")
    return metric


_OF_ANSWER = ("em", "f1", "precision", "recall")
_OF_FACTS = tuple(f"sp_{name}" for name in _OF_ANSWER)
FIGURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("em_f1", "squad", "hybridqa"), _OF_ANSWER),
    "hotpotqa": (*_OF_ANSWER, *_OF_FACTS, *(f"joint_{name}" for name in _OF_ANSWER)),
    "2wiki": (*_OF_ANSWER, *_OF_FACTS),
    "musique": (*_OF_ANSWER, "support_f1", "group_answer_sufficiency_f1", "group_support_sufficiency_f1"),
    "metaqa": ("hits@1", *_OF_ANSWER),
    "tatqa": ("em", "f1"),
    "hits": ("h@1", "h@5", "mrr"),
    "evidence": ("evidence_precision", "evidence_recall"),
    "selection": ("selection_precision", "selection_recall", "selection_f1"),
    "abstention": ("coverage", "risk"),
    "rouge_l": ("rouge_l",),
    "bertscore": ("bertscore",),
}
"""The figures that each of pyfast's own metrics can have. A question has only those for which it has gold"""


def measured(name: str, metric: Metric, questions: Sequence[tuple[Record, Gold]]) -> list[dict[str, Share]]:
    """Apply a metric to many questions, and return the values of each question by name.

    If the metric returns something that is not a value, an `InputError` gives the `name` of the metric.
    """
    results = metric(questions)
    if len(results) != len(questions):
        raise InputError(f"the metric {name!r} returned {len(results)} results for {len(questions)} questions")
    return [{key: _share(name, key, value) for key, value in (values or {}).items()} for values in results]


def _share(metric: str, key: str, value: object) -> Share:
    above, below = value if isinstance(value, tuple) and len(value) == 2 else (value, 1.0)
    try:
        share = float(above), float(below)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = math.nan, math.nan
    if not (math.isfinite(share[0]) and math.isfinite(share[1])) or share[1] < 0:
        raise InputError(f"the metric {metric!r}: {key} is {value!r}, not a number or (numerator, denominator)")
    return share


_VERDICTS = {"yes", "no", "noanswer"}


class Overlap(NamedTuple):
    """Precision, recall and F1 of the tokens that an answer shares with a gold answer, each in [0, 1]."""

    f1: float
    precision: float
    recall: float


NOTHING, EVERYTHING = Overlap(0.0, 0.0, 0.0), Overlap(1.0, 1.0, 1.0)


def exact_match(prediction: str, gold: str) -> float:
    """Compare two answers after normalising both.

    Args:
        prediction: An answer.
        gold: The gold answer.

    Returns:
        1.0 if the normalised answers are equal, otherwise 0.0.

    Example:
        >>> from pyfast.evaluation import exact_match
        >>> exact_match("Huygens", "the Huygens"), exact_match("Huygens", "Christiaan Huygens")
        (1.0, 0.0)
    """
    return float(normalise(prediction) == normalise(gold))


def overlap(prediction: str, gold: str, *, verdicts_whole: bool = True, empty_is_right: bool = True) -> Overlap:
    """Compute precision, recall and F1 of the tokens of two normalised answers.

    Args:
        prediction: An answer.
        gold: The gold answer.
        verdicts_whole: Whether `yes`, `no` and `noanswer` must match exactly. True: if one of the answers is
            such a word and the other answer differs, the result is 0. False: they are ordinary words.
        empty_is_right: The result if both answers are empty after normalising. True: 1. False: 0.
    """
    p, g = normalise(prediction), normalise(gold)
    if verdicts_whole and p != g and (p in _VERDICTS or g in _VERDICTS):
        return NOTHING
    p_tokens, g_tokens = p.split(), g.split()
    if not p_tokens or not g_tokens:
        return EVERYTHING if empty_is_right and p_tokens == g_tokens else NOTHING
    common = sum((Counter(p_tokens) & Counter(g_tokens)).values())
    return _overlap(common, len(p_tokens), len(g_tokens))


def _overlap(common: int, given: int, wanted: int) -> Overlap:
    return Overlap(2.0 * common / (given + wanted), common / given, common / wanted)


def f1(prediction: str, gold: str) -> float:
    """Compute F1, the harmonic mean of token precision and recall. `yes` and `no` must match exactly.

    Args:
        prediction: An answer.
        gold: The gold answer.

    Returns:
        F1, in [0, 1].

    Example:
        >>> from pyfast.evaluation import f1
        >>> round(f1("Huygens", "Christiaan Huygens"), 2)
        0.67
    """
    return overlap(prediction, gold).f1


def set_overlap(prediction: str | None, answers: Sequence[str]) -> tuple[float, Overlap]:
    """Compare the items of an answer with a set of gold answers. Returns (exact match, overlap of items). The
    exact match is 1 if the items are the same, otherwise 0: a correct answer names all answers of the set, with
    commas or semicolons between them.
    """
    if prediction is None or not answers:
        return 0.0, NOTHING
    given, whole = set(items(prediction)), set(map(normalise, answers))
    if not given <= whole:  # A title may contain a comma. Without whole titles, their parts are compared.
        whole = {part for answer in answers for part in items(answer)}
    both = _overlap(len(given & whole), len(given), len(whole)) if given and whole else NOTHING
    return float(given == whole), both


def items(answer: str) -> list[str]:
    """Split an answer into items at commas and semicolons, and normalise each item. Empty items are left out."""
    return [item for part in re.split(r"[;,]", answer) if (item := normalise(part))]


def _values(record: Record, gold: Gold, compare: Callable[[str, str], Overlap]) -> dict[str, float]:
    if not gold.answerable:
        return dict.fromkeys(_OF_ANSWER, float(record.state == "abstained"))
    pairs = [(record.answer, answer) for answer in gold.answers] if record.answer is not None else []
    em = max((exact_match(*pair) for pair in pairs), default=0.0)
    best = max((compare(*pair) for pair in pairs), key=lambda overlap: overlap.f1, default=NOTHING)
    return {"em": em, **best._asdict()}


@of_answers
def em_f1(record: Record, gold: Gold) -> Values:
    """Compute exact match and token F1 by one rule for all data sets. For a set of answers, items are compared
    in place of tokens."""
    if gold.answer_mode == "all" and gold.answerable:
        em, of_set = set_overlap(record.answer, gold.answers)
        return {"em": em, **of_set._asdict()}
    return _values(record, gold, overlap)


_squad_2 = partial(overlap, verdicts_whole=False)


@of_answers
def squad(record: Record, gold: Gold) -> Values:
    """Compute EM and F1 as SQuAD 1.1's script does."""
    return _values(record, gold, partial(_squad_2, empty_is_right=False))


@of_answers
def hybridqa(record: Record, gold: Gold) -> Values:
    """Compute EM and F1 as HybridQA's script does, which is SQuAD 2's script. `yes` and `no` are ordinary
    words."""
    return _values(record, gold, _squad_2)


def musique(questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
    """Compute EM and F1 of the answer (the best over its accepted forms), and F1 of the supporting
    paragraphs, for questions that can be answered.

    In MuSiQue-Full, each question occurs twice (`pair` in the gold): with sufficient paragraphs, and without. Each
    pair has two more figures, as in the official script: `group_answer_sufficiency_f1` and
    `group_support_sufficiency_f1`. They equal the F1 of the answerable question if the system answered it and
    abstained from the other, and otherwise 0.
    """
    values = [_of_musique(record, gold) if gold.answerable else {} for record, gold in questions]
    pairs: dict[str, list[int]] = defaultdict(list)
    for place, (_, gold) in enumerate(questions):
        if gold.pair is not None:
            pairs[gold.pair].append(place)
    for places in pairs.values():
        right = [place for place in places if questions[place][1].answerable]
        if len(places) == 2 and len(right) == 1:
            own, both = values[right[0]], [questions[place] for place in places]
            sufficient = all(one.state == ("answered" if of.answerable else "abstained") for one, of in both)
            for part, name in (("answer", "f1"), ("support", "support_f1")):
                if name in own:
                    own[f"group_{part}_sufficiency_f1"] = sufficient * own[name]
    return values


def _of_musique(record: Record, gold: Gold) -> dict[str, float]:
    values = _values(record, gold, _squad_2) if gold.has_answer else {}
    if gold.supporting is None:
        return values
    cited, wanted = {item.uri for item in record.evidence}, set(gold.supporting)
    total = len(cited) + len(wanted)
    return {**values, "support_f1": 2.0 * len(cited & wanted) / total if total else 1.0}


@of_each
def hotpotqa(record: Record, gold: Gold) -> Values | None:
    """Compute EM, F1, precision and recall of the answer, of the supporting facts (sentences), and of both
    together.

    A piece of evidence counts as all sentences that it overlaps. A piece counts as one wrong sentence if it comes
    from a document that is in the `sentence_starts` of no question of the gold file. The figures of supporting
    facts need `supporting_facts` of the question, and `sentence_starts` of any question of the gold file. `pyfast
    data convert` writes both.
    """
    values = _values(record, gold, partial(overlap, empty_is_right=False)) if gold.has_answer else {}
    if gold.supporting_facts is None or gold.sentence_starts is None:
        return values or None
    cited, wanted = _sentences(record, gold), set(gold.supporting_facts)
    right = len(cited & wanted)
    precision, recall = (right / len(some) if some else 0.0 for some in (cited, wanted))
    facts = {"em": float(cited == wanted), "precision": precision, "recall": recall}
    joint = {name: values[name] * fact for name, fact in facts.items()} if values else {}
    for some in filter(None, (facts, joint)):
        some["f1"] = _harmonic(some["precision"], some["recall"])
    sp = {f"sp_{name}": value for name, value in facts.items()}
    return {**values, **sp, **{f"joint_{name}": value for name, value in joint.items()}}


def two_wiki(pairs: Sequence[tuple[Record, Gold]]) -> Sequence[Values | None]:
    """Compute the figures of `hotpotqa` without the joint ones, because 2WikiMultihopQA's script multiplies
    evidence triples into these, and pyfast's systems return none."""
    return [
        values and {name: value for name, value in values.items() if not name.startswith("joint_")}
        for values in hotpotqa(pairs)
    ]


def _sentences(record: Record, gold: Gold) -> set[tuple[str, int]]:
    cited = set()
    for number, item in enumerate(record.evidence):
        sentences = gold.sentences(item.uri, *item.offsets)
        cited |= {(item.uri, n) for n in ([-1 - number] if sentences is None else sentences)}
    return cited


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


@of_answers
def metaqa(record: Record, gold: Gold) -> Values:
    """Compute Hits@1, and EM, F1, precision and recall of the set of answers.

    Hits@1 is 1 if the first item of the answer is correct.
    """
    em, overlap = set_overlap(record.answer, gold.answers)
    first = next(iter(items(record.answer or "")), None)
    right = {*map(normalise, gold.answers), *(part for answer in gold.answers for part in items(answer))}
    return {"hits@1": float(first in right), "em": em, **overlap._asdict()}


NEAREST = 5


@dataclass(frozen=True, slots=True)
class Hits:
    """The ranking metrics of one answer, each in [0, 1]."""

    first: float
    among_five: float
    reciprocal_rank: float


def hits(prediction: str | None, answers: Sequence[str], entities: Sequence[str]) -> Hits:
    """Compute H@1, H@5 and the reciprocal rank (graph_convqa's paper, section 5.2).

    If the answer is correct, the rank is 1. Otherwise the entities are sorted by the Levenshtein distance between
    their names and the answer (at equal distances, they keep their order), and the rank is the position of the
    first correct entity. If no entity is correct, or if there is no answer, all three figures are 0.

    Args:
        prediction: The answer. None: there is no answer.
        answers: Accepted forms of the correct answer.
        entities: The names of the entities in the evidence of this turn.

    Returns:
        H@1, H@5 and the reciprocal rank.

    Example:
        >>> from pyfast.evaluation import hits
        >>> hits("Christian Huygens", ["Christiaan Huygens"], ["Saturn", "Christiaan Huygens"]).first
        1.0
    """
    gold, rank = set(map(normalise, answers)) - {""}, math.inf
    if prediction is not None and normalise(prediction) in gold:
        rank = 1
    elif prediction is not None and gold:
        ranked = enumerate(by_distance(prediction, entities), start=1)
        rank = next((place for place, entity in ranked if normalise(entity) in gold), math.inf)
    return Hits(float(rank == 1), float(rank <= NEAREST), 1 / rank)


def by_distance(prediction: str, entities: Sequence[str]) -> list[str]:
    """Sort the names of entities by their Levenshtein distance to the answer. Case is ignored."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    nearest = process.extract(
        prediction, entities, scorer=Levenshtein.distance, processor=str.casefold, limit=None
    )
    return [entity for entity, _, _ in nearest]


@of_answers
def hits_at(record: Record, gold: Gold) -> Values:
    """Compute ConvMix's H@1, H@5 and MRR from the `entities` in the trace of the answer."""
    entities = record.trace.get("entities", [])
    if not isinstance(entities, list) or not all(isinstance(entity, str) for entity in entities):
        raise InputError(f"the record of {record.id!r}: `entities` in its trace is not a list of strings")
    ranks = hits(record.answer, gold.answers, entities)
    return {"h@1": ranks.first, "h@5": ranks.among_five, "mrr": ranks.reciprocal_rank}


_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000, "percent": 0.01}
_NO_FIGURE = str.maketrans("", "", "'\"\\$€£¥%(),[]")
_FIGURE = re.compile(r"[+-]?\d+(\.\d+)?|[+-]?\.\d+")
_WITH_WORD = re.compile(r"[\d.]+\s?[a-zA-Z]+")
_NEGATIVE = re.compile(r"\([\d.\s]+\)")
_PERCENT = re.compile(r"[\d.\s]+%")
_MOST = 300  # the maximum number of characters of a number; a longer one counts as text


@of_answers
def tatqa(record: Record, gold: Gold) -> Values:
    """Compute TAT-QA's EM and F1, comparing numbers by their value and scale. If the gold answer is a count or a
    calculation, F1 equals EM.

    The metric follows the data set's own script, which expects a scale (such as million) with each answer. In
    pyfast, an answer is a single string, so pyfast reads it in up to three ways, and the best score counts: first,
    as it is; second, with its last word as the scale ("58.2 million"); third, a single number without a percent
    sign as a fraction that stands for a percentage (0.2342 equals 23.42 percent), rounded to four decimals. The
    first two ways round numbers to two decimals. A multi-span question has several answers, the spans, separated
    by semicolons or line ends or, if there are none of these, by commas followed by a space.
    """
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
    return em, em if kind in ("arithmetic", "count") else f1


def _spans(prediction: str, many: bool) -> list[str]:
    spans = re.split(r"[;\n]", prediction) if many else [prediction]
    if many and len(spans) == 1:
        spans = prediction.split(", ")
    return [span.strip() for span in spans if span.strip()]


def _with_scale(spans: list[str]) -> tuple[list[str], str]:
    """Remove the scale from the end of each span, such as `million` in "58.2 million". Returns (the spans without
    it, the scale).

    If the last span has no scale, or two spans have different scales, the result is (the unchanged spans, "").
    """
    values, found = list[str](), list[str]()
    for span in spans:
        value, _, scale = span.rpartition(" ")
        has_scale = scale.lower() in _SCALES.keys() - {"hundred"} and is_number(value)
        values.append(value if has_scale else span)
        found.append(scale.lower() if has_scale else "")
    return (values, found[-1]) if found[-1] and len({*found} - {""}) == 1 else (spans, "")


def _joined(spans: Sequence[str], scale: str) -> str:
    """Join the sorted spans into one text. With the scale "million", the span "3" becomes "3000000.0000",
    "3%" becomes "0.0300", and "about 3" becomes "about 3 million"."""
    return " ".join(_scaled(span, scale) for span in sorted(spans))


def _scaled(span: str, scale: str) -> str:
    if not is_number(span):
        return f"{span} {scale}" if scale else span
    number = to_number(span)
    return _plain(number if "%" in span else round(number, 2) * _factor(scale))


def _plain(number: float) -> str:
    return f"{number:.4f}"


def _factor(words: str) -> float:
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


def to_number(text: str) -> float:
    """Convert a text that `is_number` accepts to a number. A number in brackets is negative."""
    match = _FIGURE.search(text.translate(_NO_FIGURE))
    assert match is not None
    number = float(match[0]) if "." in match[0] else int(match[0])
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
    return float(a == b), round(_harmonic(precision, recall), 2)


def _normalised(text: str) -> str:
    return " ".join(filter(None, (_token(token) for token in text.split(" "))))


def _token(token: str) -> str:
    token = token.lower()
    if not is_number(token):
        token = token.translate(PUNCTUATION)
    if is_number(token):
        return str(to_number(token))
    return " ".join(ARTICLES.sub(" ", token).split())
