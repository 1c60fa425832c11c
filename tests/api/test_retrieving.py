"""`retrieve`: many queries are answered as each is alone, by one search."""

import asyncio

import pytest

import pyfast
from pyfast.api.search import retrieve
from pyfast.errors import IndexFormatError, InputError

QUERIES = ["Who discovered Titan?", "moons of Mars", "zxqv"]


def test_many_queries_are_answered_as_each_is_alone(small: pyfast.Index) -> None:
    async def by_engine() -> list[list[pyfast.Evidence]]:
        async with pyfast.Engine(small, "instant") as engine:
            return [await engine.retrieve(query, 5) for query in QUERIES]

    passages = retrieve(QUERIES, small.folder, 5)
    assert passages == [retrieve([query], small, 5)[0] for query in QUERIES] == asyncio.run(by_engine())
    assert [len(one) for one in passages] == [5, 5, 0]
    assert retrieve([], small) == []


def test_what_does_not_fit_is_refused(small: pyfast.Index, tmp_path: object) -> None:
    with pytest.raises(InputError, match="k: expected a number of at least 1"):
        retrieve(QUERIES, small, 0)
    with pytest.raises(IndexFormatError):
        retrieve(QUERIES, str(tmp_path))
