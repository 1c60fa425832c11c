"""Find the positive segments of a question from its gold answers and gold documents (HSEQ, A.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from pyfast.engine.question_files import read_question_records
from pyfast.errors import InputError, first_fault
from pyfast.retrieval import Index

_MOST_NAMED = 5  # If a question names more documents, the names are chance matches.
_SHORTEST = 3  # the minimum number of characters of an answer that is used if no document is named
_WORD = re.compile(r"\w+")
_VERDICTS = {" yes ", " no "}


class Gold(BaseModel):
    """A question with its gold answers, from one line of a question file."""

    id: str
    question: str = Field(min_length=1)
    answers: tuple[str, ...] = ()
    supporting: tuple[str, ...] = ()
    """The uris of the gold documents, if known"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that may be evidence for a question."""

    position: int
    """The position of the passage in the sequence of segments"""
    text: str
    uri: str
    """The uri of the passage's document"""
    alone: bool
    """Whether this is the only passage of its document"""


Positives = Mapping[int, float]
"""The weight of each positive segment, by its position in the corpus (the set P* of HSEQ's paper).

A segment that only shares words with the question has the weight `lexical_weight`, all others have the weight 1
"""


def read_gold(path: Path) -> list[Gold]:
    """Read the questions in a file, with their gold answers. If a line is invalid, an `InputError` names it."""
    golds: dict[str, Gold] = {}
    for place, line in read_question_records(path):
        try:
            gold = Gold.model_validate(line)
        except ValidationError as error:
            name, fault = first_fault(error)
            raise InputError(f"{place}: `{name}`: {fault}") from None
        if golds.setdefault(gold.id, gold) is not gold:
            raise InputError(f"{place}: the id {gold.id!r} occurs twice")
    return list(golds.values())


def candidate_passages(index: Index, questions: Sequence[str], prior: int) -> list[list[Candidate]]:
    """Find the candidates of each question: the `prior` best passages of a search, best first."""
    source = index.corpus.source[index.passages]
    corpus = index.corpus

    def passage(row: int) -> Candidate:
        position = int(index.passages[row])
        first, last = source.searchsorted((source[row], source[row] + 1)).tolist()
        return Candidate(position, corpus.render(position), corpus.uri(int(source[row])), last - first == 1)

    return [[passage(row) for row in pool.passages.tolist()] for pool in index.search(questions, prior)]


def weak_positives(
    gold: Gold, passages: Iterable[Candidate], max_positives: int, lexical_weight: float
) -> Positives:
    """Find the positive segments of a question (the set P* of HSEQ's paper, A.2).

    A passage that contains an answer is positive. If the question has gold documents, only passages of these
    documents can be positive. If it has one to five gold documents, and one of them has only one passage,
    this passage is positive even if it contains no answer. If more than `max_positives` passages are
    positive, the function keeps those most similar to the question (Jaccard).

    If no passage is positive by these rules, the passage most similar to the question is positive, with the
    weight `lexical_weight`. It is chosen among the passages of gold documents, or among all passages if none
    is from a gold document. If `lexical_weight` is 0, no passage is
    positive.
    """
    candidates = list(passages)
    near = partial(jaccard, words(gold.question))
    named = set(gold.supporting)
    answers = [words(answer) for answer in gold.answers]
    held = [it for it in candidates if (not named or it.uri in named) and holds(it.text, answers, bool(named))]
    if len(named) <= _MOST_NAMED:
        held += [it for it in candidates if it.uri in named and it.alone and it not in held]
    if held:
        return {it.position: 1.0 for it in sorted(held, key=lambda it: -near(words(it.text)))[:max_positives]}
    left = ([it for it in candidates if it.uri in named] or candidates) if lexical_weight else []
    best = max(left, key=lambda it: near(words(it.text)), default=None)
    return {} if best is None else {best.position: lexical_weight}


def words(text: str) -> str:
    """Return the words of a text in lower case, with single blanks before, between and after them."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def holds(text: str, answers: Iterable[str], named: bool) -> bool:
    """Return whether the text contains one of the answers. Apply `words` to each answer first.

    The answers yes and no never count. An answer of one or two characters counts only if `named` is true,
    that is, if the question has gold documents.
    """
    present = words(text)
    telling = (it for it in answers if it.strip() and it not in _VERDICTS)
    return any(it in present for it in telling if named or len(it) >= _SHORTEST + 2)


def jaccard(one: str, other: str) -> float:
    """Compute the overlap of two texts (Jaccard): the number of distinct words in both texts, divided by the
    number of distinct words in at least one of them. Apply `words` to each text first.
    """
    a, b = set(one.split()), set(other.split())
    return len(a & b) / len(a | b) if a or b else 0.0
