"""gatv2 of torch tensors: its derivative by gradcheck, and PyG's GATv2Conv as an oracle for all of it."""

from typing import Any

import numpy as np
import pytest
from gatv2_problems import Layer, layers, random_layer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyfast import ops
from pyfast.errors import ArrayError

torch = pytest.importorskip("torch")
torch_nn = pytest.importorskip("torch_geometric.nn")


def tensors(layer: Layer, dtype: Any = torch.float32, grad: bool = True) -> tuple[Any, Any, Any, Any, Any]:
    """The layer's features and att as leaves of a graph of their own."""
    made = [torch.tensor(x).to(dtype).requires_grad_(grad) for x in (layer.x_src, layer.x_dst, layer.att)]
    return made[0], made[1], layer.indptr, layer.indices, made[2]


def pyg(layer: Layer, shared: bool = False, **options: Any) -> tuple[Any, ...]:
    """y of PyG and its gradients by x_src, x_dst and att, in float64, of features as they are."""
    heads, channels = layer.att.shape
    convolution = torch_nn.GATv2Conv(
        heads * channels, channels, heads=heads, bias=False, share_weights=shared, **options
    ).double()
    convolution.lin_l = convolution.lin_r = torch.nn.Identity()
    x_src, x_dst, *_, att = tensors(layer, torch.float64)
    convolution.att = torch.nn.Parameter(att.detach()[None])
    flat = x_src.flatten(1)
    y = convolution(flat if shared else (flat, x_dst.flatten(1)), torch.from_numpy(layer.edge_index))
    y = y.view(-1, heads, channels)
    inputs = (x_src, convolution.att) if shared else (x_src, x_dst, convolution.att)
    gradients = torch.autograd.grad(y, inputs, weights(y), allow_unused=True)
    return (y.detach(), *(torch.zeros(()) if g is None else g.squeeze(0) for g in gradients))


def weights(y: Any) -> Any:
    """What the sum of y is weighed by, so that its gradient is one of everything."""
    return torch.sin(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape).to(y.dtype)


def close(found: Any, expected: Any, tolerance: float) -> None:
    """Within the tolerance, relative to the largest number."""
    assert found.shape == expected.shape
    scale = max(float(expected.detach().abs().max()), 1.0)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0.0, atol=tolerance * scale)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("heads", "channels"), [(1, 1), (2, 16), (3, 37), (2, 288)])
def test_pyg(heads: int, channels: int, shared: bool, loops: bool) -> None:
    layer = random_layer(60, 60, 250, heads, channels)
    if shared:
        layer = layer.replace(x_dst=layer.x_src)
    expected = pyg(layer, shared, add_self_loops=loops)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 5e-6)):
        x_src, x_dst, indptr, indices, att = tensors(layer, dtype)
        x_dst = x_src if shared else x_dst
        y = ops.gatv2(x_src, x_dst, indptr, indices, att, self_loops=loops)
        inputs = (x_src, att) if shared else (x_src, x_dst, att)
        found = (y, *torch.autograd.grad(y, inputs, weights(y)))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            close(one, other.view(one.shape), tolerance)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(("n_src", "n_dst"), [(80, 30), (30, 80)])
def test_pyg_with_other_destinations_and_slope(n_src: int, n_dst: int, loops: bool) -> None:
    """A destination has its loop where there is a source of its number."""
    layer = random_layer(n_src, n_dst, 200, 2, 20)
    expected = pyg(layer, add_self_loops=loops, negative_slope=0.05)
    x_src, x_dst, *csr, att = tensors(layer, torch.float64)
    y, attention = ops.gatv2(x_src, x_dst, *csr, att, 0.05, self_loops=loops, return_attention=True)
    assert len(attention) == 200 + 80 * loops if n_dst == 80 else 200 + 30 * loops
    assert not attention[200 + min(n_src, n_dst) :].any()
    for one, other in zip((y, *torch.autograd.grad(y, (x_src, x_dst, att), weights(y))), expected, strict=True):
        close(one, other, 1e-12)


@pytest.mark.parametrize("loops", [False, True])
def test_pyg_dropout_by_a_given_mask(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = random_layer(12, 12, 160, 2, 9)
    drawn = ops.gatv2(*layer, self_loops=loops, dropout=0.4, seed=5, return_attention=True)[1]
    mask = torch.from_numpy(drawn != 0)
    stays = np.ones(len(mask), bool)
    if loops:  # PyG removes the loops that are stored
        stays[: len(layer.indices)] = layer.edge_index[0] != layer.edge_index[1]
        assert not stays.all()

    def dropout(alpha: Any, p: float, training: bool) -> Any:
        return alpha * mask[stays] / (1 - p)

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    expected = pyg(layer, add_self_loops=loops, dropout=0.4)
    for given_ in ({"mask": mask}, {"seed": 5}):
        x_src, x_dst, *csr, att = tensors(layer, torch.float64)
        y = ops.gatv2(x_src, x_dst, *csr, att, self_loops=loops, dropout=0.4, **given_)
        found = (y, *torch.autograd.grad(y, (x_src, x_dst, att), weights(y)))
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-12)


