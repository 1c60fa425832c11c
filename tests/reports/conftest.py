"""Intervals of scores are of few draws: what a report shows of them is tested, and not how exact they are."""

from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("pyfast.evaluation.evaluate"), "DRAWS", 100)
        yield
