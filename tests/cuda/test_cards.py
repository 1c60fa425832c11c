"""The kernels compile for every GPU that nvcc knows, from compute capability 8.0 on; older ones are refused."""

import os
import subprocess
from pathlib import Path

import pytest
from builds import ROOT

from conftest import NO_INTERPRETER

CAPABILITIES = (80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
TUNED_FOR = (80, 90)
pytestmark = [
    pytest.mark.slow(suite="cards"),
    pytest.mark.skipif(bool(NO_INTERPRETER), reason=NO_INTERPRETER),
]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_compile_for(ptx: Path, capability: int) -> None:
    """nvcc's own second half, ptxas. Where the kernels are tuned for a GPU, no register is kept in memory."""
    known = subprocess.run(["nvcc", "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    if f"sm_{capability}" not in known.split():
        pytest.skip("this nvcc does not know it")
    strict = ["-warn-spills", "-warn-lmem-usage", "-Werror"] if capability in TUNED_FOR else []
    for module in sorted(ptx.glob("*.ptx")):
        command = ["ptxas", f"-arch=sm_{capability}", "-O3", *strict, module, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{module.name}: {done.stderr}"


@pytest.mark.parametrize("architectures", ["75", "75-real;90"])
def test_older_gpus_are_refused(tmp_path: Path, architectures: str) -> None:
    options = ["-DPYFAST_CUDA=on", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "needs GPUs of compute capability 8.0 or higher" in " ".join(done.stderr.split())
