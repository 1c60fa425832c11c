"""One step of training through gatv2 and through PyG's GATv2Conv; and, as a program, its peak of extra memory.

`python benchmarks/gatv2_work.py pyfast|pyg nodes edges heads channels` prints megabytes: what a forward and a
backward pass add at most to the memory of the process, beyond their results (y and the gradients); and those.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GATv2Conv

from pyfast import ops
from pyfast.ops.arrays import thread_count

CHAIN = 30
"""tokens of a piece of evidence"""

Step = Callable[[], list[torch.Tensor]]
"""The result and its gradients by x_src, x_dst and att."""


def graph(nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """A token graph of graph_convqa's kind in CSR: chains in both directions, the rest links between any two."""
    random = np.random.default_rng(0)
    first = np.arange(nodes - 1)
    first = first[first % CHAIN != CHAIN - 1]
    links = random.integers(0, nodes, (2, edges - 2 * len(first)))
    source = np.concatenate([first, first + 1, links[0]])
    destination = np.concatenate([first + 1, first, links[1]])
    order = np.lexsort((source, destination))
    return np.searchsorted(destination[order], np.arange(nodes + 1)), source[order]


def steps(nodes: int, edges: int, heads: int, channels: int) -> tuple[Step, Step]:
    """(pyfast's, PyG's), on the same features, already projected: PyG's own projections are left out."""
    torch.set_num_threads(thread_count(None))
    torch.manual_seed(0)
    x_src, x_dst, flow = (torch.randn(nodes, heads * channels) for _ in range(3))
    att = torch.randn(heads, channels) / channels**0.5
    for leaf in (x_src, x_dst, att):
        leaf.requires_grad_()
    indptr, indices = graph(nodes, edges)
    edge_index = torch.from_numpy(np.stack([indices, np.repeat(np.arange(nodes), np.diff(indptr))]))
    layer = GATv2Conv(heads * channels, channels, heads, add_self_loops=False, bias=False)
    layer.lin_l = layer.lin_r = torch.nn.Identity()
    layer.att = torch.nn.Parameter(att.detach()[None])

    def pyfast() -> list[torch.Tensor]:
        shape = (nodes, heads, channels)
        y = ops.gatv2(x_src.view(shape), x_dst.view(shape), indptr, indices, att)
        return [y.detach(), *torch.autograd.grad(y, (x_src, x_dst, att), flow.view(shape))]

    def pyg() -> list[torch.Tensor]:
        y = layer((x_src, x_dst), edge_index)
        return [y.detach(), *torch.autograd.grad(y, (x_src, x_dst, layer.att), flow)]

    return pyfast, pyg


def memory(field: str) -> float:
    """Megabytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def main(who: str, *size: str) -> None:
    steps(50, 200, 2, 8)[who == "pyg"]()  # what is loaded at the first call is no part of the step
    step = steps(*map(int, size))[who == "pyg"]  # type: ignore[arg-type]
    ctypes.CDLL(None).malloc_trim(0)  # what is free already shall not hide what is asked for
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    results = sum(result.nbytes for result in step()) / 1e6
    print(memory("VmHWM") - before - results, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
