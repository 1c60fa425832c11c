"""One bad item of a list in a reply falls alone: the good ones stay, and the mends are counted."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

import pyfast
from pyfast.engine.replies import mended
from pyfast.knowledge.extraction_prompts import GraphFields
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant

RELATION = {
    "head": "Ada Brandt",
    "relation": "founded",
    "tail": "Holm and Sons",
    "description": "Ada Brandt founded it.",
    "keys": ["company"],
    "strength": 7,
}
GRAPH = {"relations": [RELATION] * 4, "entities": [], "themes": ["clocks"]}


def read(**changed: Any) -> tuple[GraphFields, int]:
    """The graph of a reply whose fifth relation has these fields."""
    reply = {**GRAPH, "relations": [*GRAPH["relations"], {**RELATION, **changed}]}
    return mended(GraphFields, json.dumps(reply))


@pytest.mark.parametrize(
    ("changed", "right"),
    [
        ({"keys": list("abcde")}, {"keys": list("abcd")}),
        ({"keys": "company"}, {"keys": ["company"]}),
        ({"keys": None}, {"keys": []}),
        ({"keys": ["a", None, "b"]}, {"keys": ["a", "b"]}),
        ({"strength": 11}, {"strength": 10}),
        ({"strength": 0}, {"strength": 1}),
        ({"strength": 7.5}, {"strength": 8}),
        ({"description": "x" * 400}, {"description": "x" * 300}),
        ({"tail": 1888}, {"tail": "1888"}),
    ],
)
def test_what_can_be_mended_is(changed: dict[str, Any], right: dict[str, Any]) -> None:
    graph, mends = read(**changed)
    assert len(graph.relations) == 5 and mends == 1
    assert {name: getattr(graph.relations[-1], name) for name in right} == right


@pytest.mark.parametrize("changed", [{"tail": None}, {"strength": "strong"}, {"strength": None}, {"head": ["a"]}])
def test_what_cannot_is_left_out_alone(changed: dict[str, Any]) -> None:
    graph, mends = read(**changed)
    assert len(graph.relations) == 4 and mends == 1


def test_whole_lists() -> None:
    many = {"relations": [RELATION] * 61, "entities": [{"name": "a", "kind": "b", "description": "c"}] * 41}
    graph, mends = mended(GraphFields, json.dumps(many))
    assert (len(graph.relations), len(graph.entities), graph.themes, mends) == (60, 40, [], 3)
    as_lists = {**GRAPH, "relations": [list(RELATION.values()), ["a", "b"], RELATION]}
    graph, _ = mended(GraphFields, json.dumps(as_lists))
    assert [it.head for it in graph.relations] == ["Ada Brandt"] * 2


class Picks(BaseModel):
    """The numbers of passages, and a text that is no item of a list."""

    picks: list[Annotated[int, Field(ge=1, le=9)]] = Field(max_length=3)
    answer: str = Field(max_length=5)


def test_a_wrong_value_is_never_made_a_right_one() -> None:
    assert mended(Picks, '{"picks": [2, 99, 3], "answer": "Titan"}') == (Picks(picks=[2, 3], answer="Titan"), 1)
    too_long = '{"picks": [1], "answer": "too long"}'
    for reply in ("{}", '{"picks": null, "answer": "x"}', '{"picks": [99], "answer": "x"}', too_long):
        with pytest.raises(ValidationError):
            mended(Picks, reply)


class OneTooMany:
    """An LLM whose plans have three alternatives, where two are possible."""

    fingerprint = "one too many"

    async def complete(self, request: Request) -> Completion:
        done = await Instant().complete(request)
        try:
            fields = json.loads(done.text)
        except ValueError:
            return done
        if "alternatives" in fields:
            fields["alternatives"] = ["moon", "Saturn", "Titan"]
        return Completion(json.dumps(fields), "stop", done.prompt_tokens, done.completion_tokens)


def test_mends_are_counted_in_the_status(small: pyfast.Index, tmp_path: Path) -> None:
    questions = ["Who discovered Titan?", "Which planet does Io circle?"]
    run = pyfast.answer(questions, index=small, llm=OneTooMany(), system="n2n", run=tmp_path / "run")
    assert run.status.repaired == pyfast.Run(tmp_path / "run").status.repaired == {"plan": 2}
    assert [record.usage.llm_calls for record in run.records] == [
        record.usage.llm_calls
        for record in pyfast.answer(questions, index=small, llm="instant", system="n2n").records
    ]


def test_questions_whose_search_found_nothing_are_counted(small: pyfast.Index, tmp_path: Path) -> None:
    questions = ["Xyzzy plugh?", "Who discovered Titan?"]
    run = pyfast.answer(questions, index=small, llm="instant", system="rag", run=tmp_path / "run")
    assert run.status.nothing_found == pyfast.Run(tmp_path / "run").status.nothing_found == 1
