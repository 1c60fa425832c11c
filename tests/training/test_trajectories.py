"""Trajectories: what is to be picked in each window, and that the system asks exactly what was learnt."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scripted import Scripted, run

from pyfast.corpus import Level
from pyfast.engine import Question
from pyfast.errors import InputError
from pyfast.llm import Request
from pyfast.retrieval import Index
from pyfast.systems import load_system
from pyfast.systems.hseq.state import State
from pyfast.systems.hseq.system import Settings
from pyfast.systems.hseq.trajectories import Target, curriculum, mixed, quotas, target, trajectories
from pyfast.systems.hseq.weak_positives import Gold, candidate_passages, read_gold, weak_positives
from pyfast.systems.hseq.windows import Candidate

GIVEN = {"window": "4", "k": "2", "steps": "5", "prior": "24", "guidance": "template", "characters": "90"}


@pytest.fixture(scope="module")
def settings() -> Settings:
    found = load_system("hseq").configure(GIVEN)
    assert isinstance(found, Settings)
    return found


@pytest.fixture(scope="module")
def golds(examples: Path) -> list[Gold]:
    return read_gold(examples / "questions.jsonl")


def positives_of(index: Index, golds: Sequence[Gold], prior: int) -> list[dict[int, float]]:
    passages = candidate_passages(index, [gold.question for gold in golds], prior)
    return [dict(weak_positives(gold, found, 4, 0.0)) for gold, found in zip(golds, passages, strict=True)]


def state(window: Sequence[int], selected: Sequence[int] = ()) -> State:
    def shown(positions: Sequence[int]) -> tuple[Candidate, ...]:
        return tuple(Candidate(it, Level.PARAGRAPH, f"text {it}") for it in positions)

    return State("question?", "", shown(selected), shown(window))


def test_the_surest_of_the_window_at_most_k_and_sufficient_once_all_are_picked() -> None:
    positives = {20: 1.0, 30: 0.5, 40: 1.0}
    first = target("q", 1, state([10, 30, 20, 40]), positives, 2)
    assert (first.labels, first.sufficient, first.weight) == ((3, 4), False, 1.0)
    second = target("q", 2, state([10, 30, 50], [20, 40]), positives, 2)
    assert (second.labels, second.sufficient, second.weight) == ((2,), True, 0.5)
    nothing = target("q", 1, state([10, 50]), positives, 2)
    assert (nothing.labels, nothing.sufficient, nothing.weight) == ((), False, 1.0)


def test_trajectories_cover_what_their_windows_show(small: Index, golds: list[Gold], settings: Settings) -> None:
    """By lemma 1 a positive at the place L of the stream is picked within ceil(L / k) steps, if they are made."""
    positives = positives_of(small, golds, settings.prior)
    found = trajectories(small, golds, positives, settings)
    assert sum(len(steps) for steps in found) > len(golds) > 10
    lengths = set()
    for gold, wanted, steps in zip(golds, positives, found, strict=True):
        assert bool(steps) == bool(wanted)
        picked: list[int] = []
        for t, step in enumerate(steps, start=1):
            assert (step.question, step.t) == (gold.id, t)
            assert [it.position for it in step.state.selected] == picked
            shown = [it.position for it in step.state.window]
            assert not set(shown) & set(picked)
            new = [shown[label - 1] for label in step.labels]
            assert set(new) <= set(wanted) and len(new) == min(2, len(set(shown) & set(wanted)))
            picked += new
            assert step.sufficient == (set(wanted) <= set(picked))
        assert not any(step.sufficient for step in steps[:-1])
        if wanted:
            stream = small.passages[small.search([gold.question], settings.prior)[0].passages].tolist()
            reached = -(-(max(map(stream.index, wanted)) + 1) // 2) <= settings.steps
            assert steps[-1].sufficient or not reached
            lengths.add(len(steps))
    assert len(lengths) > 2


def test_the_system_asks_what_was_learnt(small: Index, golds: list[Gold], settings: Settings) -> None:
    """A model that says each target makes the system's calls, word for word and schema for schema."""
    targets = trajectories(small, golds, positives_of(small, golds, settings.prior), settings)
    asked = [(gold, steps) for gold, steps in zip(golds, targets, strict=True) if steps]
    expected: dict[str, Target] = {}
    for _, steps in asked:
        for step in steps:
            prompt, fields = step.prompt(settings)
            expected[prompt.request(fields, 0.0, 0).messages[-1].content] = step
    heard: list[str] = []

    def select(request: Request) -> str:
        said = request.messages[-1].content
        heard.append(said)
        prompt, fields = expected[said].prompt(settings)
        learnt = prompt.request(fields, 0.0, 0)
        assert (learnt.messages, learnt.schema) == (request.messages, request.schema)
        return expected[said].answer(settings)

    llm = Scripted(select=select, head={"answer": "x", "supporting": []})
    records = run(small, llm, [Question(gold.id, gold.question) for gold, _ in asked], "hseq", **GIVEN)
    assert sorted(heard) == sorted(expected)
    for record, (_, steps) in zip(records, asked, strict=True):
        walked = record.trace["steps"]
        assert [len(it["picked"]) for it in walked] == [len(step.labels) for step in steps]
        assert (record.trace["ended"] == "sufficient") == steps[-1].sufficient
        assert not any("note" in it for it in walked)


