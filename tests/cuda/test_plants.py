"""What the two ways to execute kernels find: every planted fault, and nothing where there is none."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import device_ops
import numpy as np
import pytest
from builds import KERNELS, KINDS, build_ptx, compile_all, link
from device_ops import Device, TwoWays
from emulated import Argument, Array, CallError, Caught, Driver, Out
from graph_problems import graph, random_matrix
from interpreted import Interpreter
from plants import CONTROLS, OF_CONTROLS, OF_KERNELS, Plant
from pool_problems import random_problem
from ptx.faults import Fault
from test_device_gatv2 import check_wide_rows
from test_device_streams import check_beyond, check_far_apart, check_scan, check_steps
from test_maxsim import codes_of, every_pair, vectors

from conftest import NO_INTERPRETER, Objects
from pyfast import ops

NUMBERS = np.random.default_rng(0).integers(0, 4, 1000, dtype=np.int32)
POOLS = random_problem([3, 40, 2, 70, 5], terms=60, per_row=40)
GRAPHS = graph([random_matrix(n, 0.4, seed=n) for n in (3, 4, 5, 60)])  # in shared memory, but for the last


def _sum(device: Device) -> None:
    sums, total = device.call("sum", NUMBERS, Out((5,), np.int32), Out((1,), np.int32))
    assert total[0] == sums.sum() == NUMBERS.sum()


def _count(device: Device) -> None:
    (counts,) = device.call("count", NUMBERS, Out((4,), np.int32))
    np.testing.assert_array_equal(counts, np.bincount(NUMBERS, minlength=4))


def _keep(device: Device) -> None:
    kept, found = device.call("keep", NUMBERS, Out((1000,), np.int32), Out((1,), np.int32))
    np.testing.assert_array_equal(kept[: found[0]], NUMBERS[NUMBERS != 0])


def _pass(device: Device) -> None:
    numbers = NUMBERS[:512]
    (passed,) = device.call("pass", numbers, Out((512,), np.int32))
    np.testing.assert_array_equal(passed.reshape(-1, 32), np.roll(numbers.reshape(-1, 32), -1, axis=1))


def _degree(device: Device) -> None:
    degree = device_ops.weighted_degree(device, POOLS.X, POOLS.offsets, POOLS.docs)
    np.testing.assert_allclose(degree, ops.weighted_degree(POOLS.X, POOLS.offsets, POOLS.docs), rtol=1e-6)


def _rank(device: Device) -> None:
    score = device_ops.graph_rank(device, POOLS.semantic, POOLS.semantic % 0.3, POOLS.offsets, 0.5)
    expected = ops.graph_rank(POOLS.semantic, POOLS.semantic % 0.3, POOLS.offsets, 0.5)
    np.testing.assert_array_equal(score, expected)


def _graph(device: Device) -> None:
    q = POOLS
    found = device_ops.evidence_graph(device, q.X, q.offsets, q.docs, "dot", threshold=4.0)
    expected = ops.evidence_graph(q.X, q.offsets, q.docs, "dot", threshold=4.0)
    np.testing.assert_array_equal(found.indices, expected.indices)


def _pagerank(device: Device) -> None:
    np.testing.assert_allclose(device_ops.pagerank(device, GRAPHS), ops.pagerank(GRAPHS), rtol=1e-5)


def _tile(device: Device) -> None:
    codes = np.random.default_rng(0).integers(-128, 128, (24, 32)).astype(np.int8)
    (sums,) = device.call("tile", codes, Out((16, 8), np.int32))
    np.testing.assert_array_equal(sums, codes[:16].astype(int) @ codes[16:].T.astype(int))


def _maxsim(device: Device) -> None:
    """Documents and queries of several tiles, tokens that are equal, and pairs in no order."""
    queries, query_offsets = vectors([70, 3], 32, 1)
    documents, token_offsets = vectors([140, 20, 30], 32, 2)
    tokens = np.concatenate([documents[0], documents[1], documents[0][:30]])
    tokens[20:40] = tokens[:20]
    codes, scales = codes_of(tokens)
    for pairs in (every_pair(queries, documents), np.array([(0, 0), (1, 1), (0, 2), (0, 2), (0, 1)])):
        for one in ((tokens, token_offsets, pairs), (codes, token_offsets, pairs, scales)):
            found = device_ops.maxsim(device, np.concatenate(queries), query_offsets, *one)
            expected = ops.maxsim(np.concatenate(queries), query_offsets, *one)
            np.testing.assert_array_equal(found, expected)


PROBLEMS: dict[str, Callable[[Device], None]] = {
    "sum": _sum,
    "count": _count,
    "keep": _keep,
    "pass": _pass,
    "degree": _degree,
    "rank": _rank,
    "graph": _graph,
    "pagerank": _pagerank,
    "scan": lambda device: check_scan(device, 3_000),
    "wide": check_wide_rows,
    "steps": check_steps,
    "far": check_far_apart,
    "beyond": check_beyond,
    "tile": _tile,
    "maxsim": _maxsim,
}


def changed(text: str, plant: Plant) -> str:
    there = text.count(plant.old)
    assert there == 1, f"plants.py, {plant.name!r}: its place in the kernel is there {there} times:\n{plant.old}"
    return text.replace(plant.old, plant.new)


def planted(plant: Plant, folder: Path) -> tuple[Path, Path]:
    """A copy of the project's kernels with the fault in it: the source, and the folder of its headers."""
    headers = folder / "cuda"
    shutil.copytree(KERNELS, headers)
    place = headers / (plant.header or plant.source).name
    place.write_text(changed(place.read_text(), plant))
    return headers / plant.source.name, headers


