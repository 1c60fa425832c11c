"""gatv2 of torch tensors, with its derivative. Imported by nobody who has not imported torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import once_differentiable

from pyfast.errors import ArrayError
from pyfast.ops.arrays import Int64
from pyfast.ops.gatv2 import backward, forward, heads_and_channels

Array = npt.NDArray[Any]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def gatv2_torch(
    x_src: Any,
    x_dst: Any,
    csr: tuple[Int64, Array],
    att: Any,
    settings: dict[str, Any],
    seed: int | None,
    mask: Any,
    threads: int,
) -> tuple[torch.Tensor, Array]:
    """y, and the attention as the core gives it; see `pyfast.ops.gatv2`."""
    for name, value in (("x_src", x_src), ("x_dst", x_dst), ("att", att)):
        if not isinstance(value, torch.Tensor):
            raise ArrayError(f"{name}: expected a torch.Tensor as the others are, got {type(value).__name__}")
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise ArrayError(f"{name}: expected a dense tensor on the CPU, got {value.layout} on {value.device}")
        if value.dtype not in DTYPES:
            raise ArrayError(f"{name}: expected float32, float64 or bfloat16, got {value.dtype}")
    if settings["dropout"] and seed is None and mask is None:
        seed = int(torch.randint(2**63 - 1, ()))
    if isinstance(mask, torch.Tensor):
        mask = _numpy(mask)
    y, attention = _GATv2.apply(x_src, x_dst, att, csr, settings, seed or 0, mask, threads)
    return y, attention.numpy()


class _GATv2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_src: torch.Tensor,
        x_dst: torch.Tensor,
        att: torch.Tensor,
        csr: tuple[Int64, Array],
        settings: dict[str, Any],
        seed: int,
        mask: Any,
        threads: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        ctx.shape = heads_and_channels(x_src, x_dst, att)
        ctx.csr, ctx.settings, ctx.threads = csr, settings, threads
        y, ctx.attention = forward(
            *(_numpy(x_src), _numpy(x_dst), csr, _numpy(att)), ctx.shape, settings, seed, mask, threads
        )
        ctx.save_for_backward(x_src, x_dst, att)
        attention = torch.from_numpy(ctx.attention)
        ctx.mark_non_differentiable(attention)
        ctx.set_materialize_grads(False)
        return _tensor(y, x_dst), attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[:3]
        if grad is None:
            return (None,) * 8
        x_src, x_dst, att = tensors = ctx.saved_tensors
        gradients = backward(
            *(_numpy(x_src), _numpy(x_dst), ctx.csr, _numpy(att), ctx.shape, ctx.settings),
            *(ctx.attention, _numpy(grad.contiguous()), wanted, ctx.threads),
        )
        found = [
            _tensor(gradient, like) if want else None
            for gradient, like, want in zip(gradients, tensors, wanted, strict=True)
        ]
        return (*found, *(None,) * 5)


def _numpy(tensor: torch.Tensor) -> Array:
    """The same memory; bfloat16, which NumPy has not, by its bits."""
    halves = tensor.dtype == torch.bfloat16
    found: Array = (tensor.detach().view(torch.int16) if halves else tensor.detach()).numpy()
    return found.view(np.uint16) if halves else found


def _tensor(numbers: Array, like: torch.Tensor) -> torch.Tensor:
    """The same memory, with the shape and dtype of `like`."""
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16).view(like.shape)
    return torch.from_numpy(numbers).view(like.shape)
