"""The wheel installs into an empty environment and works there without a compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(suite="packages")  # it compiles the whole core, and a package index must answer

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "setup.py", "bindings", "csrc", "pyfast")

USE = """
import shutil, sys
import numpy as np
from scipy.sparse import csr_array
assert not any(map(shutil.which, ("cc", "gcc", "c++", "g++", "clang", "cmake", "make", "ninja"))), "a compiler"
from pyfast import ops
X = csr_array(np.array([[1, 0, 2], [0, 3, 4]], dtype=np.float32))
graph = ops.evidence_graph(X, [0, 2], [0, 1])
assert graph.weights.tolist() == [6, 6] and graph.indices.tolist() == [1, 0]
assert ops.weighted_degree(X, [0, 2], [0, 1]).tolist() == [6, 6]
print(ops.__file__, *sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing left over from another build comes in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, source)
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(out), str(source))
    (made,) = out.glob("pyfast-*.whl")
    return made


def pip(python: str | Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = next(content.read(name).decode() for name in names if name.endswith("METADATA"))
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pyfast"}
    assert len([name for name in names if name.endswith((".so", ".pyd", ".dylib"))]) == 1
    assert "pyfast/py.typed" in names and "pyfast/_native.pyi" in names
    assert {str(p.relative_to(ROOT)) for p in (ROOT / "pyfast").rglob("*.py")} <= set(names)
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert needed and not any(name in line for line in needed for name in ("torch", "vllm", "cupy", "ray"))


def test_it_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    # All that `pyfast.ops` needs, of all that the wheel asks for: the rest is heavy, and pip's business.
    pip(python, "install", "--only-binary=:all:", "numpy", "scipy")
    pip(python, "install", "--no-deps", str(wheel))
    environment = {"PATH": str(python.parent), "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run([python, "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place, *modules = done.stdout.split()
    assert place.startswith(str(tmp_path)) and "torch" not in modules
