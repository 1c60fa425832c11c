"""gatv2 forward and backward, their CUDA executed on the CPU, against the CPU's."""

from typing import Any

import device_ops
import numpy as np
import numpy.typing as npt
import pytest
from device_ops import Attention, Device
from gatv2_problems import Layer, layers, random_layer
from hypothesis import strategies as st

from conftest import Way
from pyfast.ops.gatv2_cpu import Gatv2Arguments, backward, forward

Array = npt.NDArray[Any]


def to_bfloat16(x: Array) -> Array:
    """The bits, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def number(x: Array) -> Array:
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x


def arguments(a: Attention) -> Gatv2Arguments:
    return Gatv2Arguments(
        x_src=a.x_src,
        x_dst=a.x_dst,
        indptr=a.indptr,
        indices=a.indices,
        att=a.att,
        negative_slope=a.slope,
        self_loops=a.loops,
        dropout=a.dropout,
        seed=a.seed,
        mask=a.mask,
    )


def on_the_cpu(a: Attention) -> tuple[Array, Array]:
    y, attention = forward(arguments(a))
    return y.reshape(a.x_dst.shape), attention.reshape(a.edges, len(a.att))


def gradients_on_the_cpu(a: Attention, attention: Array, grad: Array) -> list[Array]:
    found = backward(arguments(a), attention.ravel(), grad, (True, True, True))
    return [x.reshape(of.shape) for x, of in zip(found, (a.x_src, a.x_dst, a.att), strict=True)]


def close(found: Array, expected: Array, *terms: Array) -> None:
    """To 1e-5 of the largest of the terms that were added; bfloat16 to its last bit."""
    largest = float(np.prod([np.abs(number(x)).max(initial=1.0) for x in terms]))
    last = 2.0**-7 if found.dtype == np.uint16 else 1e-5
    np.testing.assert_allclose(number(found), number(expected), rtol=last, atol=1e-5 * largest)


def check(way: Way, a: Attention) -> None:
    y, attention = device_ops.gatv2(way.device, a)
    expected, shares = on_the_cpu(a)
    close(y, expected, a.x_src)
    close(attention, shares)
    np.testing.assert_array_equal(np.signbit(attention), np.signbit(shares))
    grad = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    grad = to_bfloat16(grad) if a.kind == "bfloat16" else grad
    ours = device_ops.gatv2_backward(way.device, a, shares, grad)
    for found, right in zip(ours, gradients_on_the_cpu(a, shares, grad), strict=True):
        close(found, right, grad, a.x_src, a.att)


def attention(layer: Layer, kind: str, **options: Any) -> Attention:
    x_src, x_dst, att = (
        to_bfloat16(x) if kind == "bfloat16" else x for x in (layer.x_src, layer.x_dst, layer.att)
    )
    return Attention(x_src, x_dst, layer.indptr, layer.indices, att, **options)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_forward_and_backward(way: Way, kind: str) -> None:
    def run(drawn: tuple[Layer, float, bool, float, str]) -> None:
        layer, slope, loops, dropout, how = drawn
        options: dict[str, Any] = {"slope": slope, "loops": loops, "dropout": dropout, "seed": 11}
        a = attention(layer, kind, **options)
        if how == "mask":
            a = attention(
                layer, kind, **options, mask=np.random.default_rng(2).random((a.edges, len(a.att))) < 0.5
            )
        elif how == "narrow":
            a = attention(layer.replace(indices=layer.indices.astype(np.int32)), kind, **options)
        check(way, a)

    ways = st.sampled_from(["wide", "narrow", "mask"])
    slopes, dropouts = st.sampled_from([0.2, 0.0, 1.0, -0.5]), st.sampled_from([0.0, 0.5])
    way.every(st.tuples(layers(), slopes, st.booleans(), dropouts, ways), run)


def check_wide_rows(device: Device, channels: int = 300) -> None:
    check(Way(device, 1, 1), attention(random_layer(9, 9, 60, 2, channels), "bfloat16", loops=True))


@pytest.mark.parametrize("channels", [97, 128, 300])
def test_wide_rows_of_bfloat16(way: Way, channels: int) -> None:
    if way.examples < 10:
        pytest.skip("takes the interpreter some time: see its long run")
    check_wide_rows(way.device, channels)


@pytest.mark.parametrize("channels", [1, 8, 33, 64, 65, 128, 130, 200, 300, 520, 521])
def test_other_sizes(way: Way, channels: int) -> None:
    """Each shape that there is a kernel for, in tiles and not; rows of more than a warp's edges."""
    if way.examples < 10 and channels > 64:
        pytest.skip("takes the interpreter some time: see its long run")
    nodes = 60 if way.pools > 1 else 6
    heads = 3 if channels < 100 else 2  # several are in a warp, but for the last
    check(way, attention(random_layer(nodes, nodes, 3 * nodes + 40, heads, channels), "float32", loops=True))
