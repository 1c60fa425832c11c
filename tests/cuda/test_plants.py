"""What the two ways to execute kernels find: every planted fault, and nothing where there is none."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import device_ops
import numpy as np
import pytest
from builds import KERNELS, KINDS, build_ptx, compile_all, link
from device_ops import Device, TwoWays
from emulated import Caught, Driver, Out
from graph_problems import graph, random_matrix
from interpreted import Interpreter
from plants import CONTROLS, OF_CONTROLS, OF_KERNELS, Plant
from pool_problems import random_problem
from ptx.faults import Fault

from conftest import NO_INTERPRETER, Objects
from pyfast import ops

NUMBERS = np.random.default_rng(0).integers(0, 4, 1000, dtype=np.int32)
POOLS = random_problem([3, 40, 2], terms=60, per_row=40)
GRAPHS = graph([random_matrix(n, 0.4, seed=n) for n in (30, 40)])


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


PROBLEMS: dict[str, Callable[[Device], None]] = {
    "sum": _sum,
    "count": _count,
    "keep": _keep,
    "pass": _pass,
    "degree": _degree,
    "rank": _rank,
    "graph": _graph,
    "pagerank": _pagerank,
}


@pytest.fixture(scope="module")
def controls(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The controls as they stand."""
    parts = [*objects("plain", "core"), *objects("plain", "controls")]
    driver = Driver(link("plain", parts, tmp_path_factory.mktemp("controls")))
    yield driver
    driver.close()


def planted(plant: Plant, folder: Path) -> tuple[Path, Path]:
    """A copy of the kernels with the fault in it: the source, and the folder of its headers."""
    headers = folder / "cuda"
    shutil.copytree(KERNELS, headers)
    source = headers / plant.source.name
    shutil.copy(plant.source, source)
    place = headers / plant.header.name if plant.header else source
    text = place.read_text()
    assert text.count(plant.old) == 1, f"{plant.name}: {place.name} has that {text.count(plant.old)} times"
    place.write_text(text.replace(plant.old, plant.new))
    return source, headers


def finds(device: Device, problem: str) -> str:
    """What is found, or ''."""
    try:
        PROBLEMS[problem](device)
    except (Caught, Fault, AssertionError, device_ops.Malformed) as found:
        return str(found) or repr(found)
    return ""


REPORT = {
    "plain": "emulator: |depends on|",
    "address": "AddressSanitizer|runtime error|emulator: ",
    "thread": "ThreadSanitizer: data race",
}
names = [plant.name for plant in (*OF_CONTROLS, *OF_KERNELS)]


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "plain")) for k in KINDS])
def test_nothing_is_found_in_the_controls(kind: str, objects: Objects, tmp_path: Path) -> None:
    driver = Driver(link(kind, [*objects(kind, "core"), *objects(kind, "controls")], tmp_path))
    for problem in ("sum", "count", "keep", "pass"):
        assert not finds(TwoWays(driver), problem)
    driver.close()


@pytest.mark.slow
@pytest.mark.parametrize("plant", [*OF_CONTROLS, *OF_KERNELS], ids=names)
def test_the_emulator_finds(plant: Plant, objects: Objects, tmp_path: Path) -> None:
    source, headers = planted(plant, tmp_path)
    (made,) = compile_all([(source, KINDS[plant.build][0])], tmp_path, headers)
    others = [] if plant.source == CONTROLS else objects(plant.build, "ops")
    parts = [*objects(plant.build, "core"), *(o for o in others if o.name != made.name), made]
    driver = Driver(link(plant.build, parts, tmp_path))
    report = finds(TwoWays(driver), plant.problem)
    driver.close()
    assert bool(report) != plant.silent, report
    if report:
        assert re.search(REPORT[plant.build], report), report


@pytest.mark.skipif(bool(NO_INTERPRETER), reason=NO_INTERPRETER)
@pytest.mark.slow
@pytest.mark.parametrize("plant", [*OF_CONTROLS, *OF_KERNELS], ids=names)
def test_the_interpreter_finds(
    plant: Plant, modules: list[str], driver: Callable[[str], Driver], controls: Driver, tmp_path: Path
) -> None:
    source, headers = planted(plant, tmp_path)
    host, others = (controls, []) if plant.source == CONTROLS else (driver("plain"), modules)
    report = finds(Interpreter(host, [*others, *build_ptx([source], tmp_path / "ptx", headers)]), plant.problem)
    assert bool(report) != plant.silent, report
