"""Communication weights of a matrix of thought (equation 9): how much each node sees of the node above."""

from __future__ import annotations

import random
import re
from statistics import NormalDist

import orjson

Weights = tuple[tuple[float, ...], ...]
"""[rows - 1][columns]: how much each node sees of the node above, from 0 (nothing) to 1 (all). The first row
of numbers is for the second row of nodes, because the first has no node above"""

SEED = 1
DRAWN = ("uniform", "gaussian")
SCHEMES = (*DRAWN, "const-C", "vert-S", "hor-S", "vert&hor-S")
_STEPPED = re.compile(r"(const|vert|hor|vert&hor)-(\d(?:\.\d{1,6})?)")
_DIGITS = 9  # Sums such as 0.1 + 0.2 have rounding errors beyond these digits.


def communication_weights(name: str, rows: int, columns: int, seed: int = SEED) -> Weights:
    """Compute the communication weights of `rows` x `columns` nodes. `name` is a scheme in the paper's figure
    3, or the numbers themselves in JSON.

    `const-C`: all weights are C. `vert-S`: the weights are S in the first row, 2 S in the second, and so on.
    `hor-S`: the weights are S in the first column, 2 S in the second, and so on. `vert&hor-S`: the weight
    grows by S with each row and each column. Rows are those of `Weights`: the first is for the second row of
    nodes. Weights are capped at 1. `uniform` and `gaussian`: random weights from the seed. Those of `gaussian` are
    normalised to [0, 1]. Raises `ValueError` if there is no such scheme, or if the numbers in JSON have the wrong
    shape.
    """
    if name.lstrip().startswith("["):
        return _given(name, rows, columns)
    places = [[(row, column) for column in range(columns)] for row in range(rows - 1)]
    if name in DRAWN:
        draw = random.Random(seed).random
        drawn = [[draw() for _ in line] for line in places]
        return tuple(map(tuple, drawn if name == "uniform" else _normalised(drawn)))
    stepped = _STEPPED.fullmatch(name)
    if stepped is None or float(stepped[2]) > 1:
        raise ValueError(
            f"weights {name!r}: unknown; known: {', '.join(SCHEMES)} (C and S from 0 to 1), or a matrix in JSON"
        )
    kind, size = stepped[1], float(stepped[2])

    def weight(row: int, column: int) -> float:
        return min(round(size * (1 + row * ("vert" in kind) + column * ("hor" in kind)), _DIGITS), 1.0)

    return tuple(tuple(weight(*place) for place in line) for line in places)


def _normalised(drawn: list[list[float]]) -> list[list[float]]:
    """Convert uniform random numbers to normally distributed ones, min-max normalised to [0, 1]. If all are
    equal, each becomes 1."""
    normal = NormalDist()
    values = [[normal.inv_cdf(value) for value in line] for line in drawn]
    flat = [value for line in values for value in line]
    low, high = min(flat, default=0.0), max(flat, default=0.0)
    return [[(value - low) / (high - low) if high > low else 1.0 for value in line] for line in values]


def _given(text: str, rows: int, columns: int) -> Weights:
    shape = f"weights: expected a list of {rows - 1} lists of {columns} numbers from 0 to 1"
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError(shape) from None
    lines = [line for line in given if isinstance(line, list) and len(line) == columns]
    flat = [value for line in lines for value in line]
    if len(given) != rows - 1 or len(lines) != len(given):
        raise ValueError(shape)
    if not all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 for value in flat
    ):
        raise ValueError(shape)
    return tuple(tuple(float(value) for value in line) for line in lines)
