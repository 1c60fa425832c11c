"""gatv2 against its NumPy reference; NumPy arrays only. Its derivative: test_gatv2_torch.py."""

import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gatv2_problems import Layer, layers, random_layer
from hypothesis import given, settings
from hypothesis import strategies as st
from references import gatv2_reference

from pyfast import ops
from pyfast.errors import ArrayError

Array = npt.NDArray[Any]


@given(layer=layers(), slope=st.sampled_from([0.2, 0.0, 1.0, -0.5, 3.0]), loops=st.booleans())
def test_reference(layer: Layer, slope: float, loops: bool) -> None:
    expected, weights = gatv2_reference(*layer, slope, self_loops=loops)
    for dtype, tolerance in ((np.float32, 2e-5), (np.float64, 1e-13)):
        y, attention = ops.gatv2(*layer.astype(dtype), slope, self_loops=loops, return_attention=True)
        assert y.dtype == attention.dtype == dtype
        np.testing.assert_allclose(attention, weights, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=5 * tolerance)


@pytest.mark.parametrize("channels", [1, 7, 8, 15, 16, 17, 48, 100, 288])
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_reference_at_other_sizes(heads: int, channels: int) -> None:
    layer = random_layer(70, 50, 300, heads, channels)
    y = ops.gatv2(*layer)
    assert y.shape == (50, heads, channels)
    np.testing.assert_allclose(y, gatv2_reference(*layer)[0], rtol=1e-4, atol=1e-4)


def test_a_destination_without_sources_is_zero() -> None:
    layer = random_layer(3, 5, 0, 2, 4)
    y, attention = ops.gatv2(*layer, return_attention=True)
    assert not y.any() and attention.shape == (0, 2)
    empty = ops.gatv2(np.zeros((0, 2, 4), np.float32), np.zeros((0, 2, 4), np.float32), [0], [], layer.att)
    assert empty.shape == (0, 2, 4)


