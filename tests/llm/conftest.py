"""The real embedded model, loaded once for all tests of this folder."""

import asyncio
from collections.abc import Iterator

import pytest

from pyfast.llm import LLM, open_llm


@pytest.fixture(scope="session")
def embedded(model_installed: None) -> Iterator[LLM]:
    # Without the adapter, which was taught to answer questions only. One thread: several wait for each other in a
    # loop, which takes minutes where other tests have the cores.
    backend = open_llm("embedded:base", threads=1)
    asyncio.run(backend.start())
    yield backend
    asyncio.run(backend.close())
