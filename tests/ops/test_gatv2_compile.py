"""gatv2 as torch's own tools take it: opcheck, torch.compile, autocast."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gatv2_problems import Layer, random_layer

from pyfast import ops
from pyfast.errors import ArrayError

torch = pytest.importorskip("torch")

LAYER = random_layer(20, 15, 60, 2, 6)


def tensors(layer: Layer = LAYER, dtype: Any = torch.float32) -> list[Any]:
    """The arguments of gatv2 as tensors; the features are leaves."""
    features = [torch.tensor(x).to(dtype).requires_grad_() for x in (layer.x_src, layer.x_dst, layer.att)]
    return [*features[:2], torch.tensor(layer.indptr), torch.tensor(layer.indices), features[2]]


def flat(x: Any) -> Any:
    return torch.cat([each.detach().double().flatten() for each in x])


@pytest.mark.parametrize(("dtype", "loops", "dropout"), [(torch.float64, True, 0.5), (torch.bfloat16, False, 0.0)])
def test_opcheck(dtype: Any, loops: bool, dropout: float) -> None:
    from pyfast.ops import gatv2_torch

    given = tensors(dtype=dtype)
    drawn = (torch.tensor(5), None) if loops else (None, torch.rand(60, 2) > 0.5)
    torch.library.opcheck(gatv2_torch._gatv2, (*given, 0.2, loops, dropout, *drawn, 1))
    with torch.no_grad():
        y, attention = gatv2_torch._gatv2(*given, 0.2, loops, dropout, *drawn, 1)
    grad = torch.ones_like(y).requires_grad_()
    for wanted in ([True] * 3, [False, True, False]):
        torch.library.opcheck(
            gatv2_torch._gatv2_backward,
            (*given, attention, grad, 0.2, loops, dropout, wanted, 1),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )


class Model(torch.nn.Module):
    """Features that come out of matrix products, a loss that goes through the attention too."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(7, 12)
        self.att = torch.nn.Parameter(torch.randn(2, 6))
        self.dropout = dropout

    def forward(self, x: Any, indptr: Any, indices: Any) -> Any:
        features = self.linear(x).view(-1, 2, 6)
        y, attention = ops.gatv2(
            features,
            features,
            indptr,
            indices,
            self.att,
            self_loops=True,
            dropout=self.dropout,
            return_attention=True,
        )
        return y.relu(), attention


def gradients(model: Any, call: Any, graph: Any, through: slice = slice(1), seed: int = 0) -> Any:
    torch.manual_seed(seed)
    out = call(torch.linspace(-2, 2, 7 * (len(graph[0]) - 1)).view(-1, 7), *graph)
    loss = sum(each.float().square().sum() for each in out[through])
    return flat((*out, *torch.autograd.grad(loss, list(model.parameters()))))


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=0.0, atol=tolerance * float(expected.abs().max()))


def graph_of(nodes: int) -> tuple[Any, Any]:
    layer = random_layer(nodes, nodes, 4 * nodes, 1, 1)
    return torch.tensor(layer.indptr), torch.tensor(layer.indices)


def test_compiled() -> None:
    """In one graph, for any number of nodes."""
    both = slice(2)
    torch.manual_seed(1)
    model = Model(dropout=0.4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for nodes in (10, 17):
        expected = gradients(model, model, graph_of(nodes), both)
        close(gradients(model, compiled, graph_of(nodes), both), expected)
    again = gradients(model, compiled, graph_of(17), both, seed=1)
    assert not torch.equal(again, expected)  # another seed drops others


@pytest.mark.slow(suite="training")
def test_compiled_with_a_graph_of_numpy() -> None:
    model = Model()
    torch._dynamo.reset()
    graph = tuple(each.numpy() for each in graph_of(10))
    compiled = torch.compile(model, backend="aot_eager")
    close(gradients(model, compiled, graph), gradients(model, model, graph))


@pytest.mark.slow(suite="training")
def test_compiled_by_inductor() -> None:
    torch.manual_seed(1)
    model = Model()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    close(gradients(model, compiled, graph_of(10)), gradients(model, model, graph_of(10)))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: Any, compile: bool) -> None:
    """A Linear gives narrow features there, and att is wide: as PyG's, y is float32."""
    torch.manual_seed(1)
    model, graph = Model(), graph_of(30)
    torch._dynamo.reset()
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compile else model

    def narrow(*arguments: Any) -> Any:
        with torch.autocast("cpu", dtype):
            out = call(*arguments)
        assert out[0].dtype == torch.float32
        return out

    expected = gradients(model, model, graph)
    found = gradients(model, narrow, graph)
    assert not torch.equal(found, expected)
    close(found, expected, 0.03)


