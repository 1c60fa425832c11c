"""Vectors that outlive a kill: each is computed once; what is torn, damaged or another model's is not taken."""

import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from processes import Session
from word_vectors import WordVectors

from pyfast.knowledge import open_knowledge, snapshots
from pyfast.retrieval import Index

TEXTS = [f"the moon {i} of " + "planet " * (i % 5) for i in range(40)]


def encoded_anew(path: Path, model: str = "words") -> list[str]:
    """What of the texts is computed, and not taken from the file; the vectors are right."""
    vectors = WordVectors()
    vectors.fingerprint = model  # type: ignore[misc]
    found = snapshots.cached_encoder(path, vectors)(TEXTS)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, WordVectors().encode(TEXTS))
    assert found.flags.c_contiguous
    return vectors.encoded


def test_what_is_in_the_file_is_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "BLOCK", 7)
    path = tmp_path / "embeddings.cache"
    some = WordVectors()
    snapshots.cached_encoder(path, some)(TEXTS[::3])  # type: ignore[arg-type]
    assert sorted(encoded_anew(path)) == sorted(set(TEXTS) - set(TEXTS[::3]))
    assert encoded_anew(path) == []


def test_of_a_torn_or_damaged_file_the_beginning_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.cache"
    encoded_anew(path)
    whole = path.read_bytes()
    size = len(whole) // len(TEXTS)
    for place in (0, 5, 39):
        for at in (0, 31, 32, size - 17, size - 16, size - 1):
            damaged = bytearray(whole)
            damaged[place * size + at] ^= 1
            for broken in (damaged, whole[: place * size + at]):
                path.write_bytes(broken)
                assert len(encoded_anew(path)) == len(TEXTS) - place
                assert encoded_anew(path) == []
    path.write_bytes(b"something else" * 1000)
    assert len(encoded_anew(path)) == len(TEXTS)


def test_another_models_vectors_are_not_taken(tmp_path: Path) -> None:
    encoded_anew(tmp_path / "embeddings.cache")
    assert len(encoded_anew(tmp_path / "embeddings.cache", "others")) == len(TEXTS)


BLOCK = 20


def _noting(told: Path) -> None:
    """In the process that is killed: small blocks that take their time, each noted before it is
    cached.
    """
    from pyfast.retrieval.vectors import embeddings

    class Noting(WordVectors):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            with told.open("a") as file:
                file.writelines(f"{text!r}\n" for text in texts)
            time.sleep(0.03)
            return super().encode(texts)

    snapshots.BLOCK = BLOCK
    embeddings.Embedder = Noting  # type: ignore[misc,assignment]


def test_killed_while_vectors_are_computed(index: Index, tmp_path: Path) -> None:
    """Real SIGKILLs of `pyfast knowledge build`: only the block in progress is computed again."""
    told, kills = tmp_path / "told", 0

    def noted() -> list[str]:
        return told.read_text().splitlines() if told.exists() else []

    def build() -> Session:
        command = ["knowledge", "build", index.folder]
        return Session(tmp_path, *command, prepare=partial(_noting, told), command=None)

    for after in (1, 100, 200):
        session = build()
        session.until(lambda after=after: len(noted()) >= after)  # type: ignore[misc]
        kills += session.process.is_alive()
        session.kill()
    session = build()
    assert session.ended() == 0, session.told
    store = open_knowledge(index)
    wanted = {text for name in ("facts", "entities", "keys") for text in store.texts(name)}
    times = Counter(noted())
    assert kills >= 2 and times.keys() == {repr(text) for text in wanted}
    assert sum(times.values()) - len(times) <= BLOCK * kills
    for name in ("facts", "entities", "keys"):
        np.testing.assert_array_equal(store.matrix(name), WordVectors().encode(store.texts(name)))
    assert not (index.folder / "knowledge" / "embeddings.cache").exists()


def test_a_long_computation_says_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = iter(range(0, 1000, 6))  # six seconds a look
    monkeypatch.setattr(snapshots, "monotonic", lambda: next(now))
    caplog.set_level("INFO", "pyfast")
    block = snapshots.BLOCK
    encode = snapshots.cached_encoder(tmp_path / "cache", WordVectors())  # type: ignore[arg-type]
    count = 5 * block
    encode([f"text {i}" for i in range(count)])
    assert caplog.messages == [
        f"{block} of {count} vectors; about 0:00:48 left",
        f"{3 * block} of {count} vectors; about 0:00:16 left",
    ]
