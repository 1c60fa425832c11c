"""Compiles CUDA sources: with g++ and the emulator to a program, with nvcc to PTX."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "csrc" / "cuda"
SOURCES = [
    *sorted(KERNELS.glob("*.cu")),
    *sorted((HERE / "driver").glob("*_calls.cpp")),
    HERE / "driver" / "ops.cpp",
]
"""The ops and what calls them."""
INCLUDES = ["-I", HERE / "emulator", "-I", HERE / "driver", "-I", ROOT / "csrc" / "include"]

# What the kernels and the driver are compiled with, and the emulator's core, in which no access may count as a
# kernel's: it is never instrumented, and must not call memcpy where it copies words of lanes.
KINDS: dict[str, tuple[list[str], list[str]]] = {
    "plain": ([], []),
    "address": (
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
        ["-DEMULATOR_ASAN"],
    ),
    "thread": (["-fsanitize=thread"], ["-DEMULATOR_TSAN"]),
    "coverage": (["--coverage"], []),  # of reached_lines.py
}
COMMON = ["-std=c++20", "-O1", "-g1", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-fPIC"]


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def compile_all(sources: Iterable[tuple[Path, list[str]]], folder: Path, headers: Path = KERNELS) -> list[Path]:
    """An object of each source, with the flags beside it."""
    compiler = shutil.which("g++") or "c++"

    def compiled(source: Path, flags: list[str]) -> Path:
        made = folder / f"{source.stem}.o"
        run(compiler, *COMMON, *flags, *INCLUDES, "-I", headers, "-x", "c++", "-c", source, "-o", made)
        return made

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: compiled(*pair), sources))


def compile_core(kind: str, folder: Path) -> list[Path]:
    """The emulator and the driver's own part, which any sources can be linked with."""
    sanitize, core = KINDS[kind]
    emulator = sorted((HERE / "emulator").glob("*.cpp"))
    sources = [(source, [*core, "-fno-tree-loop-distribute-patterns"]) for source in emulator]
    return compile_all([*sources, (HERE / "driver" / "main.cpp", sanitize)], folder)


def link(kind: str, objects: Sequence[Path], folder: Path) -> Path:
    """A driver: the core, and sources of which one has its `calls()`."""
    program = folder / f"driver-{kind}"
    run(shutil.which("g++") or "c++", *KINDS[kind][0], *objects, "-o", program)
    return program


def build_ptx(sources: Iterable[Path], folder: Path, headers: Path = KERNELS) -> list[str]:
    """What nvcc makes of each source, as the project's own build calls it."""

    def compiled(source: Path) -> str:
        made = folder / f"{source.stem}.ptx"
        # As csrc/cuda.cmake has it: no contraction, but where sums are in no given order.
        exact = [] if source.stem.startswith("gatv2") else ["--fmad=false"]
        options = ["-std=c++20", "-O3", "-ptx", "-arch=compute_80", "-lineinfo", *exact]
        run("nvcc", *options, *INCLUDES[2:], "-I", headers, source, "-o", made)
        return made.read_text()

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, sources))
