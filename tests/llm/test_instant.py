import enum
import os
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from pyfast.errors import InputError
from pyfast.llm import Request, dialogue, open_llm

PROMPT = "Passages:\n[1] Paris is in France.\n\nQuestion: who directed the film that won the prize in 1999?\n"


async def answer(schema: dict[str, Any] | None, user: str = PROMPT, seed: int = 0) -> str:
    return (await open_llm("instant").complete(Request(dialogue(user, "Answer."), 100, schema, seed=seed))).text


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Hop(BaseModel):
    query: str
    kind: Literal["text", "table"]
    uses: int | None = Field(default=None, ge=1)


class Cat(BaseModel):
    sort: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    sort: Literal["dog"]


class Tree(BaseModel):
    name: str
    children: list["Tree"]
    parent: "Tree | None" = None


NUMBERS = st.integers(-1000, 1000)
FIELDS = st.one_of(
    st.sampled_from(
        [str, bool, Hop, Colour, list[Hop], dict[str, int], Cat | Dog, str | None, Tree, Any, tuple[int, str]]
    ),
    st.tuples(NUMBERS, st.integers(0, 20)).map(lambda b: Annotated[int, Field(ge=b[0], le=b[0] + b[1])]),
    st.tuples(NUMBERS, st.integers(2, 20)).map(lambda b: Annotated[int, Field(gt=b[0], lt=b[0] + b[1])]),
    st.tuples(NUMBERS, st.integers(1, 20)).map(lambda b: Annotated[float, Field(gt=b[0], lt=b[0] + b[1] / 8)]),
    NUMBERS.map(lambda low: Annotated[int, Field(ge=low)]),
    NUMBERS.map(lambda high: Annotated[float, Field(lt=high)]),
    st.tuples(st.integers(0, 90), st.integers(0, 9)).map(
        lambda b: Annotated[str, Field(min_length=b[0], max_length=sum(b))]
    ),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(
        lambda b: Annotated[list[str], Field(min_length=b[0], max_length=sum(b))]
    ),
)


@settings(max_examples=80, deadline=None)
@given(
    fields=st.lists(FIELDS, min_size=1, max_size=6),
    user=st.text(st.characters(), max_size=300),
    seed=st.integers(0, 9),
)
def test_answers_obey_any_pydantic_schema(fields: list[Any], user: str, seed: int) -> None:
    model = create_model("Model", **{f"field {i}": (kind, ...) for i, kind in enumerate(fields)})
    coroutine = answer(model.model_json_schema(), user, seed)
    with pytest.raises(StopIteration) as done:  # it never waits, so it needs no event loop
        coroutine.send(None)
    model.model_validate_json(done.value.value)


async def test_examples_win_and_strings_come_from_the_last_line() -> None:
    class Plan(BaseModel):
        entity: str = Field(examples=["Paris"])
        query: str
        number: int

    plan = Plan.model_validate_json(await answer(Plan.model_json_schema()))
    assert plan.entity == "Paris"
    assert plan.query in PROMPT.splitlines()[-1] and len(plan.query.split()) == 5
    assert (await answer(None)) in PROMPT.splitlines()[-1]


async def test_numbers_depend_on_the_request_and_nothing_else() -> None:
    schema = {"type": "integer", "minimum": 0, "maximum": 10**9}
    assert await answer(schema) == await answer(dict(schema))
    assert len({await answer(schema, f"{i}\nsame last line") for i in range(100)}) == 100
    assert await answer(schema, seed=1) != await answer(schema, seed=2)


def test_hash_seed_does_not_matter() -> None:
    code = """if True:
        import asyncio
        from pyfast.llm import Request, dialogue, open_llm
        fields = {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"enum": ["x", "y", "z"]}}
        schema = {"type": "object", "properties": fields}
        request = Request(dialogue("one\\ntwo three four five six seven eight", "system"), 10, schema)
        print(asyncio.run(open_llm("instant").complete(request)).text)"""
    answers = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "format": "date"},
        {"type": "rubbish"},
        {"$ref": "#/$defs/none"},
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {
            "$ref": "#/$defs/A",
            "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}},
        },
    ],
)
async def test_what_it_cannot_honour_it_refuses(schema: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        await answer(schema)
