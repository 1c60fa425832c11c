"""libFuzzer on every op: it searches for inputs that reach new lines, and finds none that break a promise."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_coverage import write_first_inputs
from suites import seed

ROOT = Path(__file__).parents[2]
OPS = re.findall(r'\{"(\w+)", fuzz_\w+\}', (ROOT / "tests" / "native" / "fuzz_target.cpp").read_text())
SECONDS = int(os.environ.get("PYFAST_FUZZ_SECONDS", "20"))
CLANG = "clang++-19"

pytestmark = pytest.mark.slow(suite="fuzz")


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("cmake") is None or shutil.which(CLANG) is None:
        pytest.skip(f"needs cmake and {CLANG}")
    folder = tmp_path_factory.mktemp("fuzz")
    configure = ("cmake", "-S", ROOT, "-B", folder, f"-DCMAKE_CXX_COMPILER={CLANG}", "-DPYFAST_FUZZ=ON")
    for command in (
        [*configure, "-DPYFAST_SANITIZE=address,undefined", "-DCMAKE_BUILD_TYPE=Debug"],
        ["cmake", "--build", folder, "-j", "2", "--target", "pyfast_fuzz"],
    ):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    yield folder / "pyfast_fuzz"


@pytest.mark.parametrize("op", OPS)
def test_no_input_breaks_a_promise(op: str, fuzzer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write_first_inputs(corpus, seed())
    options = [f"-max_total_time={SECONDS}", f"-seed={1 + seed() % 2**31}", "-max_len=2048", "-len_control=20"]
    done = subprocess.run(
        [fuzzer, corpus, *options, f"-artifact_prefix={tmp_path}/", "-print_final_stats=1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * SECONDS + 120,
        env=os.environ | {"PYFAST_FUZZ_OP": op},
    )
    assert done.returncode == 0, f"PYFAST_TEST_SEED={seed()} repeats it\n{done.stderr[-6000:]}"
    assert len(list(corpus.iterdir())) > 74  # it found ways further in
