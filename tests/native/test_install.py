"""The C++ library as others use it: installed, moved, found by CMake, linked with; against the Python ops."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from pyfast import ops

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cpp"
INCLUDE = ROOT / "csrc" / "include"
HEADERS = sorted((INCLUDE / "pyfast").glob("*.hpp"))
CUDA_HEADERS = sorted((INCLUDE / "pyfast" / "cuda").glob("*.hpp"))  # installed where pyfast::cuda is built
QUESTION = "Who discovered the moon that Voyager 2 flew past at Neptune?"

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")

needs_compiler = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a compiler"
)


def run(*command: object, status: int = 0) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_every_public_function_is_exported() -> None:
    """A function without PYFAST_API would be missing in the shared library, where alone one would notice."""
    functions = 0
    for header in HEADERS + CUDA_HEADERS:
        # What stands at the start of a line and opens a parenthesis is a function.
        # A template that has its body here needs no symbol; one that only the library instantiates does.
        for line, end in re.findall(r"\n([A-Za-z][^\n(]*\([^;{]*)([;{])", header.read_text()):
            if end == ";" and not line.startswith(("inline ", "constexpr ", "using ")):
                assert line.startswith("PYFAST_API "), f"{header.name}: {line}"
                functions += 1
    assert functions > 10


@needs_compiler
@pytest.mark.slow(suite="packages")
def test_headers_stand_alone(tmp_path: Path) -> None:
    """Each as the only one of a source; and all after the macros `min` and `max` that some systems define."""
    headers = HEADERS + CUDA_HEADERS
    include = {header: f'#include "{header.relative_to(INCLUDE)}"\n' for header in headers}
    standard = {line for header in headers for line in re.findall(r"#include <.*>\n", header.read_text())}
    macros = "#define min(a, b) ((a) < (b) ? (a) : (b))\n#define max(a, b) ((a) > (b) ? (a) : (b))\n"
    source = tmp_path / "alone.cpp"
    for text in (*include.values(), "".join([*sorted(standard), macros, *include.values()])):
        source.write_text(text * 2)
        run("c++", "-std=c++20", "-fsyntax-only", *WARNINGS, "-I", INCLUDE, source)


def ranked(output: str) -> dict[str, list[tuple[float, int]]]:
    """The example's lists: name -> (score, document), best first."""
    out: dict[str, list[tuple[float, int]]] = {}
    for block in re.split(r"\n(?! )", output.strip())[1:]:
        name, *lines = block.splitlines()
        out[name] = [(float(score), int(document)) for score, document, *_ in map(str.split, lines)]
    return out


def expected() -> tuple[str, dict[str, list[tuple[float, int]]]]:
    """The same with scikit-learn and the Python ops."""
    lines = [line.split("\t") for line in (EXAMPLE / "documents.tsv").read_text().splitlines()]
    vectorizer = TfidfVectorizer(dtype=np.float32)
    X = csr_array(vectorizer.fit_transform([f"{title} {text}" for _, title, text in lines]))
    asked = csr_array(vectorizer.transform([QUESTION]))
    cosine = (X @ asked.T).toarray()[:, 0]
    pool = [d for d in np.argsort(-cosine, kind="stable").tolist() if cosine[d] > 0]
    semantic = cosine[pool]
    offsets = [0, len(pool)]
    tables = np.array([lines[d][0] == "table" for d in pool])
    graph = ops.evidence_graph(X, offsets, pool, top_k=3)
    score = ops.graph_rank(semantic, ops.weighted_degree(X, offsets, pool), offsets)
    kept = ops.prune(score, tables, offsets, min_nodes=3, max_nodes=6, per_kind=1)[1]
    bridge = ops.bridge_rank(X, offsets, pool, semantic, ([0, asked.nnz], asked.indices))
    best = np.argsort(-bridge, kind="stable")
    return f"{len(pool)} documents, {len(graph.indices)} edges", {
        "graph_rank, pruned": [(float(score[v]), pool[v]) for v in kept],
        "bridge_rank": [(float(bridge[v]), pool[v]) for v in best],
    }


@needs_compiler
@pytest.mark.slow(suite="packages")
@pytest.mark.parametrize("shared", [False, True])
def test_the_installed_library(shared: bool, tmp_path: Path) -> None:
    build, prefix, moved, example = (tmp_path / name for name in ("build", "prefix", "moved", "example"))
    kind = f"-DBUILD_SHARED_LIBS={'ON' if shared else 'OFF'}"
    run("cmake", "-S", ROOT, "-B", build, kind, "-DCMAKE_INSTALL_PREFIX=/nowhere")
    run("cmake", "--build", build, "-j", "2")
    run("cmake", "--install", build, "--prefix", prefix)
    prefix.rename(moved)
    shutil.rmtree(build)
    library = next(moved.glob("lib*/libpyfast.so" if shared else "lib*/libpyfast.a"))
    assert {path.name for path in (moved / "include" / "pyfast").iterdir()} == {h.name for h in HEADERS}
    if shared:
        assert library.resolve().name == "libpyfast.so.0.1.0"
        assert (library.parent / "libpyfast.so.0.1").exists()
    for path in (library.parent / "cmake" / "pyfast").iterdir():
        assert str(tmp_path) not in path.read_text() and "/nowhere" not in path.read_text(), path

    configure = ("cmake", "-S", EXAMPLE, "-B", example, f"-DCMAKE_PREFIX_PATH={moved}")
    run(*configure, "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", example)
    heading, lists = expected()
    output = run(example / "rank", EXAMPLE / "documents.tsv", QUESTION)
    assert output.splitlines()[0] == heading
    found = ranked(output)
    assert found.keys() == lists.keys()
    for name, entries in lists.items():
        assert [document for _, document in found[name]] == [document for _, document in entries]
        np.testing.assert_allclose(
            [score for score, _ in found[name]], [score for score, _ in entries], atol=2e-6, rtol=1e-5
        )
    assert "cannot read" in run(example / "rank", tmp_path / "missing.tsv", QUESTION, status=1)

    caller = tmp_path / "caller"
    caller.mkdir()
    (caller / "main.cpp").write_text(CALLER)
    for version, status in {"0.1": 0, "0.1.0": 0, "0.2": 1, "1.0": 1, "0.0.9": 1}.items():
        (caller / "CMakeLists.txt").write_text(CALLER_CMAKE.replace("@WANTED@", version))
        shutil.rmtree(caller / "build", ignore_errors=True)
        told = run("cmake", "-S", caller, "-B", caller / "build", configure[-1], status=status)
        assert ("pyfastConfig.cmake, version: 0.1.0" in told) == (status == 1)
        if version == "0.1":
            run("cmake", "--build", caller / "build")
            # An error is caught by its type, across the border of a shared library too.
            assert run(caller / "build" / "caller") == "alpha: must lie in [0, 1]\n"


CALLER_CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(caller LANGUAGES CXX)
find_package(pyfast @WANTED@ REQUIRED)
add_executable(caller main.cpp)
set_target_properties(caller PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_link_libraries(caller PRIVATE pyfast::core)
"""

CALLER = """
#include <cstdio>
#include <vector>

#include <pyfast/error.hpp>
#include <pyfast/graph_rank.hpp>

int main() {
    const std::vector<float> scores{1.0f, 2.0f};
    const std::vector<std::int64_t> offsets{0, 2};
    std::vector<float> out(2);
    try {
        pyfast::graph_rank(scores, scores, offsets, 2.0f, out);
    } catch (const pyfast::Error& error) {
        std::printf("%s\\n", error.what());
        return 0;
    }
    return 1;
}
"""