def test_what_is_to_be_said_is_the_action_as_json(settings: Settings) -> None:
    said = target("q", 1, state([10, 20, 30]), {10: 1.0, 30: 1.0}, 2).answer(settings)
    assert json.loads(said) == {
        "type": "select",
        "args": {"segment_ids": [1, 3], "strategy": "guided_topk", "top_k": 2},
        "sufficiency": True,
    }


def steps_of(name: str, lengths: Sequence[int]) -> list[Target]:
    empty = state([])
    return [
        Target(f"{name}{number}", t, empty, (), False, 1.0)
        for number, length in enumerate(lengths)
        for t in range(1, length + 1)
    ]


def test_quotas_are_proportional_and_add_up() -> None:
    assert quotas([1, 1, 1], 10) in ([4, 3, 3], [3, 4, 3], [3, 3, 4])
    assert quotas([3, 0, 1], 8) == [6, 0, 2]
    for wrong in ([], [0.0], [1.0, -1.0]):
        with pytest.raises(InputError, match="weights"):
            quotas(wrong, 4)


def test_a_mixture_takes_each_sources_quota_and_repeats_only_what_is_used_up() -> None:
    few, many = steps_of("few", [1, 1]), steps_of("many", [3] * 20)
    found = mixed([few, many], [1, 1], 12, seed=3)
    assert len(found) == 12
    assert sorted(it.question for it in found if it.question.startswith("few")) == ["few0"] * 3 + ["few1"] * 3
    rest = [(it.question, it.t) for it in found if it.question.startswith("many")]
    assert len(set(rest)) == 6
    assert found == mixed([few, many], [1, 1], 12, seed=3) != mixed([few, many], [1, 1], 12, seed=4)
    with pytest.raises(InputError, match="source 2: the searches found no evidence for any question"):
        mixed([few, []], [1, 1], 4, 0)
    with pytest.raises(InputError, match=r"one for each source \(2\), got 1"):
        mixed([few, many], [1], 4, 0)


def test_the_curriculum_goes_from_short_to_long() -> None:
    """No t-th step before its time, first steps to the end, and nothing is lost."""
    steps = steps_of("a", [3] * 200)
    found = curriculum(steps, np.random.default_rng(2))
    assert sorted(found, key=lambda it: (int(it.question[1:]), it.t)) == steps
    places = {t: [at / len(found) for at, it in enumerate(found) if it.t == t] for t in (1, 2, 3)}
    # A third of the time has a third of the first steps; the second steps are spread over the other two thirds.
    assert min(places[2]) == pytest.approx(1 / 9, abs=0.03)
    assert min(places[3]) == pytest.approx(1 / 9 + (1 / 3 + 1 / 2) / 3, abs=0.03)
    assert max(places[1]) > 0.98 and max(places[2]) > 0.98
    assert found != curriculum(steps, np.random.default_rng(3))
    assert curriculum([], np.random.default_rng(0)) == []
