"""One document of 10 or 50 MB: seconds and less than 2 GB, in any shape. Limits, not measurements.

The seconds are the processor's: other tests run at the same time.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ENCODE = """
import sys, time
from pyfast.corpus import TextDocument, decode, encode

sample = sys.argv[1]
text = sample * (int(sys.argv[2]) * 1_000_000 // len(sample.encode()))
began = time.process_time()
corpus = encode([TextDocument("u", "", text)])
seconds = time.process_time() - began
assert decode(corpus)[0].text == text
assert all(len(corpus.content(i)) <= 4000 for i in corpus.passages()[:1000].tolist())
# Not getrusage's: that counts the process which this one was forked from, however large it was.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) / 1e6)
"""


@pytest.mark.parametrize("sample", ["This is a sentence of a long text. ", "x", " ", ".", "漢字。"])
@pytest.mark.parametrize("megabytes", [10, pytest.param(50, marks=pytest.mark.slow(suite="shapes"))])
def test_one_long_text(sample: str, megabytes: int) -> None:
    command = [sys.executable, "-c", ENCODE, sample, str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 0.6 * megabytes and gigabytes < 0.2 + 0.036 * megabytes, done.stdout


READ = """
import sys
from pathlib import Path
import pyfast.retrieval.index.parts
from pyfast.corpus import encode, read

def status(name):
    (kilobytes,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith(name))
    return int(kilobytes) / 1e3

table, small = Path(sys.argv[1]), Path(sys.argv[2])
encode(read([small]))  # what is imported and allocated once
before = status("VmRSS")
corpus = encode(read([table]))
assert len(corpus.passages()) == int(sys.argv[3])
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_of_a_table(tmp_path: Path) -> None:
    rows = 80_000
    table, small = tmp_path / "orders.csv", tmp_path / "one.csv"
    small.write_text("id,name\n1,order\n")
    with table.open("w") as file:
        file.write("id,name,city,price,amount,status,note\n")
        for k in range(rows):
            file.write(
                f"{k},order{k % 9973} of{k % 7919},city{k % 4001},{k / 7:.2f},{k % 997},open,note {k % 9001} {k}\n"
            )
    done = subprocess.run(
        [sys.executable, "-c", READ, table, small, str(rows)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    times = float(done.stdout) * 1e6 / table.stat().st_size
    assert 5 < times < 20, times