def away_from_the_corner(layer: Layer) -> Layer:
    """Features whose sums are never 0, where LeakyReLU has no derivative."""
    return layer.astype(np.float64).replace(x_dst=layer.x_dst.astype(np.float64) + 0.0625)


@settings(max_examples=20)
@given(
    layer=layers(),
    slope=st.sampled_from([0.2, 0.0, 1.5]),
    loops=st.booleans(),
    dropout=st.sampled_from([0.0, 0.5]),
)
def test_gradcheck(layer: Layer, slope: float, loops: bool, dropout: float) -> None:
    layer = away_from_the_corner(layer)
    options = {"self_loops": loops, "dropout": dropout, "seed": 11}
    x_src, x_dst, *csr, att = tensors(layer, torch.float64)
    assume(len(x_src) and len(x_dst))  # gradcheck wants numbers to vary
    assert torch.autograd.gradcheck(
        lambda a, b, c: ops.gatv2(a, b, *csr, c, slope, **options), (x_src, x_dst, att), eps=1e-5, atol=1e-6
    )


@settings(max_examples=5)
@given(layer=layers(), loops=st.booleans(), dropout=st.sampled_from([0.0, 0.5]))
def test_gradcheck_of_the_attention(layer: Layer, loops: bool, dropout: float) -> None:
    layer = away_from_the_corner(layer)
    x_src, x_dst, *csr, att = tensors(layer, torch.float64)
    assume(len(x_src) and len(x_dst) and len(layer.indices) and att.numel() < 10)

    def call(*features: Any) -> Any:
        return ops.gatv2(
            features[0],
            features[1],
            *csr,
            features[2],
            self_loops=loops,
            dropout=dropout,
            seed=11,
            return_attention=True,
        )

    features = x_src, x_dst, att
    assert torch.autograd.gradcheck(call, features, eps=1e-5, atol=1e-6)
    assert torch.autograd.gradgradcheck(call, features, eps=1e-5, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("is_op", [False, True])
def test_second_derivatives_are_refused(is_op: bool) -> None:
    """Also where the first gradient does not depend on what flows back."""
    x_src, x_dst, *csr, att = tensors(random_layer(9, 9, 30, 2, 3), torch.float64)
    if is_op:
        graph = map(torch.as_tensor, csr)
        y, _ = torch.ops.pyfast.gatv2(x_src, x_dst, *graph, att, 0.2, False, 0.0, None, None, 1)
    else:
        y = ops.gatv2(x_src, x_dst, *csr, att)
    (gradient,) = torch.autograd.grad(y.sum(), x_src, create_graph=True)
    with pytest.raises(NotImplementedError, match="gatv2 has no second derivatives"):
        gradient.sum().backward()


def test_gradcheck_of_shared_features() -> None:
    layer = random_layer(9, 9, 30, 2, 3)
    x, _, *csr, att = tensors(layer, torch.float64)
    assert torch.autograd.gradcheck(lambda a, b: ops.gatv2(a, a, *csr, b, self_loops=True), (x, att), eps=1e-6)


def gradients(layer: Layer, dtype: Any = torch.float32, **options: Any) -> tuple[Any, ...]:
    x_src, x_dst, *csr, att = tensors(layer, dtype)
    y = ops.gatv2(x_src, x_dst, *csr, att, **options)
    return (y.detach(), *torch.autograd.grad(y, (x_src, x_dst, att), weights(y)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_threads(dtype: Any) -> None:
    layer = random_layer(2000, 2000, 9000, 2, 70)
    one = gradients(layer, dtype, threads=1, dropout=0.2, seed=1)
    for threads in (2, 3, 8):
        for found, expected in zip(
            gradients(layer, dtype, threads=threads, dropout=0.2, seed=1), one, strict=True
        ):
            assert torch.equal(found, expected)


def test_bfloat16() -> None:
    """As float32 of the same numbers, rounded once at the end."""
    layer = random_layer(50, 40, 200, 2, 37)
    rounded = [torch.tensor(x).bfloat16() for x in (layer.x_src, layer.x_dst, layer.att)]
    narrow = gradients(layer, torch.bfloat16)
    wide = layer.replace(**dict(zip(("x_src", "x_dst", "att"), (x.float().numpy() for x in rounded), strict=True)))
    x_src, x_dst, *csr, att = tensors(wide)
    y = ops.gatv2(x_src, x_dst, *csr, att)
    flow = weights(narrow[0]).float()  # bfloat16's weights, as the other one saw them
    expected = (y.detach(), *torch.autograd.grad(y, (x_src, x_dst, att), flow))
    for found, other in zip(narrow, expected, strict=True):
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, other.bfloat16())


def test_bfloat16_rounds_as_torch_does() -> None:
    x = torch.tensor([1.0, 1.00390625, 1.01171875, 3.3895314e38, float("inf"), float("nan"), -0.0, 1e-40])
    values = x[:, None, None]
    one = np.arange(len(x) + 1)
    y = ops.gatv2(
        values.bfloat16(), torch.zeros_like(values).bfloat16(), one, one[:-1], torch.zeros(1, 1).bfloat16()
    )
    # inf and NaN have a score that is NaN: 0 times either.
    expected = values.bfloat16().clone()
    expected[4] = float("nan")
    torch.testing.assert_close(y, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_gradients_of_some(wanted: tuple[int, ...]) -> None:
    layer = random_layer(30, 30, 90, 2, 10)
    x_src, x_dst, *csr, att = tensors(layer, grad=False)
    inputs = [x_src, x_dst, att]
    for i in wanted:
        inputs[i].requires_grad_()
    y = ops.gatv2(x_src, x_dst, *csr, att)
    y.backward(weights(y))
    for i, expected in enumerate(gradients(layer)[1:]):
        assert (inputs[i].grad is not None) == (i in wanted)
        if i in wanted:
            assert torch.equal(inputs[i].grad, expected)


def test_no_gradient() -> None:
    x_src, x_dst, *csr, att = tensors(random_layer(5, 5, 9, 1, 4), grad=False)
    assert not ops.gatv2(x_src, x_dst, *csr, att).requires_grad
    x_src.requires_grad_()
    with torch.no_grad():
        assert not ops.gatv2(x_src, x_dst, *csr, att).requires_grad


def test_strides_and_index_tensors() -> None:
    layer = random_layer(30, 30, 90, 2, 10)
    expected = gradients(layer)
    wide = torch.tensor(layer.x_src).repeat(1, 1, 2).requires_grad_()
    turned = torch.tensor(layer.x_dst.transpose(2, 0, 1).copy()).requires_grad_()
    att = torch.tensor(layer.att).requires_grad_()
    csr = (torch.from_numpy(layer.indptr), torch.from_numpy(layer.indices).int())
    y = ops.gatv2(wide[:, :, :10], turned.permute(1, 2, 0), *csr, att)
    assert torch.equal(y, expected[0])
    # A gradient without memory of its own, as that of a sum is.
    y.sum().backward()
    x_src, x_dst, *other, plain = tensors(layer)
    ops.gatv2(x_src, x_dst, *other, plain).backward(torch.ones_like(y))
    assert torch.equal(wide.grad[:, :, :10], x_src.grad) and not wide.grad[:, :, 10:].any()
    assert torch.equal(turned.grad.permute(1, 2, 0), x_dst.grad) and torch.equal(att.grad, plain.grad)


def test_attention() -> None:
    layer = random_layer(30, 30, 90, 2, 10)
    x_src, x_dst, *csr, att = tensors(layer)
    y, attention = ops.gatv2(x_src, x_dst, *csr, att, dropout=0.5, seed=1, return_attention=True)
    expected = ops.gatv2(*layer, dropout=0.5, seed=1, return_attention=True)
    np.testing.assert_array_equal(attention.detach().numpy(), expected[1])
    np.testing.assert_array_equal(y.detach().numpy(), expected[0])


def test_seed_comes_from_torch() -> None:
    x_src, x_dst, *csr, att = tensors(random_layer(30, 30, 90, 2, 10))
    run = [ops.gatv2(x_src, x_dst, *csr, att, dropout=0.5) for _ in range(2) if torch.manual_seed(3)]
    assert torch.equal(run[0], run[1])
    assert not torch.equal(run[1], ops.gatv2(x_src, x_dst, *csr, att, dropout=0.5))


def test_inputs_changed_in_place_are_noticed() -> None:
    x_src, x_dst, *csr, att = tensors(random_layer(5, 5, 9, 1, 4))
    y = ops.gatv2(x_src, x_dst, *csr, att)
    with torch.no_grad():
        x_dst += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_graph_that_was_spoilt_before_the_backward_pass() -> None:
    x_src, x_dst, indptr, indices, att = tensors(random_layer(5, 5, 9, 1, 4))
    y = ops.gatv2(x_src, x_dst, indptr, indices, att)
    indices[3] = 5
    with pytest.raises(ArrayError, match="indices"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda x, d, a: (x.to("meta"), d, a), "x_src: expected a dense tensor on the CPU"),
        (lambda x, d, a: (x, d, a.to("meta")), "att: expected a dense tensor on the CPU"),
        (lambda x, d, a: (x.to_sparse(), d, a), "x_src: expected a dense tensor"),
        (lambda x, d, a: (x.half(), d, a), "x_src: expected float32, float64 or bfloat16"),
        (lambda x, d, a: (x.double(), d, a), "x_src: is torch.float64, but att is torch.float32"),
        (lambda x, d, a: (x.numpy(), d, a), "x_src: expected a torch.Tensor"),
        (lambda x, d, a: (x, d, a[0]), "att"),
        (lambda x, d, a: (x[:, :1], d, a), "x_src"),
        (lambda x, d, a: (x, d[:-1], a), "x_dst"),
    ],
)
def test_malformed(change: Any, name: str) -> None:
    x_src, x_dst, *csr, att = tensors(random_layer(5, 5, 9, 2, 4), grad=False)
    with pytest.raises(ArrayError, match=name):
        source, destination, attention = change(x_src, x_dst, att)
        ops.gatv2(source, destination, *csr, attention)
