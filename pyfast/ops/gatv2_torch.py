"""gatv2 of torch tensors, with its derivative. Imported by nobody who has not imported torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import once_differentiable

from pyfast.errors import ArrayError
from pyfast.ops import gatv2_gpu
from pyfast.ops.backend import Gpu
from pyfast.ops.gatv2 import backward, forward, graph, heads_and_channels

Array = npt.NDArray[Any]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def gatv2_torch(
    x_src: Any,
    x_dst: Any,
    csr: tuple[Any, Any],
    att: Any,
    settings: dict[str, Any],
    seed: int | None,
    mask: Any,
    threads: int,
    there: bool,
) -> tuple[torch.Tensor, Any]:
    """y, and the attention as the core gives it (of a GPU a tensor); see `pyfast.ops.gatv2`."""
    wanted = ("cuda", "a GPU") if there else ("cpu", "the CPU")
    for name, value in (("x_src", x_src), ("x_dst", x_dst), ("att", att)):
        if not isinstance(value, torch.Tensor):
            raise ArrayError(f"{name}: expected a torch.Tensor as the others are, got {type(value).__name__}")
        if value.device.type != wanted[0] or value.layout != torch.strided:
            raise ArrayError(
                f"{name}: expected a dense tensor on {wanted[1]}, got {value.layout} on {value.device}"
            )
        if value.dtype not in DTYPES:
            raise ArrayError(f"{name}: expected float32, float64 or bfloat16, got {value.dtype}")
    if settings["dropout"] and seed is None and mask is None:
        seed = int(torch.randint(2**63 - 1, ()))
    gpu = Gpu(x_src, x_dst, att) if there else None
    arrays = gatv2_gpu.graph(gpu, *csr) if gpu is not None else graph(*csr)
    if gpu is None and isinstance(mask, torch.Tensor):
        mask = _numpy(mask)
    y, attention = _GATv2.apply(x_src, x_dst, att, arrays, settings, seed or 0, mask, threads, gpu)
    return y, attention if there else attention.numpy()


class _GATv2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_src: torch.Tensor,
        x_dst: torch.Tensor,
        att: torch.Tensor,
        csr: tuple[Any, Any],
        settings: dict[str, Any],
        seed: int,
        mask: Any,
        threads: int,
        gpu: Gpu | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = [x_src.contiguous(), x_dst.contiguous(), att.contiguous()]
        ctx.shape = heads_and_channels(*tensors)
        ctx.csr, ctx.settings, ctx.threads, ctx.gpu = csr, settings, threads, gpu
        if gpu is not None:
            y, attention = gatv2_gpu.forward(gpu, tensors, csr, ctx.shape, settings, seed, mask)
        else:
            source, destination, weights = (_numpy(each) for each in tensors)
            found, shares = forward(source, destination, csr, weights, ctx.shape, settings, seed, mask, threads)
            y, attention = _tensor(found, x_dst), torch.from_numpy(shares)
        ctx.save_for_backward(*tensors)
        ctx.attention = attention
        ctx.mark_non_differentiable(attention)
        ctx.set_materialize_grads(False)
        return y.view(x_dst.shape), attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[:3]
        if grad is None:
            return (None,) * 9
        tensors = ctx.saved_tensors
        flow = grad.contiguous()
        if ctx.gpu is not None:
            gradients = gatv2_gpu.backward(
                *(ctx.gpu, list(tensors), ctx.csr, ctx.shape, ctx.settings, ctx.attention, flow, wanted)
            )
        else:
            x_src, x_dst, att = (_numpy(each) for each in tensors)
            flat = backward(
                *(x_src, x_dst, ctx.csr, att, ctx.shape, ctx.settings),
                *(ctx.attention.numpy(), _numpy(flow), wanted, ctx.threads),
            )
            gradients = [_tensor(each, like) for each, like in zip(flat, tensors, strict=True)]
        found = [
            gradient.view(like.shape) if want else None
            for gradient, like, want in zip(gradients, tensors, wanted, strict=True)
        ]
        return (*found, *(None,) * 6)


def _numpy(tensor: torch.Tensor) -> Array:
    """The same memory; bfloat16, which NumPy has not, by its bits."""
    halves = tensor.dtype == torch.bfloat16
    found: Array = (tensor.detach().view(torch.int16) if halves else tensor.detach()).numpy()
    return found.view(np.uint16) if halves else found


def _tensor(numbers: Array, like: torch.Tensor) -> torch.Tensor:
    """The same memory, flat, with the dtype of `like`."""
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(numbers)
