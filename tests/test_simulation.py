"""Runs in a simulated world (see tests/simulation): no seed breaks a promise, and each planted fault is found."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.__main__ import KINDS
from simulation.plants import PLANTS

ROOT = Path(__file__).resolve().parents[1]
ONCE_FAILED = [
    (int(seed), f"--{kind}" if (kind := of.partition(": ")[0]) in KINDS else "--runs")
    for line in (ROOT / "tests/simulation/seeds.txt").read_text().splitlines()
    for seed, of in [line.split(maxsplit=1)]
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulated disk needs LD_PRELOAD")


def simulate(*arguments: object) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "simulation", *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout + done.stderr


def commit() -> int:
    """A number that each commit has for itself."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(told.stdout.strip()[:7] or "0", 16)


@pytest.mark.guarantee("G1")
def test_the_first_seeds() -> None:
    assert simulate(120)[0] == 0
    assert simulate("--batches", 30)[0] == 0
    assert simulate("--index", 60)[0] == 0
    assert simulate("--knowledge", 30)[0] == 0
    assert simulate("--jobs", 100)[0] == 0


@pytest.mark.parametrize(("seed", "kind"), ONCE_FAILED)
def test_seeds_that_once_failed(seed: int, kind: str) -> None:
    assert simulate(kind, "--seed", seed)[0] == 0


def test_a_seed_means_the_same_again() -> None:
    told = [simulate("--seed", 10)[1] for _ in range(2)]
    assert told[0] == told[1] and "session 1" in told[0]


def test_a_fault_is_found_and_shrunk() -> None:
    fault = "a reply goes on before it is stored"
    code, told = simulate(2000, "--most", 1, "--plant", fault)
    found = re.search(r"^seed (\d+): ", told, re.MULTILINE)
    assert code == 1 and found
    code, told = simulate("--seed", found[1], "--shrink", "--plant", fault)
    before, after = (int(count) for count in re.findall(r"^\D*(\d+) questions; ", told, re.MULTILINE))
    assert code == 1 and 0 < after < before


def test_the_faults_have_their_places() -> None:
    """Code that is rewritten takes the place of a planted fault away, and the suite that plants them is slow."""
    places = {name: (ROOT / "pyfast" / plant.file).read_text().count(plant.old) for name, plant in PLANTS.items()}
    assert {name: count for name, count in places.items() if count != 1} == {}


@pytest.mark.slow(suite="simulation")
def test_fresh_seeds() -> None:
    """Two minutes of seeds that no commit before had."""
    for kind, seconds in {"runs": 40, "batches": 20, "index": 20, "knowledge": 20, "jobs": 20}.items():
        assert simulate(f"--{kind}", 10**6, commit() * 10_000, "--seconds", seconds)[0] == 0


@pytest.mark.slow(suite="planted")
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    kind = PLANTS[name].option
    code, told = simulate(kind, 2000, "--most", 1, "--plant", name)
    found = re.search(r"^seed (\d+): ", told, re.MULTILINE)
    assert code == 1 and found, told
    code, told = simulate(kind, "--seed", found[1])
    assert code == 0, f"the engine has a fault that was not planted: {told}"
