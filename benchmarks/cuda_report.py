"""What the kernels take of a GPU, and what they must move through its memory: without a GPU.

    python benchmarks/cuda_report.py

The first table is nvcc's: registers of a thread, shared memory of a block, bytes spilled, for compute capability
9.0. It fails where anything is spilled, and at any warning. The second counts the bytes that an op must read and
write at least once each, and divides them by the bandwidth of an H100 (SXM5, 3.35 TB/s): no run there can be
faster. It is arithmetic, not a measurement.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BANDWIDTH = 3.35e12  # bytes a second

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


@dataclass(frozen=True)
class Kernel:
    """What ptxas says of one."""

    source: str
    name: str
    registers: int
    shared: int
    spilled: int


def kernels(source: Path) -> list[Kernel]:
    """Those of a source, each template's instances on their own."""
    exact = [] if source.stem.startswith("gatv2") else ["--fmad=false"]  # as csrc/cuda.cmake has it
    command = [
        *(
            "nvcc",
            "-std=c++20",
            "-O3",
            "-arch=sm_90",
            "--resource-usage",
            *exact,
            "-Werror",
            "all-warnings",
            "-c",
            "-o",
            "/dev/null",
        ),
        *("-I", str(ROOT / "csrc/include"), "-I", str(ROOT / "csrc/cuda"), str(source)),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found, name, spilled = [], "", 0
    for line in said.splitlines():
        if match := ENTRY.search(line):
            name = match[1]
        elif match := SPILLS.search(line):
            spilled = int(match[1]) + int(match[2])
        elif match := USED.search(line):
            found.append(Kernel(source.stem, name, int(match[1]), int(match[2] or 0), spilled))
    names = subprocess.run(
        ["c++filt"], input="\n".join(each.name for each in found), check=True, capture_output=True, text=True
    ).stdout
    return [
        Kernel(each.source, _short(full), each.registers, each.shared, each.spilled)
        for each, full in zip(found, names.splitlines(), strict=True)
    ]


def _short(name: str) -> str:
    name = name.replace("pyfast::cuda::(anonymous namespace)::", "").replace("pyfast::", "")
    return re.sub(r"^void ", "", name.split("(")[0])


@dataclass(frozen=True)
class Moved:
    """An op on a workload, and the bytes that it moves at least."""

    op: str
    workload: str
    bytes: float


def moved() -> list[Moved]:
    """By hand, from the arrays that each op reads and writes; what fits the second-level cache counts once."""
    pools, documents, terms = 1_000, 50, 73
    nodes = pools * documents
    rows = nodes * (terms * 8 + 20)  # term ids, weights; offsets and document ids
    edges = nodes * (documents - 1)
    matrices = nodes * documents * 4
    batch = f"{pools:,} pools of {documents} documents of {terms} terms"
    graphs = f"their graphs, {edges:,} edges"
    cursors, width, held = 10_000, 64, 24
    moving = [
        Moved("weighted_degree", batch, rows + nodes * 4),
        Moved("degree_rank (weighted_degree and graph_rank)", batch, rows + nodes * 16),
        Moved("graph_rank", f"{nodes:,} nodes", nodes * 12),
        Moved("evidence_graph", batch, rows + 3 * matrices + edges * 8 + nodes * 32),
        Moved("pagerank", graphs, edges * 8 * 3 + nodes * 40),
        Moved(
            "hseq_stream.window",
            f"{cursors:,} cursors, {width} wide, {held} segments held",
            cursors * (width * 8 * 4 + held * (8 + 4 * 12)),
        ),
    ]
    for n, e, heads, channels in ((8_000, 24_000, 2, 288), (20_000, 180_000, 2, 512)):
        for kind, size in (("float32", 4), ("bfloat16", 2)):
            row, shape = heads * channels * size, f"n={n:,}, E={e:,}, {heads}x{channels}, {kind}"
            attention = e * heads * 4
            moving += [
                # each edge reads its source's row: the rows are larger than the cache together
                Moved("gatv2", shape, (e + 2 * n) * row + 3 * attention + e * 8),
                # sources twice by destination, destination and gradient by source, and the sorting of the edges
                Moved(
                    "gatv2, backward",
                    shape,
                    (4 * e + 5 * n) * row + n / 8 * heads * channels * 8 + 6 * attention + e * 56,
                ),
            ]
    return moving


def main() -> None:
    found = [kernel for source in sorted((ROOT / "csrc/cuda").glob("*.cu")) for kernel in kernels(source)]
    print("| source | kernel | registers | shared bytes | spilled bytes |\n|---|---|---|---|---|")
    for kernel in found:
        print(f"| {kernel.source} | {kernel.name} | {kernel.registers} | {kernel.shared} | {kernel.spilled} |")
    print("\n| op | workload | MB moved | at 3.35 TB/s |\n|---|---|---|---|")
    for each in moved():
        micros = each.bytes / BANDWIDTH * 1e6
        print(f"| {each.op} | {each.workload} | {each.bytes / 1e6:,.1f} | {micros:,.1f} µs |")
    if any(kernel.spilled for kernel in found):
        sys.exit("registers are spilled")


if __name__ == "__main__":
    main()