def all_controls(folder: Path) -> Path:
    """One source with a copy of the controls for each of their plants, and one as they stand, which is the last.

    Compilers take much longer for the standard library's headers than for the kernels.
    """
    text = CONTROLS.read_text()
    includes = "".join(line + "\n" for line in text.splitlines() if line.startswith("#include"))
    body = text.replace(includes, "").replace("driver::calls()", "calls()")
    copies = [changed(body, plant) for plant in OF_CONTROLS] + [body]
    parts = [f"namespace copy_{i} {{\n{copy}\n}}\n" for i, copy in enumerate(copies)]
    of_copy = (
        '    for (const auto& [name, call] : copy_{0}::calls()) {{\n        all["{0} " + name] = call;\n    }}\n'
    )
    calls = "".join(of_copy.format(i) for i in range(len(copies)))
    source = folder / "controls.cu"
    source.write_text(
        f"{includes}{''.join(parts)}const std::map<std::string, driver::Call>& driver::calls() {{\n"
        f"    static std::map<std::string, Call> all;\n{calls}    return all;\n}}\n"
    )
    return source


@dataclass(frozen=True)
class Copy:
    """A device whose calls are those of one copy of the controls."""

    device: Device
    number: int

    @property
    def driver(self) -> Driver:
        return self.device.driver

    def call(self, name: str, *arguments: Argument) -> list[Array]:
        return self.device.call(f"{self.number} {name}", *arguments)


AS_THEY_STAND = len(OF_CONTROLS)


