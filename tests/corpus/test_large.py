"""One document of 50 MB: seconds and less than 2 GB, whatever it looks like. Limits, not measurements.

The seconds are the processor's: other tests run at the same time.
"""

import subprocess
import sys

import pytest

ENCODE = """
import sys, time
from pyfast.corpus import TextDocument, decode, encode

sample = sys.argv[1]
text = sample * (50_000_000 // len(sample.encode()))
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
def test_fifty_megabytes(sample: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENCODE, sample], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 30 and gigabytes < 2, done.stdout
