"""Files of hostile shapes: an index within bounds of memory and time, or one line that refuses the file.

Limits, not measurements. The seconds are the processor's, because other tests run at the same time.
"""

import gzip
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from fpdf import FPDF

from pyfast.retrieval import Index

pytestmark = pytest.mark.slow(suite="shapes")

# Not getrusage's peak: that counts the process which this one was forked from, however large it was.
COMMAND = """
import sys, time
from pyfast.commands.cli import main

sys.argv[1:] = ["index", sys.argv[1], "--out", sys.argv[2]]
ended = 0
try:
    main()
except SystemExit as error:
    ended = error.code
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print()
print(ended or 0, time.process_time(), int(peak) / 1e3)
"""


def index(source: Path, out: Path) -> tuple[int, float, float, str]:
    """Exit code, seconds, megabytes at most, and what `pyfast index` says."""
    command = [sys.executable, "-c", COMMAND, source, out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    ended, seconds, megabytes = done.stdout.splitlines()[-1].split()
    print(source.name, ended, seconds, megabytes, done.stderr[-300:])
    return int(ended), float(seconds), float(megabytes), done.stderr


def one_line(path: Path) -> None:
    words = random.Random(1).choices(["heron", "lake", "moon", "Saturn.", "river", "Titan"], k=9_000_000)
    path.write_text(" ".join(words)[:50_000_000], encoding="utf-8")


def columns(path: Path) -> None:
    names = ",".join(f"column{k}" for k in range(10**6))
    path.write_text(f"{names}\n{','.join(str(k % 1000) for k in range(10**6))}\n", encoding="utf-8")


def rows_of_a_digit(path: Path) -> None:
    path.write_text("digit\n" + "".join(f"{k % 10}\n" for k in range(10**6)), encoding="utf-8")


def pages(path: Path) -> None:
    made = FPDF()
    made.set_font("helvetica", size=12)
    for number in range(5000):
        made.add_page()
        made.multi_cell(0, text=f"Page {number}. The heron of lake {number} nests here. " * 5)
    made.output(str(path))


@pytest.mark.parametrize(
    ("name", "write", "most_seconds", "most_megabytes", "question"),
    [
        ("line.txt", one_line, 120, 2000, "heron moon"),
        ("columns.csv", columns, 120, 1500, "column99999"),
        ("digits.csv", rows_of_a_digit, 240, 2000, "digit"),
        ("pages.pdf", pages, 120, 1500, "heron of lake 4321"),
    ],
)
def test_it_is_indexed_within_bounds(
    tmp_path: Path,
    name: str,
    write: Callable[[Path], None],
    most_seconds: float,
    most_megabytes: float,
    question: str,
) -> None:
    write(tmp_path / name)
    ended, seconds, megabytes, said = index(tmp_path / name, tmp_path / "IDX")
    assert ended == 0 and seconds < most_seconds and megabytes < most_megabytes, (ended, seconds, megabytes, said)
    opened = Index(tmp_path / "IDX")
    (pool,) = opened.search([question], 1)
    assert opened.uri(int(pool.passages[0])).partition("#")[0] == name


def anonymous(pid: int) -> int:
    """Bytes of memory that a process has now, without mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1000 for line in lines if line.startswith("RssAnon")), 0)


def most_memory(source: Path, out: Path) -> int:
    """The most memory that `pyfast index` takes, without mapped files."""
    child = subprocess.Popen([sys.executable, "-m", "pyfast", "index", str(source), "--out", str(out)])
    most = 0
    while child.poll() is None:
        most = max(most, anonymous(child.pid))
        time.sleep(0.01)
    assert child.returncode == 0
    return most


def orders(path: Path, rows: int) -> None:
    """Cells of different kinds and lengths: 8 letters in the mean."""
    words = ["heron", "lake", "moon", "Saturn", "river", "Titan"]
    with path.open("w", encoding="utf-8") as file:
        file.write("id,name,city,year,amount,note\n")
        for k in range(rows):
            city, note = words[k % 5], f"{words[k % 3]} {words[k % 6]} {words[k % 4]}"
            file.write(f"{k},{words[k % 6]} {k % 977},{city},{1900 + k % 120},{k / 7 % 10_000:.2f},{note}\n")


def test_a_large_table_takes_less_than_ten_times_its_size(tmp_path: Path) -> None:
    one, many = tmp_path / "one.csv", tmp_path / "many.csv"
    orders(one, 1)
    orders(many, 800_000)
    taken = most_memory(many, tmp_path / "IDX") - most_memory(one, tmp_path / "ONE")
    times = taken / many.stat().st_size
    print(f"{many.stat().st_size:,} bytes, {taken:,} bytes of memory, {times:.1f} times")
    sizes = {path.relative_to(tmp_path): path.stat().st_size for path in (tmp_path / "IDX").rglob("*.*")}
    for path, size in sizes.items():
        print(f"{size / 4_800_000:6.2f} bytes a cell in {path}")
    print(f"{sum(sizes.values()) / 4_800_000:6.2f} bytes a cell")
    assert 1 < times < 10


def zeros(write: Callable[[bytes], object]) -> None:
    for _ in range(6000):
        write(bytes(1 << 20))


def gzip_bomb(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        zeros(file.write)


def zstd_bomb(path: Path) -> None:
    with path.open("wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as file:
        zeros(file.write)


def archive_bomb(part: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open(part, "w", force_zip64=True) as file,
        ):
            zeros(file.write)

    return write


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bomb.txt.gz", gzip_bomb),
        ("bomb.csv.zst", zstd_bomb),
        ("bomb.xlsx", archive_bomb("xl/worksheets/sheet1.xml")),
        ("bomb.docx", archive_bomb("word/document.xml")),
        ("bomb.pptx", archive_bomb("ppt/presentation.xml")),
    ],
)
def test_what_unpacks_to_gigabytes_is_refused_in_one_line(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    (tmp_path / "files").mkdir()
    write(tmp_path / "files" / name)
    (tmp_path / "files" / "good.txt").write_text("The heron nests.", encoding="utf-8")
    ended, seconds, megabytes, said = index(tmp_path / "files", tmp_path / "IDX")
    assert ended == 2 and seconds < 30 and megabytes < 500, (ended, seconds, megabytes, said)
    assert [
        name in line and "suspiciously large; unpack the file first" in line for line in said.splitlines()
    ].count(True) == 1
    assert Index(tmp_path / "IDX").corpus.documents == 1
