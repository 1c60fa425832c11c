"""The interpreter's arithmetic against Python's fractions and integers, which are exact."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ptx import arithmetic

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
doubles = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)
words = st.integers(0, 2**32 - 1)


@given(floats, floats, floats)
def test_fma_of_floats(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assume(2.0**-120 < abs(exact) < 2.0**127)
    x, y, z = (np.array([v], np.float32) for v in (a, b, c))
    near, low = float(arithmetic.fma(x, y, z)[0]), float(arithmetic.fma(x, y, z, "rm")[0])
    others = [float(np.nextafter(np.float32(near), np.float32(to))) for to in (-np.inf, np.inf)]
    assert all(abs(Fraction(near) - exact) <= abs(Fraction(other) - exact) for other in others)
    assert Fraction(low) <= exact < Fraction(float(np.nextafter(np.float32(low), np.float32(np.inf))))


@given(doubles, doubles, doubles)
def test_fma_of_doubles(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(arithmetic.fma(*(np.array([v]) for v in (a, b, c)))[0]) == float(exact)


@given(words, words, words, st.integers(0, 255))
def test_logic_and_bytes(a: int, b: int, c: int, table: int) -> None:
    x, y, z = (np.array([v], np.uint32) for v in (a, b, c))
    bits = [(a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1) for i in range(32)]
    assert int(arithmetic.looked_up(x, y, z, table)[0]) == sum(
        (table >> row & 1) << i for i, row in enumerate(bits)
    )
    pool = (a | b << 32).to_bytes(8, "little")
    selector = c & 0x7777
    expected = bytes(pool[selector >> 4 * i & 7] for i in range(4))
    assert int(arithmetic.permuted(x, y, np.array([selector], np.uint32))[0]) == int.from_bytes(expected, "little")
    assert int(arithmetic.reversed_bits(x)[0]) == int(f"{a:032b}"[::-1], 2)
    assert int(arithmetic.high_product(x, y)[0]) == a * b >> 32


@given(st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4), st.integers(-(2**30), 2**30))
def test_products_of_bytes(a: bytes, b: bytes, c: int) -> None:
    signed = [[byte - 256 * (byte > 127) for byte in each] for each in (a, b)]
    expected = c + sum(x * y for x, y in zip(*signed, strict=True))
    x, y = np.frombuffer(a, np.int32), np.frombuffer(b, np.int32)
    assert arithmetic.products_added(x, y, np.array([c], np.int32)).tolist() == [expected]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_division(a: int, b: int) -> None:
    assume(b != 0 and (a, b) != (-(2**31), -1))
    assert int(arithmetic.divide(np.array([a], np.int32), np.array([b], np.int32))[0]) == math.trunc(
        Fraction(a, b)
    )


@pytest.mark.parametrize(
    ("x", "mode", "expected"),
    [
        (2.5, "rni", 2),
        (-2.5, "rzi", -2),
        (2.1, "rpi", 3),
        (-2.1, "rmi", -3),
        (1e20, "rzi", 2**31 - 1),
        (np.nan, "rzi", 0),
    ],
)
def test_conversion(x: float, mode: str, expected: int) -> None:
    assert int(arithmetic.to_integer(np.array([x], np.float32), np.dtype(np.int32), mode)[0]) == expected
