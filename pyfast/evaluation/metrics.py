"""Exact match and token F1 as in the official scripts of data sets, and the metrics that use them.

All scripts normalise in the same way: lower case, no ASCII punctuation, no articles, single blanks. pyfast
first composes letters and their accents (NFC), so that two ways to write a letter are equal. The scripts differ in
two points:

| | `yes` and `no` are ordinary words | F1 of two answers that are empty after normalising |
|---|---|---|
| SQuAD 1.1 (`squad`) | yes | 0 |
| HybridQA, MuSiQue (`hybridqa`, `musique`): SQuAD 2's | yes | 1 |
| HotpotQA, 2WikiMultihopQA (`hotpotqa`) | no | 0 |
| `em_f1`, for all sets alike | no | 1 |
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyfast.engine import Record
from pyfast.evaluation.gold import Gold
from pyfast.evaluation.protocol import Values, of_answers

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICTS = {"yes", "no", "noanswer"}


@dataclass(frozen=True, slots=True)
class Score:
    """Exact match and F1 of one answer, each in [0, 1]."""

    em: float
    f1: float


class Overlap(NamedTuple):
    """Precision, recall and F1 of the tokens that an answer shares with a gold answer, each in [0, 1]."""

    f1: float
    precision: float
    recall: float


NOTHING, EVERYTHING = Overlap(0.0, 0.0, 0.0), Overlap(1.0, 1.0, 1.0)


def normalise(answer: str) -> str:
    """Normalise an answer as the official scripts do: lower case, no punctuation, no articles, single blanks.
    Before, letters and accents are composed (NFC).

    Args:
        answer: Any text.

    Returns:
        The normalised text.

    Example:
        >>> from pyfast.evaluation import normalise
        >>> normalise("The Hague!")
        'hague'
    """
    composed = unicodedata.normalize("NFC", answer)
    return " ".join(ARTICLES.sub(" ", composed.lower().translate(PUNCTUATION)).split())


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


def score(prediction: str | None, answers: Sequence[str]) -> Score:
    """Compare a prediction with each accepted form of one answer. Returns the highest exact match and the
    highest F1. Both are 0 if there is no prediction."""
    if prediction is None or not answers:
        return Score(0.0, 0.0)
    return Score(max(exact_match(prediction, a) for a in answers), max(f1(prediction, a) for a in answers))


def score_set(prediction: str | None, answers: Sequence[str]) -> Score:
    """Compute EM and F1 for a question with a set of answers.

    A correct answer names all answers of the set, with commas or semicolons between them.
    """
    em, overlap = set_overlap(prediction, answers)
    return Score(em, overlap.f1)


def set_overlap(prediction: str | None, answers: Sequence[str]) -> tuple[float, Overlap]:
    """Compare the items of an answer with a set of gold answers. Returns (exact match, overlap of items). The
    exact match is 1 if the items are the same, otherwise 0.
    """
    if prediction is None or not answers:
        return 0.0, NOTHING
    given = set(items(prediction))
    # A title may contain a comma. If the prediction does not name whole titles, compare their parts.
    gold = {normalise(a) for a in answers}
    parts = {part for a in answers for part in items(a)}
    whole = gold if given & gold == given else parts
    both = _overlap(len(given & whole), len(given), len(whole)) if given and whole else NOTHING
    return float(given == whole), both


def items(answer: str) -> list[str]:
    """Split an answer into items at commas and semicolons, and normalise each item. Empty items are left out."""
    return [item for part in re.split(r"[;,]", answer) if (item := normalise(part))]


def best(prediction: str | None, answers: Sequence[str], compare: Callable[[str, str], Overlap]) -> Overlap:
    """Compute the overlap of a prediction with each accepted form of the answer. Return the overlap with the
    best F1.
    """
    found = (compare(prediction, answer) for answer in answers) if prediction is not None else ()
    return max(found, key=lambda overlap: overlap.f1, default=NOTHING)


def _values(record: Record, gold: Gold, compare: Callable[[str, str], Overlap]) -> dict[str, float]:
    if not gold.answerable:
        return dict.fromkeys(("em", "f1", "precision", "recall"), float(record.state == "abstained"))
    em = 0.0 if record.answer is None else max((exact_match(record.answer, a) for a in gold.answers), default=0.0)
    return {"em": em, **best(record.answer, gold.answers, compare)._asdict()}


@of_answers
def em_f1(record: Record, gold: Gold) -> Values:
    """Compute exact match and token F1 by one rule for all data sets. For a set of answers, items are compared
    in place of tokens."""
    if gold.answer_mode == "all" and gold.answerable:
        em, of_set = set_overlap(record.answer, gold.answers)
        return {"em": em, **of_set._asdict()}
    return _values(record, gold, overlap)


@of_answers
def squad(record: Record, gold: Gold) -> Values:
    """Compute EM and F1 as the script of SQuAD 1.1 does."""
    return _values(record, gold, lambda p, g: overlap(p, g, verdicts_whole=False, empty_is_right=False))


def _squad_2(prediction: str, gold: str) -> Overlap:
    return overlap(prediction, gold, verdicts_whole=False)


@of_answers
def hybridqa(record: Record, gold: Gold) -> Values:
    """Compute EM and F1 as HybridQA's script does (the script of SQuAD 2). `yes` and `no` are ordinary
    words."""
    return _values(record, gold, _squad_2)


def musique(questions: Sequence[tuple[Record, Gold]], /) -> Sequence[Values | None]:
    """Compute EM and F1 of the answer (the best over its accepted forms), and F1 of the supporting
    paragraphs, for questions that can be answered.

    In MuSiQue-Full, each question stands twice (`pair` in the gold): with paragraphs that suffice, and without.
    Each pair has two more figures, as in the official script: `group_answer_sufficiency_f1` and
    `group_support_sufficiency_f1`. They are F1 of the question that can be answered if the system answered this
    question and abstained from the other, otherwise 0.
    """
    values = [_of_musique(record, gold) if gold.answerable else {} for record, gold in questions]
    pairs: dict[str, list[int]] = defaultdict(list)
    for place, (_, gold) in enumerate(questions):
        if gold.pair is not None:
            pairs[gold.pair].append(place)
    for places in pairs.values():
        right = [place for place in places if questions[place][1].answerable]
        if len(places) == 2 and len(right) == 1 and values[right[0]]:
            own = values[right[0]]
            sufficient = float(all(_tells_sufficiency(*questions[place]) for place in places))
            for part, name in (("answer", "f1"), ("support", "support_f1")):
                if name in own:
                    own[f"group_{part}_sufficiency_f1"] = sufficient * own[name]
    return values


def _tells_sufficiency(record: Record, gold: Gold) -> bool:
    return record.state == ("answered" if gold.answerable else "abstained")


def _of_musique(record: Record, gold: Gold) -> dict[str, float]:
    values = _values(record, gold, _squad_2) if gold.has_answer else {}
    if gold.supporting is None:
        return values
    cited, wanted = {item.uri for item in record.evidence}, set(gold.supporting)
    total = len(cited) + len(wanted)
    return {**values, "support_f1": 2.0 * len(cited & wanted) / total if total else 1.0}


@of_answers
def hotpotqa(record: Record, gold: Gold) -> Values:
    """Compute EM, F1, precision and recall of the answer, of the supporting facts (sentences), and of both
    together.

    A piece of evidence counts as all sentences that it overlaps. A piece counts as one wrong sentence if it comes
    from a document that is not in `sentence_starts`. The figures of supporting facts need `supporting_facts`
    and `sentence_starts` in the gold file, which `pyfast data convert` writes.
    """
    values = _values(record, gold, lambda p, g: overlap(p, g, empty_is_right=False))
    if gold.supporting_facts is None or gold.sentence_starts is None:
        return values
    cited, wanted = _sentences(record, gold), set(gold.supporting_facts)
    right = len(cited & wanted)
    precision, recall = (right / len(some) if some else 0.0 for some in (cited, wanted))
    facts = {"em": float(cited == wanted), "precision": precision, "recall": recall}
    joint = {name: values[name] * fact for name, fact in facts.items()}
    for some in (facts, joint):
        some["f1"] = _harmonic(some["precision"], some["recall"])
    sp = {f"sp_{name}": value for name, value in facts.items()}
    return {**values, **sp, **{f"joint_{name}": value for name, value in joint.items()}}


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
    right = {normalise(answer) for answer in gold.answers} | {part for a in gold.answers for part in items(a)}
    return {"hits@1": float(first is not None and first in right), "em": em, **overlap._asdict()}