def test_large_scores() -> None:
    """A softmax that does not subtract the largest score overflows from 89 on in float32."""
    layer = random_layer(20, 20, 100, 2, 16)
    layer = layer.replace(att=np.float32(1e4) * layer.att)
    y = ops.gatv2(*layer)
    expected, _ = gatv2_reference(*layer)
    scores = np.abs(layer.att).max() * np.abs(layer.x_src).max()
    assert scores > 1e4 and np.isfinite(y).all()
    np.testing.assert_allclose(y, expected, rtol=1e-2, atol=1e-2)
    # Of two equal scores each gets half, of any size.
    x = np.full((2, 1, 3), 5.0, np.float32)
    for scale in (1e4, -1e4, 1e30):
        att = np.full((1, 3), scale, np.float32)
        _, shares = ops.gatv2(x, x, [0, 2, 2], [0, 1], att, return_attention=True)
        np.testing.assert_array_equal(shares, [[0.5], [0.5]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_goes_no_further_than_its_destinations(bad: float) -> None:
    layer = random_layer(30, 30, 90, 2, 20)
    clean = ops.gatv2(*layer)
    x = layer.x_src.copy()
    x[4, 1, 3] = bad
    y = ops.gatv2(*layer.replace(x_src=x))
    reached = np.array([4 in layer.sources(i) for i in range(30)])
    assert reached.any() and not reached.all()
    assert not np.isfinite(y[reached][:, 1]).all(axis=1).any()
    np.testing.assert_array_equal(y[~reached], clean[~reached])
    np.testing.assert_array_equal(y[:, 0], clean[:, 0])  # nor to another head


@given(layer=layers(), threads=st.integers(2, 5), dropout=st.sampled_from([0.0, 0.5]))
def test_threads_of_a_small_graph(layer: Layer, threads: int, dropout: float) -> None:
    one = ops.gatv2(*layer, dropout=dropout, seed=3, threads=1)
    assert ops.gatv2(*layer, dropout=dropout, seed=3, threads=threads).tobytes() == one.tobytes()


def test_threads_of_a_large_graph() -> None:
    layer = random_layer(2000, 2000, 9000, 2, 70)  # enough work for several threads
    one = ops.gatv2(*layer, threads=1)
    assert all(ops.gatv2(*layer, threads=t).tobytes() == one.tobytes() for t in (2, 3, 8))


def test_graphs_side_by_side() -> None:
    """A batch as one block-diagonal graph gives each graph what it gives alone, bit for bit."""
    graphs = [random_layer(n, n, 4 * n, 2, 33, seed=n) for n in (1, 5, 40, 100)]
    graphs = [g.replace(att=graphs[0].att) for g in graphs]
    nodes = np.cumsum([0] + [len(g.x_src) for g in graphs])
    edges = np.cumsum([0] + [len(g.indices) for g in graphs])
    batch = Layer(
        np.concatenate([g.x_src for g in graphs]),
        np.concatenate([g.x_dst for g in graphs]),
        np.concatenate([[0], *(g.indptr[1:] + edge for g, edge in zip(graphs, edges, strict=False))]),
        np.concatenate([g.indices + node for g, node in zip(graphs, nodes, strict=False)]),
        graphs[0].att,
    )
    together = ops.gatv2(*batch)
    alone = np.concatenate([ops.gatv2(*g) for g in graphs])
    assert together.tobytes() == alone.tobytes()


@given(layer=layers(), rate=st.sampled_from([0.0, 0.3, 0.9]), loops=st.booleans(), data=st.data())
def test_given_mask(layer: Layer, rate: float, loops: bool, data: st.DataObject) -> None:
    edges = len(layer.indices) + len(layer.x_dst) * loops
    heads = len(layer.att)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    mask = random.random((edges, heads)) >= 0.4
    options: dict[str, Any] = {"self_loops": loops, "dropout": rate, "mask": mask}
    expected, weights = gatv2_reference(*layer, **options)
    y, attention = ops.gatv2(*layer, return_attention=True, **options)
    assert not attention[~mask].any()
    np.testing.assert_allclose(attention, weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_dropout_statistics() -> None:
    layer = random_layer(400, 400, 20_000, 4, 3)
    whole = ops.gatv2(*layer, return_attention=True)[1]
    kept = []
    for seed in range(6):
        dropped = ops.gatv2(*layer, dropout=0.3, seed=seed, return_attention=True)[1]
        keep = dropped != 0
        np.testing.assert_allclose(dropped[keep], whole[keep] / 0.7, rtol=1e-6)
        kept.append(keep)
    keep = np.stack(kept).astype(np.float64)  # [seed, edge, head]
    # 480,000 draws: the mean is within 5 standard deviations, of all and of each head and seed.
    assert abs(keep.mean() - 0.7) < 5 * np.sqrt(0.21 / keep.size)
    assert np.all(np.abs(keep.mean(axis=(0, 1)) - 0.7) < 5 * np.sqrt(0.21 / 120_000))
    assert np.all(np.abs(keep.mean(axis=(1, 2)) - 0.7) < 5 * np.sqrt(0.21 / 80_000))
    # Neighbouring edges, heads and seeds are independent.
    centred = keep - 0.7
    for a, b in (
        (centred[:, 1:], centred[:, :-1]),
        (centred[:, :, 1:], centred[:, :, :-1]),
        (centred[1:], centred[:-1]),
    ):
        assert abs((a * b).mean() / 0.21) < 5 / np.sqrt(a.size)


def test_dropout_depends_on_seed_edge_and_head_only() -> None:
    layer = random_layer(30, 30, 200, 2, 8)
    first = ops.gatv2(*layer, dropout=0.5, seed=7, return_attention=True)
    again = ops.gatv2(*layer, dropout=0.5, seed=7, return_attention=True)
    other = ops.gatv2(*layer, dropout=0.5, seed=8, return_attention=True)
    assert first[0].tobytes() == again[0].tobytes() and first[1].tobytes() == again[1].tobytes()
    assert np.any((first[1] != 0) != (other[1] != 0))
    # What was drawn, given as a mask, is the same.
    given_mask = ops.gatv2(*layer, dropout=0.5, mask=first[1] != 0)
    assert given_mask.tobytes() == first[0].tobytes()
    # Other features, same mask.
    turned = ops.gatv2(*layer.replace(x_src=-layer.x_src), dropout=0.5, seed=7, return_attention=True)
    np.testing.assert_array_equal(turned[1] != 0, first[1] != 0)


def test_self_loops_replace_those_that_are_stored() -> None:
    """As remove_self_loops and then add_self_loops of PyG do, so that each node has one."""
    layer = random_layer(3, 3, 0, 1, 4)
    stored = layer.replace(indptr=np.array([0, 3, 4, 4]), indices=np.array([0, 1, 0, 2]))
    by_hand = layer.replace(indptr=np.array([0, 2, 4, 5]), indices=np.array([1, 0, 2, 1, 2]))
    y, attention = ops.gatv2(*stored, self_loops=True, return_attention=True)
    np.testing.assert_allclose(y, ops.gatv2(*by_hand), rtol=1e-6)
    assert attention.shape == (4 + 3, 1)
    np.testing.assert_array_equal(attention[[0, 2]], 0.0)
    assert not np.allclose(y, ops.gatv2(*stored))


def test_strides_and_index_types() -> None:
    layer = random_layer(30, 20, 90, 2, 24)
    expected = ops.gatv2(*layer)
    reversed_ = np.ascontiguousarray(layer.x_src[:, :, ::-1])[:, :, ::-1]
    fortran = np.asfortranarray(layer.x_dst)
    narrow = layer.replace(x_src=reversed_, x_dst=fortran, indices=layer.indices.astype(np.int32))
    assert ops.gatv2(*narrow).tobytes() == expected.tobytes()
    lists = (layer.indptr.tolist(), layer.indices.tolist())
    assert ops.gatv2(layer.x_src, layer.x_dst, *lists, layer.att).tobytes() == expected.tobytes()


GOOD = random_layer(6, 4, 12, 2, 5)
BIG = np.iinfo(np.int64).max


def edited(values: Array, at: int, value: int) -> Array:
    values = values.copy()
    values[at] = value
    return values


@pytest.mark.parametrize(
    ("change", "options", "name"),
    [
        ({"indptr": edited(GOOD.indptr, 0, 1)}, {}, "indptr"),
        ({"indptr": edited(GOOD.indptr, 0, -1)}, {}, "indptr"),
        ({"indptr": edited(GOOD.indptr, 2, BIG)}, {}, "indptr"),
        ({"indptr": edited(GOOD.indptr, 2, -BIG)}, {}, "indptr"),
        ({"indptr": edited(GOOD.indptr, 4, 13)}, {}, "indptr"),
        ({"indptr": edited(GOOD.indptr, 4, 11)}, {}, "indptr"),
        ({"indptr": np.zeros(0, np.int64)}, {}, "indptr"),
        ({"indptr": GOOD.indptr[:-1]}, {}, "indptr"),
        ({"indptr": np.append(GOOD.indptr, 12)}, {}, "x_dst"),
        ({"indptr": GOOD.indptr.astype(np.float64)}, {}, "indptr"),
        ({"indptr": GOOD.indptr[None]}, {}, "indptr"),
        ({"indices": edited(GOOD.indices, 3, 6)}, {}, "indices"),
        ({"indices": edited(GOOD.indices, 3, -1)}, {}, "indices"),
        ({"indices": edited(GOOD.indices, 3, BIG)}, {}, "indices"),
        ({"indices": edited(GOOD.indices, 3, -1).astype(np.int32)}, {}, "indices"),
        ({"indices": GOOD.indices.astype(np.float32)}, {}, "indices"),
        ({"indices": GOOD.indices[:-1]}, {}, "indptr"),
        ({"x_src": GOOD.x_src[:, :1]}, {}, r"x_src: expected \[nodes, 2, 5\]"),
        ({"x_src": GOOD.x_src[0]}, {}, "x_src"),
        ({"x_dst": GOOD.x_dst[:, :, :4]}, {}, "x_dst"),
        ({"x_dst": GOOD.x_dst[:3]}, {}, "x_dst"),
        ({"x_src": GOOD.x_src.astype(np.float16)}, {}, "x_src"),
        ({"x_src": GOOD.x_src.astype(np.float64)}, {}, "x_src: is float64, but att is float32"),
        ({"x_src": GOOD.x_src.astype(np.int64)}, {}, "x_src"),
        ({"x_src": "features"}, {}, "x_src"),
        ({"att": GOOD.att[0]}, {}, "att"),
        ({"att": GOOD.att[None]}, {}, "att"),
        ({"att": GOOD.att[:0]}, {}, "att"),
        ({}, {"negative_slope": float("nan")}, "negative_slope"),
        ({}, {"negative_slope": "steep"}, "negative_slope"),
        ({}, {"dropout": 1.0, "seed": 1}, "dropout"),
        ({}, {"dropout": -0.1, "seed": 1}, "dropout"),
        ({}, {"dropout": float("nan"), "seed": 1}, "dropout"),
        ({}, {"dropout": 0.5}, "seed"),
        ({}, {"dropout": 0.5, "seed": "x"}, "seed"),
        ({}, {"mask": np.ones((11, 2), bool)}, "mask"),
        ({}, {"mask": np.ones((12, 2))}, "mask"),
        ({}, {"threads": 0}, "threads"),
    ],
)
def test_malformed(change: dict[str, Any], options: dict[str, Any], name: str) -> None:
    before = ops.gatv2(*GOOD)
    with pytest.raises(ArrayError, match=name):
        ops.gatv2(*GOOD.replace(**change), **options)
    assert ops.gatv2(*GOOD).tobytes() == before.tobytes()


@settings(max_examples=120)
@given(
    indptr=st.lists(st.integers(-3, 8) | st.sampled_from([BIG, -BIG]), max_size=6),
    indices=st.lists(st.integers(-1, 4) | st.sampled_from([BIG, 2**31]), max_size=8),
)
def test_any_graph_is_refused_or_computed(indptr: list[int], indices: list[int]) -> None:
    x = random_layer(3, 4, 0, 1, 3)
    legal = (
        len(indptr) == 5
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and indptr == sorted(indptr)
        and all(0 <= j < 3 for j in indices)
    )
    layer = x.replace(indptr=np.array(indptr, np.int64), indices=np.array(indices, np.int64))
    if legal:
        np.testing.assert_allclose(ops.gatv2(*layer), gatv2_reference(*layer)[0], rtol=1e-4, atol=1e-5)
    else:
        with pytest.raises(ArrayError):
            ops.gatv2(*layer)


def test_numpy_users_never_import_torch() -> None:
    program = """
import sys
import numpy as np
import pyfast
from pyfast import ops
x = np.ones((2, 1, 3), np.float32)
ops.gatv2(x, x, [0, 1, 2], [1, 0], np.ones((1, 3), np.float32), return_attention=True)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "torch_geometric", "vllm", "ray"}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
