"""A whole run of a system with vLLM in the process."""

from typing import Any

import pytest
from runs import answer_all

from pyfast.engine import Budget, Question, Record
from pyfast.llm import LLM
from pyfast.retrieval import Index
from pyfast.systems import load_system

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Small contexts: a CPU reads the paper's 25 documents for half a minute.
SETTINGS = {"hop_k": "10", "hop_min": "2", "hop_max": "2", "final_min": "2", "final_max": "2"}


async def test_n2n_on_the_examples(llm: LLM, small: Index, example_questions: list[dict[str, Any]]) -> None:
    asked = [q for q in example_questions if q["type"] == "2-hop"][:2]
    system = load_system("n2n")
    records: list[Record] = []
    summary = await answer_all(
        iter([Question(q["id"], q["question"]) for q in asked]),
        system.ask(system.configure(SETTINGS)),
        small,
        llm,
        records.append,
        budget=Budget(attempts=1),
    )
    written = [record.as_json() for record in records]
    assert [record["id"] for record in written] == [q["id"] for q in asked]
    # What it says is its own affair, but under a schema it keeps to the form.
    assert all(record["state"] in ("answered", "abstained") for record in written), written
    assert all(record["evidence"] and record["trace"]["hops"] for record in written)
    assert summary.llm_calls >= 2 * len(asked) and summary.cached_tokens > 0
