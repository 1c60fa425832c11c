"""gatv2 for torch tensors, with its derivatives. pyfast imports this file only if torch is imported.

`torch.ops.pyfast.gatv2` and `gatv2_backward` are custom ops, for `torch.compile`, autograd and autocast.
torch's own operations compute the derivative of the attention. The gradients of y have no derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import pyfast.ops.gatv2_cpu as gatv2_cpu
import pyfast.ops.gatv2_gpu as gatv2_gpu
from pyfast.errors import ArrayError
from pyfast.ops.arrays import array, thread_count
from pyfast.ops.backend import Backend, Gpu, errors_pending, errors_wait_for, meant_for_gpu, require_gpu
from pyfast.ops.gatv2_cpu import Gatv2Arguments

Array = npt.NDArray[Any]
Settings = tuple[float, bool, float]
"""(negative slope, self-loops, dropout)"""
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def gatv2_torch(layer: tuple[Any, ...], threads: int | None, backend: Backend) -> tuple[Tensor, Tensor]:
    """Return (y, attention): the new features of the destinations, and the attention [edges, H]. A minus sign
    marks each attention that dropout dropped. `torch.compile` can trace this function.

    `layer` has the first ten arguments of `gatv2`: those from `x_src` to `mask`."""
    x_src, x_dst, indptr, indices, att, negative_slope, self_loops, dropout, seed, mask = layer
    device = "cuda" if meant_for_gpu(backend, x_src) else "cpu"
    for name, value in (("x_src", x_src), ("x_dst", x_dst), ("att", att)):
        if not isinstance(value, Tensor):
            raise ArrayError(f"{name}: expected a torch.Tensor like the other arrays, got {type(value).__name__}")
        if value.device.type != device or value.layout != torch.strided:
            place = "a GPU" if device == "cuda" else "the CPU"
            raise ArrayError(f"{name}: expected a dense tensor on {place}, got {value.layout} on {value.device}")
    graph = _index("indptr", indptr, x_src), _index("indices", indices, x_src)
    settings = _number("negative_slope", negative_slope), self_loops, _number("dropout", dropout)
    drawn = _seed(seed, bool(dropout) and mask is None), None if mask is None else _mask(mask, x_src)
    count = 0 if threads is None else thread_count(threads)
    inputs = x_src, x_dst, *graph, att, *settings, *drawn, count
    y, attention = (_gatv2 if _needs_op(device, x_src, x_dst, att) else _Eager.apply)(*inputs)
    return y, attention


def _needs_op(device: str, *tensors: Tensor) -> bool:
    """Return whether something other than autograd acts on calls of ops: torch.compile, autocast, a dispatch mode,
    a transform of torch.func or a subclass of Tensor."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device):
        return True
    plain = all(type(each) in (Tensor, torch.nn.Parameter) for each in tensors)
    return not plain or torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0


def applied(attention: Tensor, dropout: float) -> Tensor:
    """Return the attention after dropout. It is 0 where `attention` has a minus sign: dropout dropped it."""
    return torch.where(attention.signbit(), 0.0, attention * (1.0 / (1.0 - dropout)))


def _layer(arrays: tuple[Any, ...], settings: tuple[Any, ...], threads: int) -> Gatv2Arguments:
    x_src, x_dst, indptr, indices, att = arrays
    features = x_src.contiguous(), x_dst.contiguous(), indptr, indices, att.contiguous()
    count = threads or (1 if x_src.is_cuda else thread_count(None))  # A GPU's op needs no count of threads.
    return replace(Gatv2Arguments(*features, *settings), threads=count)


def _forward(
    x_src: Tensor,
    x_dst: Tensor,
    indptr: Tensor,
    indices: Tensor,
    att: Tensor,
    negative_slope: float,
    self_loops: bool,
    dropout: float,
    seed: Tensor | None,
    mask: Tensor | None,
    threads: int,
) -> tuple[Tensor, Tensor]:
    settings = negative_slope, self_loops, dropout, None if seed is None else int(seed), mask
    layer = _layer((x_src, x_dst, indptr, indices, att), settings, threads)
    _check(layer)
    if x_src.is_cuda:
        require_gpu()
        y, attention = gatv2_gpu.forward(Gpu(x_src, x_dst, indptr, indices, att), layer)
    else:
        out, shares = gatv2_cpu.forward(layer.mapped(_numpy))
        y, attention = _tensor(out, x_dst), torch.from_numpy(shares)
    return y.view(x_dst.shape), attention.view(-1, att.shape[0])


