"""The C++ library under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer; and its fuzzer."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from suites import seed

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow(suite="native"),
    pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a compiler"),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds pyfast_tests and pyfast_fuzz with sanitizers, once; gives the folder."""

    @cache
    def made(sanitize: str) -> Path:
        folder = tmp_path_factory.mktemp(sanitize)
        configure = [
            *("cmake", "-S", str(ROOT), "-B", str(folder), "-DPYFAST_TESTS=ON", "-DPYFAST_FUZZ=ON"),
            *(f"-DPYFAST_SANITIZE={sanitize}", "-DCMAKE_BUILD_TYPE=Debug"),
        ]
        targets = ["pyfast_tests", *(["pyfast_fuzz"] if "address" in sanitize else [])]
        for command in (configure, ["cmake", "--build", str(folder), "-j", "2", "--target", *targets]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        return folder

    return made


@pytest.mark.parametrize(
    ("sanitize", "plant", "report"),
    [
        ("address,undefined", "--read-past-the-end", "ERROR: AddressSanitizer"),
        ("thread", "--race", "ThreadSanitizer: data race"),
    ],
)
def test_sanitizers(sanitize: str, plant: str, report: str, build: Callable[[str], Path]) -> None:
    program = build(sanitize) / "pyfast_tests"
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    run = {"capture_output": True, "text": True, "check": False, "timeout": 300, "env": environment}
    passed = subprocess.run([program], **run)
    assert passed.returncode == 0 and "passed" in passed.stdout, passed.stdout + passed.stderr
    # The sanitizer is at work: a planted fault is caught.
    caught = subprocess.run([program, plant], **run)
    assert caught.returncode != 0 and report in caught.stderr, caught.stdout + caught.stderr


def test_malformed_input_is_refused_or_harmless(build: Callable[[str], Path]) -> None:
    """Some thousand inputs for each op, well-formed ones and others: a result as promised, or `pyfast::Error`."""
    environment = os.environ | {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": "abort_on_error=1"}
    command = [build("address,undefined") / "pyfast_fuzz", "4000", "all", str(seed() % 10**9)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, f"PYFAST_TEST_SEED={seed()} repeats it\n{done.stdout}{done.stderr}"
    counts = re.findall(r"(\w+): (\d+) results, (\d+) refusals", done.stdout)
    assert len(counts) >= 9
    for op, results, refusals in counts:  # the inputs reach both ways
        assert int(results) > 1000 and int(refusals) > 200, op
