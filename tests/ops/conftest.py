"""Real pools, made once."""

from pathlib import Path

import pytest
from pool_problems import Problem
from real_pools import real_pools


@pytest.fixture(scope="session")
def real(data: Path) -> Problem:
    return real_pools(data)
