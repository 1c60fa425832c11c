"""What the paper proves of algorithm 1, on real questions: coverage, and halting in time."""

from itertools import product
from math import ceil
from pathlib import Path

import pytest
from hseq_runs import gold_questions, iterated, oracle, selected

from pyfast.corpus import read
from pyfast.retrieval import Index, build_index
from pyfast.systems.hseq.iterator import Limits
from pyfast.systems.hseq.views import PRIORITY

PRIOR = 60


def check(index: Index, path: Path) -> None:
    """Lemma 1 and proposition 1: all gold is picked, and the iteration halts, within ceil(L / k) steps."""
    questions, golds, streams = gold_questions(index, path, PRIOR, 40)
    assert len(questions) == 40
    lengths = [max(map(stream.index, gold)) + 1 for gold, stream in zip(golds, streams, strict=True)]
    assert max(lengths) > 20
    for (k, width), fill in product([(1, 1), (3, 3), (3, 16), (5, 8)], [False, True]):
        policies = [oracle(gold, k, fill) for gold in golds]
        found = iterated(index, questions, policies, Limits(width, k, PRIOR, 1, PRIORITY), PRIOR)
        for progress, gold, length in zip(found, golds, lengths, strict=True):
            picked = selected(progress)
            assert progress.ended == "sufficient" and gold <= set(picked)
            assert len(progress.steps) <= ceil(length / k)
            assert len(set(picked)) == len(picked)


def test_coverage_and_halting(hybridqa: Index, data: Path) -> None:
    check(hybridqa, data / "hybridqa" / "questions.jsonl")


@pytest.mark.slow(suite="data")
@pytest.mark.parametrize("name", ["hotpotqa", "tatqa", "metaqa"])
def test_coverage_and_halting_everywhere(data: Path, name: str, tmp_path: Path) -> None:
    check(build_index(read([data / name / "corpus.jsonl"]), tmp_path / name), data / name / "questions.jsonl")


@pytest.mark.parametrize("k", [1, 4])
def test_after_t_steps_min_of_kt_and_l_of_the_prefix(hybridqa: Index, data: Path, k: int) -> None:
    """Lemma 1, step for step: a policy that takes all it may has min(kt, L) items of the prefix after t steps."""
    questions, golds, streams = gold_questions(hybridqa, data / "hybridqa" / "questions.jsonl", PRIOR, 20)
    policies = [oracle(gold, k, True) for gold in golds]
    for steps in (1, 2, 5, 9):
        found = iterated(hybridqa, questions, policies, Limits(8, k, steps, 1, PRIORITY), PRIOR)
        for progress, gold, stream in zip(found, golds, streams, strict=True):
            length = max(map(stream.index, gold)) + 1
            seen = set(stream[:length]) & set(selected(progress))
            assert len(seen) >= min(k * len(progress.steps), length)


def test_without_a_search_the_stream_is_the_order(small: Index) -> None:
    """The rho-stream alone, gone through to its end: every segment of its levels is seen once, in order."""
    seen: list[int] = []

    async def passing(state):  # type: ignore[no-untyped-def]
        from pyfast.systems.hseq.iterator import Decision

        seen.extend(it.position for it in state.window)
        return Decision((), 0.0)

    (progress,) = iterated(small, ["any"], [passing], Limits(50, 3, 1000, 1, PRIORITY), 0)
    level = small.corpus.level
    assert progress.ended == "exhausted" and not progress.selected
    assert seen == sorted(
        (i for i in range(len(level)) if level[i] in PRIORITY), key=lambda i: (PRIORITY.index(level[i]), i)
    )