def _backward(
    x_src: Tensor,
    x_dst: Tensor,
    indptr: Tensor,
    indices: Tensor,
    att: Tensor,
    attention: Tensor,
    grad: Tensor,
    negative_slope: float,
    self_loops: bool,
    dropout: float,
    wanted: list[bool],
    threads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    layer = _layer((x_src, x_dst, indptr, indices, att), (negative_slope, self_loops, dropout), threads)
    by = wanted[0], wanted[1], wanted[2]
    shares, flow = attention.contiguous(), grad.contiguous()
    if x_src.is_cuda:
        gpu = Gpu(x_src, x_dst, indptr, indices, att)
        gradients = gatv2_gpu.backward(gpu, layer, shares, flow, by)
    else:
        flat = gatv2_cpu.backward(layer.mapped(_numpy), _numpy(shares).ravel(), _numpy(flow), by)
        gradients = [_tensor(each, x_dst) for each in flat]
    x, y, z = (
        each.view(like.shape) if want else each
        for each, like, want in zip(gradients, (x_src, x_dst, att), wanted, strict=True)
    )
    return x, y, z


_gatv2 = torch.library.custom_op("pyfast::gatv2", _forward, mutates_args=())
_gatv2_backward = torch.library.custom_op("pyfast::gatv2_backward", _backward, mutates_args=())


@_gatv2.register_fake
def _(
    x_src: Any, x_dst: Any, indptr: Any, indices: Any, att: Any, slope: float, self_loops: bool, *_: Any
) -> tuple[Any, Any]:
    _check(Gatv2Arguments(x_src, x_dst, indptr, indices, att))
    edges = indices.shape[0] + (x_dst.shape[0] if self_loops else 0)
    return x_dst.new_empty(x_dst.shape), x_dst.new_empty((edges, att.shape[0]), dtype=_sums(x_dst))


@_gatv2_backward.register_fake
def _(x_src: Any, x_dst: Any, indptr: Any, indices: Any, att: Any, *rest: Any) -> tuple[Any, ...]:
    wanted = rest[-2]
    return tuple(
        each.new_empty(each.shape if want else 0) for each, want in zip((x_src, x_dst, att), wanted, strict=True)
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5], output[1])
    ctx.settings = inputs[5:8]
    ctx.threads = inputs[10]
    ctx.pending = errors_pending()
    ctx.set_materialize_grads(False)


def _derive(ctx: Any, grad: Tensor | None, grad_attention: Tensor | None) -> tuple[Any, ...]:
    """Return the gradients by the inputs of `_gatv2`, for autograd. Only x_src, x_dst and att can have a
    gradient. All other inputs get None."""
    x_src, x_dst, indptr, indices, att, attention = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[at] for at in (0, 1, 4)]
    settings = ctx.settings
    gradients: Any = (None, None, None)
    if grad_attention is not None:
        with torch.enable_grad():
            leaves = [_leaf(each) for each in (x_src, x_dst, att)]
            y, shares = _equations(leaves, (indptr, indices), settings, attention)
        flows = torch.zeros_like(y) if grad is None else grad, grad_attention
        gradients = torch.autograd.grad((y, shares), leaves, flows, create_graph=torch.is_grad_enabled())
    elif grad is not None:
        with errors_wait_for(ctx.pending):
            # Gradients that are to be differentiated again need the op, too.
            is_op = torch.is_grad_enabled() or _needs_op(x_src.device.type, x_src, x_dst, att, grad)
            derive: Callable[..., Any] = _gatv2_backward if is_op else _backward
            gradients = derive(x_src, x_dst, indptr, indices, att, attention, grad, *settings, wanted, ctx.threads)
    by_x_src, by_x_dst, by_att = (each if want else None for each, want in zip(gradients, wanted, strict=True))
    return by_x_src, by_x_dst, None, None, by_att, *[None] * 6


class _Eager(torch.autograd.Function):
    """`_gatv2` without what only `torch.compile` and autocast need: a call of a custom op takes longer than the
    kernels for a small graph."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*inputs)
        _keep(ctx, inputs, output)
        return output

    backward = staticmethod(_derive)


def _refuse_again(*_: Any) -> None:
    raise NotImplementedError("gatv2 has no second derivatives: its gradients cannot be differentiated again")


_gatv2.register_autograd(_derive, setup_context=_keep)
_gatv2_backward.register_autograd(_refuse_again)
# Under autocast, PyG's layer computes the softmax in float32. This op cannot sum in float16, so it casts all.
for _device in ("cpu", "cuda"):
    _gatv2.register_autocast(_device, torch.float32)


def _equations(
    features: Sequence[Tensor], graph: tuple[Tensor, Tensor], settings: Settings, attention: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the result of `_gatv2` with torch operations, which can be differentiated any number of times.

    `features` is (x_src, x_dst, att), and `graph` is (indptr, indices). A minus sign in `attention` marks an
    attention that dropout dropped. This needs memory for edges x heads x channels numbers.
    """
    (x_src, x_dst, att), (indptr, indices), (slope, self_loops, dropout) = features, graph, settings
    sources, nodes = indices.long(), torch.arange(x_dst.shape[0], device=x_dst.device)
    destinations = torch.repeat_interleave(nodes, indptr.diff(), output_size=sources.shape[0])
    absent = torch.zeros_like(sources, dtype=torch.bool)
    if self_loops:
        loops = nodes[: x_src.shape[0]]
        absent = torch.cat([sources == destinations, torch.zeros_like(loops, dtype=torch.bool)])
        sources, destinations = torch.cat([sources, loops]), torch.cat([destinations, loops])
    x, centre = x_src.to(_sums(x_src))[sources], x_dst.to(_sums(x_dst))
    met = x + centre[destinations]
    scores = (torch.where(met > 0, met, slope * met) * att.to(met.dtype)).sum(2)
    scores = scores.masked_fill(absent[:, None], -torch.inf)
    most = scores.new_full(centre.shape[:2], -torch.inf)
    most = most.scatter_reduce(0, destinations[:, None].expand_as(scores), scores.detach(), "amax")
    parts = torch.exp(scores - most[destinations])
    shares = parts / torch.zeros_like(most).index_add(0, destinations, parts)[destinations]
    dropped = attention.detach()[: len(shares)].signbit()
    weights = torch.where(dropped, 0.0, shares / (1.0 - dropout))
    y = torch.zeros_like(centre).index_add(0, destinations, weights[:, :, None] * x)
    signed = torch.where(dropped, -shares, shares)
    missing = attention.shape[0] - signed.shape[0]  # entries for destinations that have no loop
    return y.to(x_dst.dtype), torch.nn.functional.pad(signed, (0, 0, 0, missing))


