"""No question exceeds any of its limits, with any reply of the model, and it ends well all the same."""

import json
from typing import Any

import numpy as np
from hseq_runs import ledgers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import Scripted

from pyfast.engine import Budget
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index
from pyfast.systems.hseq.actions import action_text

QUESTIONS = ("Who discovered the moon that Huygens landed on?", "How many landers reached Mars?", "zzzz?")
MOODS = ("never", "always", "nothing", "everything", "wild", "broken", "cut off")


def moody(mood: str, seed: int) -> Scripted:
    """A model of one habit. Its tokens: three characters each, and as many as it may for what it says."""
    rng = np.random.default_rng(seed)

    def counted(text: str, request: Request, reason: str = "stop") -> Completion:
        asked = sum(len(message.content) for message in request.messages) // 3
        return Completion(text, reason, asked, 0, request.max_tokens)

    def select(request: Request) -> Completion:
        assert request.schema is not None
        fields = request.schema["$defs"]["Args"]["properties"]
        labels, k = fields["segment_ids"]["items"].get("enum") or [1], fields["top_k"]["const"]
        some = rng.permutation(labels)[:k].tolist()
        if mood in ("broken", "cut off"):
            return counted("{" if mood == "broken" else action_text(some, True, k), request, "length")
        strategy: Any = rng.choice(["children", "parent", "row", "column", "relation"]) if mood == "wild" else None
        enough = mood == "always" or (mood == "wild" and bool(rng.random() < 0.3))
        picked = [] if mood == "nothing" else labels[:k] if mood == "everything" else some
        return counted(action_text(picked, enough, k, strategy or "guided_topk"), request)

    def say(reply: dict[str, Any]) -> Any:
        return lambda request: counted(json.dumps(reply), request)

    return Scripted(
        guide=say({"first_look": "the moon that is meant", "expansion": "", "stop": "a name"}),
        select=select,
        head=say({"answer": "Titan", "supporting": []}),
        verify=say({"contradiction": True, "settle": "everything"}),
    )


limit = st.none() | st.integers(1, 12)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    mood=st.sampled_from(MOODS),
    seed=st.integers(0, 9),
    budget=st.builds(
        Budget,
        calls=limit,
        steps=st.none() | st.integers(1, 25),
        tokens=st.none() | st.integers(1, 9000),
        attempts=st.integers(1, 3),
    ),
    window=st.integers(1, 20),
    k=st.integers(1, 6),
    steps=st.integers(1, 8),
    refine=st.integers(0, 3),
    iterator=st.sampled_from(["llm", "lexical", "off"]),
)
def test_no_limit_is_exceeded(
    small: Index,
    mood: str,
    seed: int,
    budget: Budget,
    window: int,
    k: int,
    steps: int,
    refine: int,
    iterator: str,
) -> None:
    given_settings = {"window": window, "k": min(k, window), "steps": steps, "refine": refine}
    if iterator == "off":  # where the others change nothing
        given_settings, refine = {"window": window}, 0
    as_text = {name: str(value) for name, value in given_settings.items()}
    for record, ledger in ledgers(small, moody(mood, seed), QUESTIONS, budget, iterator=iterator, **as_text):
        assert record.state in ("answered", "abstained"), record.reason
        assert budget.calls is None or ledger.llm_calls <= budget.calls
        assert budget.steps is None or ledger.steps <= budget.steps
        assert budget.tokens is None or ledger.tokens <= budget.tokens
        taken = len(record.as_json()["trace"].get("steps", ()))
        assert taken <= steps + refine and (refine or taken <= steps)


def test_without_limits_they_all_answer(small: Index) -> None:
    for mood in MOODS:
        for record, _ in ledgers(small, moody(mood, 0), QUESTIONS[:2], Budget()):
            assert record.state == ("abstained" if mood == "nothing" else "answered"), mood


def test_the_ledger_tells_steps_tokens_and_time(small: Index) -> None:
    """Table 4, for each question."""
    llm = moody("never", 0)
    for record, ledger in ledgers(small, llm, QUESTIONS[:2], Budget(), steps="3"):
        assert ledger.stages["select"].calls == 3 == len(record.as_json()["trace"]["steps"])
        assert ledger.llm_calls == 1 + 3 + 1 and ledger.tokens > 1000
        assert ledger.stages.keys() == {"guide", "open_window", "select", "move_on", "canonicalize", "head"}
        assert all(stage.queued_us + stage.running_us > 0 for stage in ledger.stages.values())


def test_what_is_broken_is_asked_for_again_before_the_system_falls_back(small: Index) -> None:
    llm = Scripted(guide="broken", select="broken", head="broken")
    ((record, ledger),) = ledgers(small, llm, QUESTIONS[:1], Budget(attempts=3), steps="2")
    assert llm.kinds == [*["guide"] * 3, *["select"] * 6, *["head"] * 3] and record.state == "failed"
    assert ledger.fall_backs == {"guide": 1, "select": 2}


def test_a_strict_run_fails_where_the_system_would_fall_back(small: Index) -> None:
    llm = Scripted(guide={"first_look": "moons of planets", "expansion": "", "stop": "a name"}, select="broken")
    ((record, ledger),) = ledgers(small, llm, QUESTIONS[:1], Budget(attempts=2, strict=True))
    assert record.state == "failed" and llm.kinds == ["guide", "select", "select"]
    assert record.reason is not None and record.reason.startswith("select: malformed answer: ")
    assert ledger.fall_backs == {"select": 1}


def test_a_small_budget_is_used(small: Index) -> None:
    """Two calls: one step and the answer. One: the lexical iterator's picks, and the answer."""
    for calls, asked in ((1, ["head"]), (2, ["select", "head"]), (3, ["guide", "select", "head"])):
        llm = moody("never", 0)
        ((record, ledger),) = ledgers(small, llm, QUESTIONS[:1], Budget(calls=calls))
        assert llm.kinds == asked and record.state == "answered" and ledger.llm_calls == calls
        assert record.as_json()["trace"]["ended"] == "budget"
