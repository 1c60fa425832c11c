"""The CUDA sources, built once to be executed without a GPU; and the ops' problems, of tests/ops."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

sys.path.append(str(Path(__file__).parents[1] / "ops"))

from builds import KERNELS, KINDS, SOURCES, build_ptx, compile_all, compile_core, link
from device_ops import Device, InTurns, TwoWays
from emulated import Driver
from interpreted import Interpreter
from once import once
from pool_problems import Problem
from real_pools import real_pools

T = TypeVar("T")
NO_EMULATOR = "" if platform.machine() == "x86_64" and shutil.which("g++") else "the emulator needs x86-64 and g++"
NO_INTERPRETER = "" if shutil.which("nvcc") else "needs nvcc"


@pytest.fixture(scope="session")
def real(data: Path) -> Problem:
    return real_pools(data)


Objects = Callable[[str, str], list[Path]]


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """What g++ makes of the core or of the ops, once for each kind of build: plain, address (AddressSanitizer and
    UndefinedBehaviorSanitizer), thread.
    """
    if NO_EMULATOR:
        pytest.skip(NO_EMULATOR)

    @cache
    def compiled(kind: str, part: str) -> list[Path]:
        def compile_part(folder: Path) -> None:
            if part == "core":
                compile_core(kind, folder)
            else:
                compile_all([(source, KINDS[kind][0]) for source in SOURCES], folder)

        return sorted(once(tmp_path_factory, f"{kind}-{part}", compile_part).glob("*.o"))

    return compiled


@pytest.fixture(scope="session")
def driver(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """Drivers with all ops."""
    made: list[Driver] = []

    @cache
    def make(kind: str) -> Driver:
        parts = [*objects(kind, "core"), *objects(kind, "ops")]
        folder = once(tmp_path_factory, f"ops-{kind}", lambda folder: link(kind, parts, folder))
        made.append(Driver(folder / f"driver-{kind}"))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the PTX of all kernels."""
    if NO_INTERPRETER:
        pytest.skip(NO_INTERPRETER)
    return once(tmp_path_factory, "ptx", lambda folder: build_ptx(sorted(KERNELS.glob("*.cu")), folder))


@pytest.fixture(scope="session")
def modules(ptx: Path) -> list[str]:
    return [module.read_text() for module in sorted(ptx.glob("*.ptx"))]


@pytest.fixture(scope="session")
def interpreter(driver: Callable[[str], Driver], modules: list[str]) -> Interpreter:
    return Interpreter(driver("plain"), modules)


@pytest.fixture(scope="session")
def emulated(driver: Callable[[str], Driver]) -> TwoWays:
    return TwoWays(driver(os.environ.get("PYFAST_EMULATED_BUILD", "plain")))


@dataclass(frozen=True)
class Way:
    """A way to execute the kernels, and how many drawn problems it has time for."""

    device: Device
    examples: int
    pools: int
    """How many real pools."""

    def every(self, strategy: SearchStrategy[T], check: Callable[[T], None]) -> None:
        """Checks what the strategy draws."""
        limited = settings(max_examples=self.examples, derandomize=True, database=None)
        # With shrinking, a failure would take longer than it is worth: problems are small as they are drawn.
        limited = settings(limited, phases=[Phase.explicit, Phase.generate])
        limited(given(strategy)(lambda drawn: check(drawn)))()


# Quick ones first. The sanitizers see what the plain build cannot, and take their time.
WAYS = {
    "emulated": (20, 5),
    "interpreted": (4, 0),
    "address": (40, 3),
    "thread": (30, 3),
    "interpreted, long": (25, 1),
}


SUITE = {"address": "address", "thread": "thread", "interpreted, long": "interpreter"}
MARKS = {way: pytest.mark.slow(suite=suite) for way, suite in SUITE.items()}


@pytest.fixture(params=[pytest.param(way, marks=MARKS.get(way, ())) for way in WAYS])
def way(request: pytest.FixtureRequest) -> Way:
    """Each way to execute the kernels, one after another."""
    name = request.param
    if name.startswith("interpreted"):
        device: Device = request.getfixturevalue("interpreter")
    elif name == "emulated":
        device = request.getfixturevalue("emulated")
    else:
        device = InTurns(request.getfixturevalue("driver")(name))
    return Way(device, *WAYS[name])
