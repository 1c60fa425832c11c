"""One document of 50 MB: seconds and less than 2 GB, whatever it looks like. Limits, not measurements."""

import subprocess
import sys

import pytest

ENCODE = """
import resource, sys, time
from pyfast.corpus import TextDocument, decode, encode

sample = sys.argv[1]
text = sample * (50_000_000 // len(sample.encode()))
began = time.perf_counter()
corpus = encode([TextDocument("u", "", text)])
seconds = time.perf_counter() - began
assert decode(corpus)[0].text == text
assert all(len(corpus.content(i)) <= 4000 for i in corpus.units()[:1000].tolist())
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


@pytest.mark.parametrize("sample", ["This is a sentence of a long text. ", "x", " ", ".", "漢字。"])
def test_fifty_megabytes(sample: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENCODE, sample], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 30 and gigabytes < 2, done.stdout
