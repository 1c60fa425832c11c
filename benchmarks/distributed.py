"""What workers of a Ray cluster cost beside one process, with an LLM that answers at once.

    python benchmarks/distributed.py --questions 100000 --workers 2

It needs the extra `ray`. It runs `pyfast answer` with `direct` once in one process and once with workers on this
machine, compares the answers, and prints for both: questions a second, the processor time of all processes for
1,000 questions (of the driver, of the workers and of Ray's own processes), and the memory of driver and workers,
at half of the run and at its end. The start is not in these times: they are those of the run minus those of a run
with as few questions as there are workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

TOKEN = "PYFAST_BENCHMARK"
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 0.25


@dataclass
class Measured:
    """Of a command and all processes that it starts."""

    seconds: float = 0.0
    cpu: dict[int, float] = field(default_factory=dict)
    """Seconds, by process"""
    parts: dict[int, str] = field(default_factory=dict)
    """`driver` (the command itself), `worker` or `Ray`, by process"""
    memory: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Bytes of its own, at each look"""

    def look(self, token: str) -> None:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if f"{TOKEN}={token}\0".encode() not in (path / "environ").read_bytes():
                    continue
                command = (path / "cmdline").read_bytes()
                fields = (path / "stat").read_text().rpartition(") ")[2].split()
                resident, shared = map(int, (path / "statm").read_text().split()[1:3])
            except OSError:
                continue
            pid = int(path.name)
            self.parts[pid] = "worker" if command.startswith(b"ray::") else "Ray"
            self.cpu[pid] = (int(fields[11]) + int(fields[12])) / TICK
            self.memory[pid].append((resident - shared) * PAGE)

    def of(self, part: str) -> float:
        """The seconds of all processes of a part."""
        return sum(seconds for pid, seconds in self.cpu.items() if self.parts[pid] == part)


def measured(folder: Path, questions: Path, *options: object) -> Measured:
    """Run the command once, from an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pyfast", "answer", questions, "--run", folder, *options]
    command += ["--system", "direct", "--llm", "instant"]
    seen, began = Measured(), time.monotonic()
    with subprocess.Popen([*map(str, command)], env={**os.environ, TOKEN: str(folder)}) as process:
        while process.poll() is None:
            seen.look(str(folder))
            time.sleep(LOOK_S)
    seen.parts[process.pid] = "driver"
    assert process.returncode == 0
    seen.seconds = time.monotonic() - began
    return seen


def written(folder: Path, count: int) -> Path:
    path = folder / f"{count}.jsonl"
    with path.open("w") as file:
        for number in range(count):
            file.write(
                f'{{"id": "q{number}", "question": "Who discovered moon {number} of planet {number % 9}?"}}\n'
            )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with TemporaryDirectory() as place:
        folder = Path(place)
        many, few = written(folder, given.questions), written(folder, given.workers)
        cost = {}
        for name, options in (("one", ()), ("workers", ("--ray", "local", "--workers", given.workers))):
            start = measured(folder / "few", few, *options)
            seen = measured(folder / name, many, *options)
            cpu = sum(seen.cpu.values()) - sum(start.cpu.values())
            cost[name] = cpu
            rate = given.questions / (seen.seconds - start.seconds)
            cpu_ms = 1e6 * cpu / given.questions
            print(f"{name}: {rate:,.0f} questions/s, {cpu_ms:,.0f} ms of CPU for 1,000 questions")
            for part in dict.fromkeys(seen.parts.values()):
                of_part = 1e6 * (seen.of(part) - start.of(part)) / given.questions
                print(f"  {part}: {of_part:,.0f} ms of CPU for 1,000 questions")
            for pid, memory in seen.memory.items():
                if seen.parts[pid] != "Ray":
                    half, end = memory[len(memory) // 2] >> 20, memory[-1] >> 20
                    print(f"  {seen.parts[pid]} {pid}: {half} MB, at the end {end} MB")
        same = (folder / "one" / "answers.jsonl").read_bytes() == (
            folder / "workers" / "answers.jsonl"
        ).read_bytes()
        print(f"answers are {'the same' if same else 'DIFFERENT'}")
        print(f"loss of throughput for a second of CPU: {100 * (1 - cost['one'] / cost['workers']):.1f} %")


if __name__ == "__main__":
    main()
