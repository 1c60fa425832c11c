"""A seeded corpus of any number of passages, made of the sentences of the benchmark data.

    python benchmarks/large_corpus.py 1000000 FILE.jsonl     # write it, and compare it with the data

A passage has whole sentences. All sentences of the four largest sets are used, in random order, in runs of four,
before any is used again. So term frequencies and lengths stay those of the data. A repeated sentence would add no
new word, but real corpora continue to have new words. So words that occur once in the data are, from the second
round on, now and then replaced by a new word with the same beginning. How often follows from Heaps' law, fitted to
the data.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from pyfast.corpus import Level, TextDocument, encode, read
from pyfast.retrieval.terms import WORDS

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("hybridqa", "musique", "hotpotqa", "nq")
"""The four sets with the most text"""
SEED = 23
RUN = 4
"""Sentences that stay together, because neighbours share words"""
_WORD = re.compile(r"\w\w+")


class Source:
    """The sentences of the data, and how they form passages."""

    def __init__(self, data: Path = DATA) -> None:
        documents = [
            TextDocument(f"{name}/{document.uri}", document.title, document.text)
            for name in SETS
            for document in read([data / name / "corpus.jsonl"])
            if isinstance(document, TextDocument)
        ]
        corpus = encode(documents)
        level, parent = np.asarray(corpus.level), np.asarray(corpus.parent)
        sentences = np.flatnonzero(level == Level.SENTENCE)
        self.sentences = [corpus.content(i) for i in sentences.tolist()]
        self.lengths = np.array([len(WORDS.words(sentence)) for sentence in self.sentences])
        _, first = np.unique(parent[sentences], return_index=True)
        self.sizes = np.add.reduceat(self.lengths, first)
        self.titles = [document.title for document in documents]
        self.passages = [corpus.content(i) for i in corpus.passages().tolist()]
        counted = Counter(word for text in self.passages for word in WORDS.words(text))
        self.once = {word for word, count in counted.items() if count == 1}
        self.rare = [any(word.lower() in self.once for word in _WORD.findall(it)) for it in self.sentences]
        """Whether a sentence has a word of `once`"""
        cuts = np.linspace(0.2, 1, 9)
        grown = growth(self.passages, [int(cut * len(self.passages)) for cut in cuts])
        self.heaps = float(np.polyfit(np.log(cuts), np.log(grown), 1)[0])
        """The exponent of Heaps' law"""
        self.words = len(counted)

    def documents(self, count: int, seed: int = SEED) -> Iterator[tuple[str, str, str]]:
        """(id, title, text) of `count` passages."""
        chance = np.random.default_rng(seed)
        rounds = self._rounds(chance)
        rest, words = 0, 0  # words that passages still lack: those that one has too many, the next has too few
        while count > 0:
            sizes = chance.permutation(self.sizes)[:count].tolist()
            titles = chance.integers(len(self.titles), size=len(sizes)).tolist()
            for size, title in zip(sizes, titles, strict=True):
                text = []
                rest += size
                while rest > words // 2 or not text:
                    sentence, words = next(rounds)
                    text.append(sentence)
                    rest -= words
                yield str(count), self.titles[title], " ".join(text)
                count -= 1

    def _rounds(self, chance: np.random.Generator) -> Iterator[tuple[str, int]]:
        number = 0
        while True:
            new = (number + 1) ** self.heaps - number**self.heaps
            share = new * self.words / len(self.once) if number else 0.0
            for k in chance.permutation(-(-len(self.sentences) // RUN)).tolist():
                for at in range(k * RUN, min((k + 1) * RUN, len(self.sentences))):
                    sentence, words = self.sentences[at], int(self.lengths[at])
                    if number and self.rare[at]:
                        sentence = self._with_new_words(sentence, number, chance, share)
                    yield sentence, words
            number += 1

    def _with_new_words(self, sentence: str, number: int, chance: np.random.Generator, share: float) -> str:
        def new(word: re.Match[str]) -> str:
            is_new = word[0].lower() in self.once and chance.random() < share
            return f"{word[0]}{number}" if is_new else word[0]

        return _WORD.sub(new, sentence)


def growth(passages: Iterable[str], cuts: list[int]) -> list[int]:
    """How many distinct words the first passages have, for each number in `cuts`."""
    seen: set[str] = set()
    found, left = [], iter(passages)
    before = 0
    for cut in cuts:
        for text in islice(left, cut - before):
            seen.update(WORDS.words(text))
        found.append(len(seen))
        before = cut
    return found


def comparison(source: Source, seed: int = SEED) -> list[tuple[str, float, float]]:
    """(what, data, generated) for as many passages as the data has, in the same order of passages."""
    made = [text for _, _, text in source.documents(len(source.passages), seed)]
    order = np.random.default_rng(seed).permutation(len(source.passages)).tolist()
    real = [source.passages[k] for k in order]
    rows: list[tuple[str, float, float]] = []
    texts = (real, made)
    lengths = [np.array([len(WORDS.words(text)) for text in some]) for some in texts]
    for what, of in (
        ("mean", np.mean),
        ("median", np.median),
        ("90th percentile", lambda it: np.percentile(it, 90)),
    ):
        rows.append((f"words of a passage, {what}", *(float(of(some)) for some in lengths)))
    counted = [Counter(word for text in some for word in WORDS.words(text)) for some in texts]
    for top in (10, 100, 1000, 10_000):
        shares = [sum(n for _, n in some.most_common(top)) / some.total() for some in counted]
        rows.append((f"share of the {top:,} most frequent words", *shares))
    cuts = [len(real) // 8, len(real) // 4, len(real) // 2, len(real)]
    for cut, a, b in zip(cuts, *(growth(some, cuts) for some in texts), strict=True):
        rows.append((f"distinct words of {cut:,} passages", a, b))
    later = [2 * len(real), 4 * len(real)]
    grown = growth((text for _, _, text in source.documents(later[-1], seed)), later)
    for cut, found in zip(later, grown, strict=True):
        rows.append((f"of {cut:,}, by Heaps' law", source.words * (cut / len(real)) ** source.heaps, found))
    return rows


def write(source: Source, count: int, path: Path, seed: int = SEED) -> None:
    """Write the passages as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for uri, title, text in source.documents(count, seed):
            file.write(json.dumps({"id": uri, "title": title, "text": text}, ensure_ascii=False) + "\n")


def main() -> None:
    source = Source()
    print(f"{len(source.passages):,} passages, {len(source.sentences):,} sentences; Heaps {source.heaps:.3f}")
    for what, real, made in comparison(source):
        print(f"{what:45} data {real:12.3f}, generated {made:12.3f}: {made / real - 1:+.1%}")
    write(source, int(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