def test_autocast_of_float64_is_float64() -> None:
    given = tensors(dtype=torch.float64)
    with torch.autocast("cpu"):
        assert torch.equal(ops.gatv2(*given), ops.gatv2(*given)) and ops.gatv2(*given).dtype == torch.float64


def test_the_graph_as_numpy_or_as_tensors() -> None:
    x_src, x_dst, indptr, indices, att = tensors()
    expected = ops.gatv2(x_src, x_dst, indptr, indices, att)
    for graph in (
        (LAYER.indptr, LAYER.indices),
        (LAYER.indptr.tolist(), LAYER.indices.tolist()),
        (indptr.int(), indices.int()),
        (indptr.numpy(), indices.repeat_interleave(2)[::2]),
    ):
        assert torch.equal(ops.gatv2(x_src, x_dst, *graph, att), expected)
    still = LAYER.indices.copy()
    still.flags.writeable = False
    assert torch.equal(ops.gatv2(x_src, x_dst, indptr, still, att), expected)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"negative_slope": "steep"}, "negative_slope"),
        ({"dropout": "x"}, "dropout"),
        ({"dropout": 1.0, "seed": 1}, "dropout"),
        ({"dropout": 0.5, "seed": 0.5}, "seed"),
        ({"mask": torch.ones(60, 2)}, "mask"),
        ({"mask": "x"}, "mask"),
        ({"mask": torch.ones(59, 2, dtype=torch.bool)}, "mask"),
        ({"threads": 0}, "threads"),
        ({"backend": "gpu"}, "backend"),
        ({"indptr": torch.zeros(16)}, "indptr"),
        ({"indices": torch.zeros(60, 1, dtype=torch.int64)}, "indices"),
        ({"indices": torch.zeros(60, dtype=torch.int64, device="meta")}, "indices"),
    ],
)
def test_malformed_settings(options: dict[str, Any], name: str) -> None:
    x_src, x_dst, indptr, indices, att = tensors()
    given = {"x_src": x_src, "x_dst": x_dst, "indptr": indptr, "indices": indices, "att": att}
    with pytest.raises(ArrayError, match=name):
        ops.gatv2(**{**given, **options})


def test_seeds_of_all_sizes() -> None:
    given = tensors()
    for seed in (0, 5, 2**63, 2**64 - 1, -1):
        expected = ops.gatv2(*LAYER, dropout=0.5, seed=seed)
        found = ops.gatv2(*given, dropout=0.5, seed=np.int64(seed) if seed == 5 else seed)
        np.testing.assert_array_equal(found.detach().numpy(), expected)


TYPED = """
from typing import Any, assert_type
import numpy.typing as npt
import torch
from pyfast import ops
from pyfast.ops import nn
Array = npt.NDArray[Any]
def use(x: Array, a: Array, t: torch.Tensor, i: Array, drawn: torch.nn.Parameter) -> None:
    assert_type(ops.gatv2(x, x, i, [0], a), Array)
    assert_type(ops.gatv2(x, x, i, i, a, 0.1, return_attention=True), tuple[Array, Array])
    assert_type(ops.gatv2(t, t, i, i, drawn), torch.Tensor)
    assert_type(ops.gatv2(t, t, t, t, t, return_attention=True), tuple[torch.Tensor, torch.Tensor])
    assert_type(nn.GATv2Conv(3, 4).forward(t, t), torch.Tensor)
    ops.gatv2(x, t, i, i, a)  # type: ignore[type-var]
"""


@pytest.mark.slow(suite="training")
def test_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "typed.py")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
