"""The C++ library with every compiler that it is for: built by a parent project, installed, found and used."""

import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests" / "native").glob("*_test.cpp"))
INCLUDED = "\n".join(path.read_text() for path in TESTS)
OPS = sorted(
    path.stem for path in (ROOT / "csrc" / "cpu").glob("*.cpp") if (ROOT / "bindings" / path.name).exists()
)

PARENT = f"""
cmake_minimum_required(VERSION 3.22)
project(parent LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 23)
set(PYFAST_INSTALL ON)
add_subdirectory({ROOT} pyfast)
"""
# The library's own tests, as a program of somebody else's.
USER = f"""
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 23)
find_package(pyfast REQUIRED)
add_executable(user {" ".join(map(str, TESTS))})
target_link_libraries(user PRIVATE pyfast::core)
"""
COMPILERS = ("g++", "clang++-16", "clang++-19")
# One of each in CI, where the rest is built with g++, and all of them with `make test-all`.
SOME = {("clang++-16", "Debug", False), ("clang++-19", "Release", True)}


def way(*chosen: object) -> Any:
    suite = "compilers" if chosen in SOME else "matrix"
    return pytest.param(*chosen, marks=pytest.mark.slow(suite=suite), id="-".join(map(str, chosen)))


WAYS = [way(*chosen) for chosen in product(COMPILERS, ("Debug", "Release"), (False, True))]


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def needs(*programs: str) -> None:
    for program in ("cmake", *programs):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def project(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(text)
    return folder


def test_the_tests_use_every_op() -> None:
    """What is built and linked below is all of the library: no op without its header among them."""
    assert len(OPS) >= 15
    assert [op for op in OPS if f'#include "pyfast/{op}.hpp"' not in INCLUDED] == []


@pytest.mark.parametrize(("compiler", "build_type", "shared"), WAYS)
def test_a_parent_project_in_cxx23(compiler: str, build_type: str, shared: bool, tmp_path: Path) -> None:
    needs(compiler)
    build, prefix, use = (tmp_path / name for name in ("build", "prefix", "use"))
    chosen = (f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
    parent = project(tmp_path / "parent", PARENT)
    run(
        "cmake",
        "-S",
        parent,
        "-B",
        build,
        *chosen,
        f"-DBUILD_SHARED_LIBS={shared}",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    )
    commands = (build / "compile_commands.json").read_text()
    newer, older = ("-std=c++23", "-std=gnu++23", "-std=c++2b", "-std=gnu++2b"), ("-std=c++20", "-std=gnu++20")
    assert any(flag in commands for flag in newer) and not any(flag in commands for flag in older)
    assert ("-O3" in commands) == (build_type == "Release")  # what is to be debugged can be
    run("cmake", "--build", build, "-j", "2")
    run("cmake", "--install", build, "--prefix", prefix)
    user = project(tmp_path / "user", USER)
    run("cmake", "-S", user, "-B", use, *chosen, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", use, "-j", "2")
    assert "passed" in run(use / "user")


@pytest.mark.slow(suite="compilers")
def test_libcxx_compiles_it(tmp_path: Path) -> None:
    needs("clang++-19")
    if not list(Path("/usr/lib").glob("llvm-19/include/c++/v1/span")):
        pytest.skip("libc++ is not installed")
    chosen = ("-DCMAKE_CXX_COMPILER=clang++-19", "-DCMAKE_CXX_FLAGS=-stdlib=libc++")
    run("cmake", "-S", ROOT, "-B", tmp_path, *chosen, "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", tmp_path, "-j", "2")


@pytest.mark.slow(suite="compilers")
def test_aarch64(tmp_path: Path) -> None:
    """Compiled for another processor, and run by an emulator."""
    needs("aarch64-linux-gnu-g++", "qemu-aarch64")
    system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    compiler = ("-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-O1")
    run("cmake", "-S", ROOT, "-B", tmp_path, *system, *compiler, "-DPYFAST_TESTS=ON")
    run("cmake", "--build", tmp_path, "-j", "2")
    assert "passed" in run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", tmp_path / "pyfast_tests")
