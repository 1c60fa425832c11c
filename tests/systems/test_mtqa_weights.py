"""The weights of every scheme of figure 3, beside matrices written out by hand."""

from statistics import NormalDist

import pytest

from pyfast.systems.mtqa.weights import communication_weights

# For 3 x 4 nodes: row 2's view of row 1, then row 3's of row 2; a number for each column.
WRITTEN_OUT = {
    "const-0.2": [[0.2, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.2]],
    "const-0.5": [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]],
    "const-0.8": [[0.8, 0.8, 0.8, 0.8], [0.8, 0.8, 0.8, 0.8]],
    "const-1.0": [[1, 1, 1, 1], [1, 1, 1, 1]],
    "vert-0.1": [[0.1, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2]],
    "vert-0.2": [[0.2, 0.2, 0.2, 0.2], [0.4, 0.4, 0.4, 0.4]],
    "hor-0.1": [[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]],
    "hor-0.2": [[0.2, 0.4, 0.6, 0.8], [0.2, 0.4, 0.6, 0.8]],
    "vert&hor-0.1": [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5]],
    "vert&hor-0.2": [[0.2, 0.4, 0.6, 0.8], [0.4, 0.6, 0.8, 1]],
    "[[0, 1, 0.5, 0.25], [1, 0, 0, 1]]": [[0, 1, 0.5, 0.25], [1, 0, 0, 1]],
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_schemes(name: str) -> None:
    assert [list(row) for row in communication_weights(name, 3, 4)] == WRITTEN_OUT[name]  # to the last bit


def test_weights_end_at_1() -> None:
    assert communication_weights("vert&hor-0.2", 4, 5)[-1] == (0.6, 0.8, 1, 1, 1)


@pytest.mark.parametrize("name", ["uniform", "gaussian"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (2, 1), (3, 4), (20, 20)])
def test_drawn_weights_are_weights_and_the_same_each_time(name: str, rows: int, columns: int) -> None:
    weights = communication_weights(name, rows, columns)
    assert weights == communication_weights(name, rows, columns)
    assert [len(row) for row in weights] == [columns] * (rows - 1)
    assert all(0 <= weight <= 1 for row in weights for weight in row)


def test_drawn_weights_have_their_distribution() -> None:
    """380 draws: means and spreads as the distributions have them; the gaussian's ends are 0 and 1."""
    uniform, gaussian = (
        sorted(weight for row in communication_weights(name, 20, 20) for weight in row)
        for name in ("uniform", "gaussian")
    )
    assert abs(uniform[190] - 0.5) < 0.08 and abs(uniform[95] - 0.25) < 0.08
    assert (gaussian[0], gaussian[-1]) == (0, 1)
    normal = NormalDist()  # quartiles, in units of the whole range, as n draws of the normal have them
    spread = 2 * normal.inv_cdf(0.75) / (2 * normal.inv_cdf(1 - 1 / 380))
    assert abs((gaussian[285] - gaussian[95]) - spread) < 0.06