def _leaf(tensor: Tensor) -> Tensor:
    """Return a separate tensor with the same numbers, by which torch can compute a gradient. It must be
    separate, because one tensor may be both x_src and x_dst."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def _sums(features: Tensor) -> torch.dtype:
    """Return the dtype for sums of features, and for the attention: float64 for float64 features, otherwise
    float32."""
    return torch.float64 if features.dtype == torch.float64 else torch.float32


def _check(layer: Gatv2Arguments) -> None:
    for name, value in (("x_src", layer.x_src), ("x_dst", layer.x_dst), ("att", layer.att)):
        if value.dtype not in DTYPES:
            raise ArrayError(f"{name}: expected float32, float64 or bfloat16, got {value.dtype}")
    layer.heads_and_channels()


def _index(name: str, value: Any, like: Tensor) -> Tensor:
    """Return indptr or indices as a tensor on the device of `like`. Its dtype is int64, or int32 for indices
    that are int32 already. `value` is copied only if necessary."""
    if not isinstance(value, Tensor):
        narrow = name == "indices" and str(getattr(value, "dtype", "")).endswith("int32")
        if like.is_cuda:
            return Gpu(like).array(name, value, "int32" if narrow else "int64")
        numbers = array(name, value, np.int32 if narrow else np.int64)
        # torch warns about memory that it must not write.
        return torch.from_numpy(np.require(numbers, requirements="W"))
    if value.dim() != 1 or value.dtype.is_floating_point or value.dtype.is_complex:
        raise ArrayError(
            f"{name}: expected a one-dimensional integer tensor, got {value.dtype}{list(value.shape)}"
        )
    narrow = name == "indices" and value.dtype == torch.int32
    return _beside(name, value, like).to(torch.int32 if narrow else torch.int64).contiguous()


def _mask(mask: Any, like: Tensor) -> Tensor:
    try:
        tensor = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"mask: cannot be read as an array: {error}") from error
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        raise ArrayError(f"mask: expected bool, got {tensor.dtype}")
    return _beside("mask", tensor, like)


def _beside(name: str, value: Tensor, like: Tensor) -> Tensor:
    if value.device != like.device and value.device.type != "cpu":
        raise ArrayError(f"{name}: must be on the device of x_src, {like.device}, got {value.device}")
    return value.to(like.device)


def _seed(seed: Any, drawn: bool) -> Tensor | None:
    """Return the seed as a tensor, which torch.compile accepts. If the seed is None, the result depends on
    `drawn`. True: torch's random generator makes a seed. False: the result is None."""
    if seed is None:
        return torch.randint(2**63 - 1, (), device="cpu") if drawn else None
    if not isinstance(seed, int | np.integer):
        raise ArrayError(f"seed: expected an integer, got {seed!r}")
    signed = (int(seed) + 2**63) % 2**64 - 2**63
    return torch.tensor(signed, dtype=torch.int64, device="cpu")


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArrayError(f"{name}: expected a number, got {value!r}") from None


def _numpy(tensor: Tensor) -> Array:
    """Return a NumPy array with the memory of a tensor. NumPy has no bfloat16: the array then has uint16
    numbers with the same bits."""
    halves = tensor.dtype == torch.bfloat16
    array: Array = (tensor.detach().view(torch.int16) if halves else tensor.detach()).numpy()
    return array.view(np.uint16) if halves else array


def _tensor(numbers: Array, like: Tensor) -> Tensor:
    """Return a flat tensor with the memory of a NumPy array, and with the dtype of `like`."""
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(numbers)
