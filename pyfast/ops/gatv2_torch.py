"""gatv2 of torch tensors, with its derivative. Imported by nobody who has not imported torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import once_differentiable

from pyfast.errors import ArrayError
from pyfast.ops import gatv2_cpu, gatv2_gpu
from pyfast.ops.backend import Gpu
from pyfast.ops.gatv2_arguments import Gatv2Arguments

Array = npt.NDArray[Any]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def gatv2_torch(given: Gatv2Arguments, device: Literal["cpu", "cuda"]) -> tuple[torch.Tensor, Any]:
    """y and the attention of tensors on that device. The attention is as the core gives it, on a GPU a tensor."""
    place = "a GPU" if device == "cuda" else "the CPU"
    for name, value in (("x_src", given.x_src), ("x_dst", given.x_dst), ("att", given.att)):
        if not isinstance(value, torch.Tensor):
            raise ArrayError(f"{name}: expected a torch.Tensor as the others are, got {type(value).__name__}")
        if value.device.type != device or value.layout != torch.strided:
            raise ArrayError(f"{name}: expected a dense tensor on {place}, got {value.layout} on {value.device}")
        if value.dtype not in DTYPES:
            raise ArrayError(f"{name}: expected float32, float64 or bfloat16, got {value.dtype}")
    if given.lacks_seed:
        given = replace(given, seed=int(torch.randint(2**63 - 1, ())))
    features = given.x_src, given.x_dst, given.att
    gpu = Gpu(*features) if device == "cuda" else None
    layer = gatv2_gpu.with_graph(gpu, given) if gpu is not None else gatv2_cpu.with_graph(given)
    if gpu is None and isinstance(layer.mask, torch.Tensor):
        layer = replace(layer, mask=_numpy(layer.mask))
    y, attention = _GATv2.apply(*features, layer, gpu)
    return y, attention if device == "cuda" else attention.numpy()


class _GATv2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_src: torch.Tensor,
        x_dst: torch.Tensor,
        att: torch.Tensor,
        layer: Gatv2Arguments,
        gpu: Gpu | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        layer = _with_features(layer, *tensors)
        layer.heads_and_channels()
        if gpu is not None:
            y, attention = gatv2_gpu.forward(gpu, layer)
        else:
            found, shares = gatv2_cpu.forward(_with_features(layer, *map(_numpy, tensors)))
            y, attention = _tensor(found, x_dst), torch.from_numpy(shares)
        # torch saves the features itself: it then notices when they are changed in place.
        ctx.save_for_backward(*tensors)
        ctx.layer, ctx.gpu = replace(layer, x_src=None, x_dst=None, att=None, mask=None), gpu
        ctx.attention = attention
        ctx.mark_non_differentiable(attention)
        ctx.set_materialize_grads(False)
        return y.view(x_dst.shape), attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[:3]
        if grad is None:
            return (None,) * 5
        tensors = ctx.saved_tensors
        flow = grad.contiguous()
        if ctx.gpu is not None:
            layer = _with_features(ctx.layer, *tensors)
            gradients = gatv2_gpu.backward(ctx.gpu, layer, ctx.attention, flow, wanted)
        else:
            layer = _with_features(ctx.layer, *map(_numpy, tensors))
            flat = gatv2_cpu.backward(layer, ctx.attention.numpy(), _numpy(flow), wanted)
            gradients = [_tensor(each, like) for each, like in zip(flat, tensors, strict=True)]
        found = [
            gradient.view(like.shape) if want else None
            for gradient, like, want in zip(gradients, tensors, wanted, strict=True)
        ]
        return (*found, None, None)


def _with_features(layer: Gatv2Arguments, x_src: Any, x_dst: Any, att: Any) -> Gatv2Arguments:
    return replace(layer, x_src=x_src, x_dst=x_dst, att=att)


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
