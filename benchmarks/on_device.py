"""Encoding and dense search on a device, beside sentence-transformers and plain torch there.

    python benchmarks/on_device.py [--device cuda] [--model FOLDER] [--texts 12000] [--vectors 2000000]

Results are compared before anything is timed. Without --model: the default model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from pyfast.retrieval.vectors.embeddings import DEFAULT, Embedder
from pyfast.retrieval.vectors.vector_search import DeviceVectors
from pyfast.utils.options import Hardware

NEAREST, QUERIES, DIMENSIONS, TILE = 100, 1000, 384, 1 << 17


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    work()
    times = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(perf_counter() - began)
    return min(times)


def encode(embedder: Embedder, texts: list[str]) -> None:
    embedder._known.clear()
    embedder.encode(texts)


def encoding(device: str, model: str, count: int) -> None:
    rng = np.random.default_rng(0)
    words = [
        f"{a}{b}" for a in ("moon", "planet", "ring", "orbit", "star") for b in ("", "s", "like", "less", "ward")
    ]
    texts = [" ".join(rng.choice(words, rng.integers(60, 121))) for _ in range(count)]
    known = Embedder(model, Hardware("cpu")).encode(texts[:32])
    for precision in ("float32", "float16", "bfloat16"):
        embedder = Embedder(model, Hardware(device, precision))  # type: ignore[arg-type]
        worst = np.abs(embedder.encode(texts[:32]) - known).max()

        rate = count / seconds(partial(encode, embedder, texts))
        print(f"encode {precision}: {rate:,.0f} texts/s; to the CPU's numbers {worst:.1e}")
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(str(embedder.folder), device=device).to(getattr(torch, precision)).eval()
        some = texts[: count // 4]
        took = seconds(partial(peer.encode, some, batch_size=256, show_progress_bar=False), 1)
        print(f"  sentence-transformers, 256 texts at once: {len(some) / took:,.0f} texts/s")


def searching(device: str, count: int) -> None:
    torch.manual_seed(0)
    made = [torch.randn(number, DIMENSIONS, device=device) for number in (count, QUERIES)]
    matrix, queries = (torch.nn.functional.normalize(each) for each in made)
    half, asked, given = matrix.half(), queries.half(), queries.cpu().numpy()
    exact = torch.cat([(some @ matrix.T).topk(NEAREST).indices for some in queries.split(50)]).cpu().numpy()

    def plain() -> Any:
        found = [(asked @ half[at : at + TILE].T).topk(NEAREST) for at in range(0, count, TILE)]
        best = torch.cat([each.values for each in found], 1).topk(NEAREST).indices
        places = torch.cat([each.indices + at * TILE for at, each in enumerate(found)], 1)
        return places.gather(1, best).cpu().numpy()

    def right(found: Any) -> float:
        return float(np.mean([len(np.intersect1d(*pair)) / NEAREST for pair in zip(found, exact, strict=True)]))

    print(f"plain torch float16: {QUERIES / seconds(plain):,.0f} queries/s; {right(plain()):.2%} of the nearest")
    for precision in ("float32", "float16"):
        vectors = DeviceVectors(matrix.cpu().numpy(), Hardware(device, precision))  # type: ignore[arg-type]
        share = right(vectors.search(given, NEAREST)[0])
        for size in (QUERIES, 64, 1):
            rate = size / seconds(partial(vectors.search, given[:size], NEAREST))
            print(f"search {precision}, {size} at once: {rate:,.0f} queries/s; {share:.2%} of the nearest")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--texts", type=int, default=12_000)
    parser.add_argument("--vectors", type=int, default=2_000_000)
    given = parser.parse_args()
    encoding(given.device, given.model, given.texts)
    searching(given.device, given.vectors)