@pytest.fixture(scope="module")
def controls(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """All copies of the controls in one driver, for each kind of build."""
    made: list[Driver] = []

    @cache
    def make(kind: str) -> Driver:
        folder = tmp_path_factory.mktemp(f"controls-{kind}")
        compiled = compile_all([(all_controls(folder), KINDS[kind][0])], folder)
        made.append(Driver(link(kind, [*objects(kind, "core"), *compiled], folder)))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


@pytest.fixture(scope="module")
def interpreted_controls(
    controls: Callable[[str], Driver], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Interpreter]:
    folder = tmp_path_factory.mktemp("controls-ptx")
    return cache(lambda: Interpreter(controls("plain"), build_ptx([all_controls(folder)], folder)))


def finds(device: Device, problem: str) -> str:
    """What is found, or ''."""
    try:
        PROBLEMS[problem](device)
    except (Caught, CallError, Fault, AssertionError, device_ops.Malformed, pytest.fail.Exception) as found:
        return str(found) or repr(found)
    return ""


REPORT = {
    "plain": "emulator: |depends on|",
    "address": "AddressSanitizer|runtime error|emulator: ",
    "thread": "ThreadSanitizer: data race",
}

slow_but_plain = [
    pytest.param(kind, marks=[pytest.mark.slow(suite="plants")] * (kind != "plain")) for kind in REPORT
]
of_controls = pytest.mark.parametrize("number", range(len(OF_CONTROLS)), ids=[plant.name for plant in OF_CONTROLS])
of_kernels = pytest.mark.parametrize("plant", OF_KERNELS, ids=[plant.name for plant in OF_KERNELS])
FOR_BOTH = [plant for plant in OF_KERNELS if plant.interpreted]
needs_nvcc = pytest.mark.skipif(bool(NO_INTERPRETER), reason=NO_INTERPRETER)


def check_report(report: str, plant: Plant) -> None:
    assert bool(report) != plant.silent, report
    if report:
        assert re.search(REPORT[plant.build], report), report


@pytest.mark.parametrize("kind", slow_but_plain)
def test_the_emulator_finds_nothing_in_the_controls(kind: str, controls: Callable[[str], Driver]) -> None:
    for problem in ("sum", "count", "keep", "pass", "tile"):
        assert not finds(Copy(TwoWays(controls(kind)), AS_THEY_STAND), problem)


@needs_nvcc
def test_the_interpreter_finds_nothing_in_the_controls(interpreted_controls: Callable[[], Interpreter]) -> None:
    for problem in ("sum", "count", "keep", "pass", "tile"):
        assert not finds(Copy(interpreted_controls(), AS_THEY_STAND), problem)


@pytest.mark.slow(suite="plants")
@of_controls
def test_the_emulator_finds(number: int, controls: Callable[[str], Driver]) -> None:
    plant = OF_CONTROLS[number]
    check_report(finds(Copy(TwoWays(controls(plant.build)), number), plant.problem), plant)


@needs_nvcc
@of_controls
def test_the_interpreter_finds(number: int, interpreted_controls: Callable[[], Interpreter]) -> None:
    plant = OF_CONTROLS[number]
    report = finds(Copy(interpreted_controls(), number), plant.problem)
    assert bool(report) != plant.silent, report


@pytest.mark.slow(suite="plants")
@of_kernels
def test_the_emulator_finds_in_kernels(plant: Plant, objects: Objects, tmp_path: Path) -> None:
    source, headers = planted(plant, tmp_path)
    (made,) = compile_all([(source, KINDS[plant.build][0])], tmp_path, headers)
    others = [o for o in objects(plant.build, "ops") if o.name != made.name]
    # The planted one first: of an inline function that several have, the linker takes the first one's.
    driver = Driver(link(plant.build, [made, *others, *objects(plant.build, "core")], tmp_path))
    report = finds(TwoWays(driver), plant.problem)
    driver.close()
    check_report(report, plant)


@needs_nvcc
@pytest.mark.slow(suite="plants")
@pytest.mark.parametrize("plant", FOR_BOTH, ids=[plant.name for plant in FOR_BOTH])
def test_the_interpreter_finds_in_kernels(
    plant: Plant, modules: list[str], driver: Callable[[str], Driver], tmp_path: Path
) -> None:
    source, headers = planted(plant, tmp_path)
    planted_modules = [*modules, *build_ptx([source], tmp_path / "ptx", headers)]
    report = finds(Interpreter(driver("plain"), planted_modules), plant.problem)
    assert bool(report) != plant.silent, report
