"""Damage an index again and again, use it, and print what happens: the child process of test_damage.py.

    python damaged_index.py flips|values INDEX SEED COUNT SECONDS

Each line of the output is a trial's number and what became of it. The number is printed before the trial. So the
last line names the trial in which the process died.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyfast.errors import PyfastError
from pyfast.retrieval import Index, RerankConfig, cite, evidence_of, narrate, rerank_pools
from pyfast.retrieval.index.manifest import _entry, _sealed
from pyfast.utils.blocks import write_checksums

_ADDRESSES = 8 << 30
"""The process gets no more memory than this. So a wrong size raises an error and does not fill the machine"""
QUERIES = ["the moon of saturn", "which rocket flew to the moon", "a book about the planets"]


def use(folder: Path) -> Any:
    """Open the index, search, rank, read and cite."""
    index = Index(folder)
    pools = index.search(QUERIES, 10)
    how = RerankConfig(2, 5, rank="bridge_rank", expand=True)
    ranked = rerank_pools(index, list(zip(pools, QUERIES, strict=True)), how)
    text = narrate(index, pools, 2000)
    cited = cite(index, [evidence_of(index, pool) for pool in pools])
    return [[p.passages.tolist() for p in (*pools, *ranked)], [p.scores.tolist() for p in pools], text, cited]


def flip(folder: Path, chance: random.Random) -> Callable[[], None]:
    """Change one byte. Returns what undoes it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choices(paths, [path.stat().st_size ** 0.5 for path in paths])[0]
    place, other = chance.randrange(path.stat().st_size), chance.randrange(1, 256)

    def change() -> None:
        with path.open("r+b") as file:
            file.seek(place)
            (old,) = file.read(1)
            file.seek(place)
            file.write(bytes([old ^ other]))

    change()
    return change


def change_values(folder: Path, chance: random.Random) -> Callable[[], None]:
    """Change values of an array, a column or the text of a part, with right checksums and sizes."""
    part = chance.choice(sorted((folder / "parts").iterdir()))
    path = chance.choice(sorted(p for p in part.rglob("*") if p.is_file() and p.name != "checksums.bin"))
    kept = {it: it.read_bytes() for it in (path, part / "checksums.bin", folder / "manifest.json")}
    if path.suffix == ".npy":
        array = np.load(path)
        np.save(path, _damaged(array, chance))
    elif path.suffix == ".arrow":
        _damage_batch(path, chance)
    else:
        _damaged(np.fromfile(path, np.uint8), chance).tofile(path)
    write_checksums(part)
    manifest = json.loads(kept[folder / "manifest.json"])
    del manifest["blake2b"]
    for it in (path, part / "checksums.bin"):
        name = it.relative_to(folder).as_posix()
        manifest["files"][name] = _entry(it, name)
    (folder / "manifest.json").write_text(_sealed(manifest))

    def undo() -> None:
        for it, content in kept.items():
            it.write_bytes(content)

    return undo


def _damaged(array: Any, chance: random.Random) -> Any:
    """A copy with other values, or of another length."""
    flat = array.reshape(-1).copy()
    what = chance.randrange(6)
    if what == 0 and array.ndim == 1:
        return flat[: chance.randrange(len(flat) + 1)]
    if what == 1 and array.ndim == 1:
        return np.concatenate([flat, flat[-chance.randrange(1, 9) :]])
    if not flat.size:
        return array
    for _ in range(chance.choice([1, 1, 3, 20])):
        at = chance.randrange(len(flat))
        if flat.dtype.kind in "iu":
            limits = np.iinfo(flat.dtype)
            values = (0, 1, limits.max, limits.min, len(flat), int(flat[chance.randrange(len(flat))]))
            near = min(max(int(flat[at]) + chance.choice([-1, 1, 1 << 16]), limits.min), limits.max)
            flat[at] = min(max(chance.choice([*values, near]), limits.min), limits.max)
        else:
            flat[at] = chance.choice([np.nan, np.inf, -1e30, 0, 1e30])
    if what == 2:
        flat = flat[::-1].copy()
    return flat.reshape(array.shape)


def _damage_batch(path: Path, chance: random.Random) -> None:
    """Change values in the buffers of an Arrow file."""
    with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as reader:
        batch = reader.get_batch(0)
    content = bytearray(path.read_bytes())
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer and buffer.size >= 8]
    if not buffers:
        return
    old = chance.choice(buffers).to_pybytes()
    place = content.find(old)
    kind = chance.choice([np.uint8, np.int32, np.int64])
    size = len(old) - len(old) % np.dtype(kind).itemsize
    values = np.frombuffer(old[:size], kind).copy()
    changed = _damaged(values, chance)
    if place >= 0 and changed.nbytes == size:
        content[place : place + size] = changed.tobytes()
    path.write_bytes(bytes(content))


def main() -> None:
    what, folder, seed, count, seconds = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    expected = use(folder)
    damage = {"flips": flip, "values": change_values}[what]
    before = blake2b(b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())).digest()
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            break
        print(number, end=" ", flush=True)
        undo = damage(folder, random.Random(f"{seed} {number}"))
        try:
            found = use(folder)
        except PyfastError as error:
            print("refused", type(error).__name__)
        except Exception as error:
            print("raised", type(error).__name__, " ".join(str(error).split()))
        else:
            print("same" if found == expected else "other")
        undo()
    assert before == blake2b(b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())).digest()
    print("ended")


if __name__ == "__main__":
    main()
