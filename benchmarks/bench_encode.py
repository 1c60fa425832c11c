"""encode: documents into the hierarchical sequence, in seconds of one core; what a segment takes in memory.

Beside it what every reader of the same file does first: parsing its JSON.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import process_time

import orjson
import pytest
from measuring import NOTES, Measure

from pyfast.corpus import Corpus, decode, encode, read

ROUNDS = 5


@pytest.mark.parametrize("name", ["hotpotqa", "hybridqa", "tatqa", "metaqa"])
def test_encode(data: Path, measure: Measure, name: str, tmp_path: Path) -> None:
    source = data / name / "corpus.jsonl"
    documents = list(read([source]))
    lines = source.read_bytes().splitlines()
    corpora: list[Corpus] = []
    took: dict[str, list[float]] = {"encode": [], "parse": []}

    def turn() -> None:
        began = process_time()
        corpora[:] = [encode(documents)]
        took["encode"].append(process_time() - began)
        began = process_time()
        for line in lines:
            orjson.loads(line)
        took["parse"].append(process_time() - began)

    measure.benchmark.group = "encode"
    measure.benchmark.pedantic(turn, rounds=ROUNDS)
    (corpus,) = corpora
    measure.check(lambda: _same(corpus, documents))
    corpus.save(tmp_path)
    whole = sum(file.stat().st_size for file in tmp_path.iterdir())  # the same in memory: files are mapped
    content = corpus.columns.content.nbytes
    seconds = median(took["encode"])
    NOTES.append(
        f"encode, {name}: {len(corpus):,} segments, {content / seconds / 1e6:.0f} MB/s of content,"
        f" {len(corpus) / seconds / 1e6:.2f} M segments/s ({median(took['parse']) / seconds:.2f} of that is what"
        f" parsing the JSON takes); {whole / len(corpus):.0f} bytes a segment,"
        f" {content / len(corpus):.0f} of it content"
    )


def _same(corpus: Corpus, documents: list[object]) -> None:
    assert decode(corpus) == documents
