"""For tests and benchmarks alike: where the real data is."""

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A shared machine may stall for longer than hypothesis's 200 ms an example. Each run draws others: 50 will do.
settings.register_profile("pyfast", deadline=None, max_examples=50)
settings.load_profile("pyfast")


_frozen = 0


def pytest_collection_finish() -> None:
    """Garbage is looked for among what tests make, not among all that torch is: that takes half a second."""
    global _frozen
    gc.collect()
    gc.freeze()
    _frozen = len(sys.modules)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same after a file whose tests have loaded torch, or as much."""
    if nextitem is not None and nextitem.path != item.path and len(sys.modules) > _frozen + 100:
        pytest_collection_finish()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the real data, from PYFAST_DATA; skips where there is none."""
    folder = Path(os.environ.get("PYFAST_DATA") or Path(__file__).parent / "../shared/data").resolve()
    if not (folder / "hotpotqa" / "corpus.jsonl").is_file():
        pytest.skip(f"no real data at {folder} (set PYFAST_DATA)")
    return folder
