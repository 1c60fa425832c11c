"""Arithmetic of PTX that NumPy has not, on arrays; exact where PTX is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum, and what rounding left out of it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product of doubles, and what rounding left out of it (Dekker, with Veltkamp's splitting)."""

    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    product = a * b
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def to_odd(total: Array, rest: Array) -> Array:
    """total + rest, where it is not exact the neighbour of odd mantissa: rounding it again is as rounding once."""
    bits = np.ascontiguousarray(total).view(np.int64)
    # Towards the rest: away from 0 where it has the total's sign.
    step = np.where((rest > 0) == (total > 0), 1, -1)
    inexact = (rest != 0) & (bits & 1 == 0) & np.isfinite(total)
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c, rounded once; of doubles only to the nearest (Boldo and Melquiond 2008)."""
    if a.dtype == np.float32:
        return rounded(to_odd(*two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))), mode)
    high, low = two_product(a, b)
    t, t_rest = two_sum(c, low)
    v, v_rest = two_sum(high, t)
    exact = v + to_odd(*two_sum(t_rest, v_rest))
    return np.where(np.isfinite(exact), exact, a * b + c)


def rounded(exact: Array, mode: str) -> Array:
    """To float32: to the nearest, or towards 0, minus or plus infinity."""
    near = exact.astype(np.float32)
    beyond = {"rn": near != near, "rz": np.abs(near) > np.abs(exact), "rm": near > exact, "rp": near < exact}[mode]
    end = {"rn": 0, "rz": 0, "rm": -np.inf, "rp": np.inf}[mode]
    return np.where(beyond, np.nextafter(near, np.float32(end)), near)


def to_integer(x: Array, dtype: Any, mode: str) -> Array:
    """cvt from floating point: out of range is the nearest there is, NaN is 0."""
    whole = integral(x.astype(np.float64), mode)
    limits = np.iinfo(dtype)
    low, high = whole <= float(limits.min), whole >= float(limits.max)
    inside = np.where(low | high | np.isnan(whole), 0, whole).astype(dtype)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(dtype)


def integral(x: Array, mode: str) -> Array:
    found: Array = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[mode](x)
    return found


def divide(a: Array, b: Array) -> Array:
    """Of integers, towards 0; by 0 all bits are set, as on NVIDIA's GPUs."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient += ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), quotient)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product of integers."""
    if a.dtype.itemsize == 4:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        found: Array = (a.astype(wide) * b.astype(wide) >> wide(32)).astype(a.dtype)
        return found
    return np.array([int(x) * int(y) >> 64 for x, y in np.broadcast(a, b)], dtype=object).astype(a.dtype)


def bits_set(x: Array) -> Array:
    return np.array([int(v).bit_count() for v in x.tolist()], np.uint32)


def highest_bit(x: Array) -> Array:
    """Its place + 1; 0 for 0."""
    return np.array([int(v).bit_length() for v in x.tolist()], np.int64)


def reversed_bits(x: Array) -> Array:
    out = np.zeros_like(x)
    for bit in range(x.dtype.itemsize * 8):
        out = out << x.dtype.type(1) | x >> x.dtype.type(bit) & x.dtype.type(1)
    return out


def shifted_left(x: Array, by: Array) -> Array:
    bits = x.dtype.itemsize * 8
    return np.where(by >= bits, 0, x << np.minimum(by, bits - 1).astype(x.dtype)).astype(x.dtype)


def shifted_right(x: Array, by: Array) -> Array:
    """Arithmetic where x is signed."""
    bits = x.dtype.itemsize * 8
    shifted = x >> np.minimum(by, bits - 1).astype(x.dtype)
    return shifted if x.dtype.kind == "i" else np.where(by >= bits, 0, shifted).astype(x.dtype)


def looked_up(a: Array, b: Array, c: Array, table: int) -> Array:
    """lop3: any function of three bits, by its table."""
    out = np.zeros_like(a)
    for row in range(8):
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out


def products_added(a: Array, b: Array, c: Array) -> Array:
    """dp4a: the products of the signed bytes of a and b, added to c."""
    first, second = (
        np.ascontiguousarray(x, np.int32).view(np.int8).reshape(-1, 4) for x in np.broadcast_arrays(a, b)
    )
    products = (first.astype(np.int32) * second).sum(axis=1, dtype=np.int32)
    total: Array = products + np.asarray(c, np.int32)
    return total


def permuted(a: Array, b: Array, selector: Array) -> Array:
    """prmt: four bytes of the eight of a and b."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    out = np.zeros(np.broadcast(both, selector).shape, np.uint32)
    for place in range(4):
        choice = selector >> np.uint32(4 * place) & np.uint32(15)
        byte = (both >> (choice & np.uint32(7)).astype(np.uint64) * np.uint64(8) & np.uint64(255)).astype(
            np.uint32
        )
        sign = np.where(byte & 128, np.uint32(255), np.uint32(0))
        out |= np.where(choice & 8, sign, byte).astype(np.uint32) << np.uint32(8 * place)
    return out


def four_codes(words: Array) -> Array:
    """[words, 4]: the signed bytes, wide enough for their products."""
    return np.ascontiguousarray(words).view(np.int8).reshape(-1, 4).astype(np.int64)


def two_bfloat16(words: Array) -> Array:
    """[words, 2]: the numbers in bfloat16, in double."""
    halves = np.ascontiguousarray(words).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return halves.view(np.float32).astype(np.float64).reshape(-1, 2)


def to_bfloat16(x: Array) -> Array:
    """The bits of the nearest bfloat16, of two the even one."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), nearest)
