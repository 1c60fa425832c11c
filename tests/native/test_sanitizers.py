"""The C++ library under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a compiler"),
]


def build(sanitize: str, folder: Path) -> Path:
    configure = [
        *("cmake", "-S", str(ROOT), "-B", str(folder)),
        *("-DPYFAST_TESTS=ON", f"-DPYFAST_SANITIZE={sanitize}", "-DCMAKE_BUILD_TYPE=Debug"),
    ]
    for command in (configure, ["cmake", "--build", str(folder), "--target", "pyfast_tests", "-j", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "pyfast_tests"


@pytest.mark.parametrize(
    ("sanitize", "plant", "report"),
    [
        ("address,undefined", "--read-past-the-end", "ERROR: AddressSanitizer"),
        ("thread", "--race", "ThreadSanitizer: data race"),
    ],
)
def test_sanitizers(sanitize: str, plant: str, report: str, tmp_path: Path) -> None:
    program = build(sanitize, tmp_path)
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    run = {"capture_output": True, "text": True, "check": False, "timeout": 300, "env": environment}
    passed = subprocess.run([program], **run)
    assert passed.returncode == 0 and "passed" in passed.stdout, passed.stdout + passed.stderr
    # The sanitizer is at work: a planted fault is caught.
    caught = subprocess.run([program, plant], **run)
    assert caught.returncode != 0 and report in caught.stderr, caught.stdout + caught.stderr
