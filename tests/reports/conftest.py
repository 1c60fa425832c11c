"""Intervals of scores are of few draws: what a report shows of them is tested, and not how exact they are."""

from collections.abc import Iterator

import pytest

from pyfast.evaluation import bootstrap


@pytest.fixture(scope="module", autouse=True)
def few_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "DRAWS", 100)
        yield
