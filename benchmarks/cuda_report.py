"""What the kernels take of a GPU, without one.

    python benchmarks/cuda_report.py

nvcc's table: registers of a thread, shared memory of a block, bytes spilled, for compute capability 9.0. It fails
where anything is spilled, and at any warning.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

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


def main() -> None:
    found = [kernel for source in sorted((ROOT / "csrc/cuda").glob("*.cu")) for kernel in kernels(source)]
    print("| source | kernel | registers | shared bytes | spilled bytes |\n|---|---|---|---|---|")
    for kernel in found:
        print(f"| {kernel.source} | {kernel.name} | {kernel.registers} | {kernel.shared} | {kernel.spilled} |")
    if any(kernel.spilled for kernel in found):
        sys.exit("registers are spilled")


if __name__ == "__main__":
    main()
