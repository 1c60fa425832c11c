"""Which lines of each op the fuzzer reaches: Clang's own coverage of the library, after a while on each op.

python tests/native/fuzz_coverage.py FOLDER [SECONDS]     builds in FOLDER; 10 seconds for each op
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLANG = os.environ.get("CLANG", "19")


def run(*command: object, **environment: str) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_first_inputs(corpus: Path, seed: int) -> None:
    """Random bytes, so many that whole pools are drawn from them: libFuzzer itself begins with the shortest."""
    corpus.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for number in range(64):
        (corpus / f"first-{number}").write_bytes(draw.randbytes(draw.randrange(64, 2048)))


def main() -> None:
    folder, seconds = Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "10"
    flags = "-DCMAKE_CXX_FLAGS=-fprofile-instr-generate -fcoverage-mapping"
    compiler = f"-DCMAKE_CXX_COMPILER=clang++-{CLANG}"
    run("cmake", "-S", ROOT, "-B", folder, compiler, flags, "-DPYFAST_FUZZ=ON", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", folder, "-j", os.cpu_count(), "--target", "pyfast_fuzz")
    table = (ROOT / "tests" / "native" / "fuzz_target.cpp").read_text()
    for op in re.findall(r'\{"(\w+)", fuzz_\w+\}', table):
        corpus = folder / "corpus" / op
        write_first_inputs(corpus, 0)
        options = (f"-max_total_time={seconds}", "-max_len=2048", f"-artifact_prefix={corpus.parent}/")
        profile = str(folder / f"{op}.profraw")
        run(folder / "pyfast_fuzz", corpus, *options, PYFAST_FUZZ_OP=op, LLVM_PROFILE_FILE=profile)
    merged = folder / "all.profdata"
    run(f"llvm-profdata-{CLANG}", "merge", "-o", merged, *folder.glob("*.profraw"))
    sources = sorted((ROOT / "csrc" / "cpu").glob("*.cpp"))
    report = ("report", folder / "pyfast_fuzz", f"-instr-profile={merged}", *sources)
    for line in run(f"llvm-cov-{CLANG}", *report).splitlines():
        if found := re.match(r"(\S+\.cpp|TOTAL)\s+(.*)", line):  # regions, functions, lines, branches: three each
            lines, missed, share = found[2].split()[6:9]
            print(f"{Path(found[1]).name:24} {lines:>5} lines, {missed:>4} not reached: {share:>7}")


if __name__ == "__main__":
    main()
