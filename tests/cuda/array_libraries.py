"""The libraries of arrays on a GPU that ops take: CuPy, torch, and what stands for CuPy over the emulator."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pool_problems import Problem
from scipy.sparse import csr_array

from pyfast.ops.backend import gpu_problem

A_WHILE = 40_000_000
"""How many cycles a stream is kept busy: some 20 ms"""


@dataclass(frozen=True)
class Library:
    """How arrays get to the GPU and back; and a stream that is not the default one, and busy for a while."""

    name: str
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]
    side_stream: Callable[[], AbstractContextManager[None]]
    emulated: bool = False

    def matrix(self, X: csr_array, weights: Any = None) -> Any:
        """A forward index; `weights` take the place of those of X."""
        parts = self.put(X.indptr), self.put(X.indices), self.put(X.data) if weights is None else weights
        if self.name == "torch":
            return importlib.import_module("torch").sparse_csr_tensor(*parts, size=X.shape)
        return SimpleNamespace(format="csr", indptr=parts[0], indices=parts[1], data=parts[2], shape=X.shape)

    def pools(self, q: Problem) -> tuple[Any, Any, Any]:
        return self.matrix(q.X), self.put(q.offsets), self.put(q.docs)

    def strided(self, value: Any) -> Any:
        """The array, its numbers not one after another in memory; between them are others."""
        here = np.asarray(value)
        return self.put(np.stack([here, here[::-1]], -1).reshape(*here.shape[:-1], -1))[..., ::2]


def on_a_gpu(name: str) -> ModuleType:
    """The library, where there is a GPU for it."""
    without = pytest.fail if os.environ.get("PYFAST_REQUIRE_GPU") else pytest.skip
    if problem := gpu_problem():
        without(problem)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        without(f"{name}: {error}")


def library_of(name: str) -> Library:
    module = on_a_gpu(name)
    if name == "cupy":
        return Library("cupy", module.asarray, module.asnumpy, lambda: _stream_of_cupy(module))
    return Library(
        "torch",
        lambda value: module.tensor(np.asarray(value)).cuda(),
        lambda value: value.cpu().numpy(),
        lambda: _stream_of_torch(module),
    )


def emulated_library(cupy: Any) -> Library:
    return Library("cupy", cupy.asarray, cupy.asnumpy, cupy.side_stream, emulated=True)


@contextmanager
def _stream_of_torch(torch: Any) -> Any:
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(A_WHILE)
        yield


@contextmanager
def _stream_of_cupy(cupy: Any) -> Any:
    text = """extern "C" __global__ void spin(long long cycles) {
        const long long begin = clock64();
        while (clock64() - begin < cycles) {
        }
    }"""
    spin = cupy.RawKernel(text, "spin")
    spin((1,), (1,), (1,))
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        spin((1,), (1,), (A_WHILE,))
        yield
