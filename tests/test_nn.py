"""pyfast.ops.nn.GATv2Conv against PyG's: the same weights, results, gradients and training."""

import subprocess
import sys
from typing import Any

import pytest

from pyfast.errors import ArrayError, InputError

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from pyfast.ops import nn  # noqa: E402

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "heads": {"heads": 3},
    "mean": {"heads": 2, "concat": False},
    "no loops": {"add_self_loops": False, "negative_slope": 0.4},
    "no bias": {"bias": False},
    "shared": {"share_weights": True},
    "residual": {"residual": True, "heads": 2},
    "residual mean": {"residual": True, "heads": 2, "concat": False, "fill_value": 0.5},
}


def edges(sources: int, destinations: int, count: int = 60) -> Any:
    """In no order, loops and edges that occur twice among them."""
    random = torch.Generator().manual_seed(sources)
    return torch.stack([torch.randint(n, (count,), generator=random) for n in (sources, destinations)])


def pair(*arguments: Any, **options: Any) -> tuple[Any, Any]:
    """Ours and PyG's, made from the same seed."""
    made = []
    for kind in (nn.GATv2Conv, pyg.GATv2Conv):
        torch.manual_seed(7)
        made.append(kind(*arguments, **options))
    return made[0], made[1]


def compare(ours: Any, theirs: Any, x: Any, edge_index: Any, tolerance: float = 1e-5) -> None:
    """Results, attention weights, and the gradients by every parameter and by x."""
    found = []
    leaves = [each.clone().requires_grad_() for each in ([x] if isinstance(x, torch.Tensor) else x)]
    given = leaves[0] if isinstance(x, torch.Tensor) else tuple(leaves)
    for layer in (ours, theirs):
        y, (ends, weights) = layer(given, edge_index, return_attention_weights=True)
        assert torch.equal(layer(given, edge_index), y)
        loss = y.sin().sum() + weights.square().sum()
        found.append((y, ends, weights, *torch.autograd.grad(loss, [*leaves, *layer.parameters()])))
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_as_pygs(options: dict[str, Any]) -> None:
    ours, theirs = pair(5, 4, **options)
    assert repr(ours) == repr(theirs)
    compare(ours, theirs, torch.randn(20, 5), edges(20, 20))
    compare(ours.double(), theirs.double(), torch.randn(20, 5).double(), edges(20, 20), 1e-12)


@pytest.mark.parametrize("options", [option for name, option in OPTIONS.items() if name != "shared"], ids=str)
@pytest.mark.parametrize("sizes", [(20, 12), (12, 20)])
def test_of_two_kinds_of_nodes(options: dict[str, Any], sizes: tuple[int, int]) -> None:
    ours, theirs = pair((5, 3), 4, **options)
    compare(ours, theirs, (torch.randn(sizes[0], 5), torch.randn(sizes[1], 3)), edges(*sizes))


def test_of_two_kinds_of_nodes_with_shared_weights() -> None:
    ours, theirs = pair((5, 5), 4, share_weights=True)
    compare(ours, theirs, (torch.randn(20, 5), torch.randn(12, 5)), edges(20, 12))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_weights_are_pygs_and_go_both_ways(options: dict[str, Any]) -> None:
    ours, theirs = pair((5, 5), 4, **options)
    state, expected = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(expected)
    for name, value in expected.items():
        assert torch.equal(state[name], value), name  # drawn from one seed
    for module in (ours, theirs):
        torch.manual_seed(9)
        module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    other = nn.GATv2Conv((5, 5), 4, **options)
    other.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(other.state_dict())
    compare(other, theirs, (torch.randn(9, 5), torch.randn(9, 5)), edges(9, 9, 30))


def test_channels_that_the_first_features_tell() -> None:
    for sizes, x in ((-1, torch.randn(9, 5)), ((-1, -1), (torch.randn(9, 5), torch.randn(7, 3)))):
        ours, theirs = pair(sizes, 4, heads=2, residual=True)
        graph = edges(7, 7)
        ours(x, graph), theirs(x, graph)
        ours.load_state_dict(theirs.state_dict())
        compare(ours, theirs, x, graph)
        lazy = nn.GATv2Conv(sizes, 4, heads=2, residual=True)
        lazy.load_state_dict(theirs.state_dict())
        compare(lazy, theirs, x, graph)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_tensor_of_edges() -> None:
    ours, theirs = pair((5, 3), 4, heads=2)
    graph = torch.unique(edges(20, 12), dim=1)
    adjacency = torch.sparse_coo_tensor(graph.flip(0), torch.ones(graph.shape[1]), (12, 20)).to_sparse_csr()
    x = torch.randn(20, 5), torch.randn(12, 3)
    torch.testing.assert_close(ours(x, adjacency), theirs(x, graph))
    with pytest.raises(ArrayError, match="return_attention_weights"):
        ours(x, adjacency, return_attention_weights=True)


class Model(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.first = layer(6, 8, heads=2)
        self.second = layer(16, 3, heads=2, concat=False, residual=True)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


def losses(layer: Any, compile: bool = False, steps: int = 30) -> Any:
    torch.manual_seed(3)
    model = Model(layer)
    x, classes, graph = torch.randn(40, 6), torch.randint(3, (40,)), edges(40, 40, 160)
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compile else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(call(x, graph), classes)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_training_with_one_import_changed() -> None:
    expected = losses(pyg.GATv2Conv)
    assert losses(nn.GATv2Conv) == pytest.approx(expected, rel=1e-3) and expected[-1] < 0.5 * expected[0]


def test_training_compiled() -> None:
    torch._dynamo.reset()
    assert losses(nn.GATv2Conv, True, 4) == pytest.approx(losses(nn.GATv2Conv, steps=4), rel=1e-4)


def test_dropout_is_for_training_alone() -> None:
    layer, x, graph = nn.GATv2Conv(5, 4, dropout=0.5), torch.randn(20, 5), edges(20, 20)
    torch.manual_seed(1)
    first, second = layer(x, graph), layer(x, graph)
    torch.manual_seed(1)
    assert torch.equal(layer(x, graph), first) and not torch.equal(first, second)
    _, (_, weights) = layer(x, graph, return_attention_weights=True)
    layer.eval()
    assert torch.equal(layer(x, graph), layer(x, graph))
    _, (_, whole) = layer(x, graph, return_attention_weights=True)
    kept = weights != 0
    assert kept.any() and not kept.all()
    torch.testing.assert_close(weights[kept], 2 * whole[kept])


def test_autocast_gives_what_pygs_gives() -> None:
    ours, theirs = pair(5, 4, heads=2)
    x, graph = torch.randn(20, 5), edges(20, 20)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(x, graph), theirs(x, graph)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_nothing_to_attend_to() -> None:
    layer = nn.GATv2Conv(5, 4)
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    assert layer(torch.randn(0, 5), nothing).shape == (0, 4)
    assert nn.GATv2Conv(5, 4, add_self_loops=False, bias=False)(torch.randn(3, 5), nothing).eq(0).all()


@pytest.mark.parametrize(
    ("graph", "name"),
    [
        (torch.tensor([[0], [20]]), "edge_index: there is no destination 20; number of destinations: 20"),
        (torch.tensor([[0], [-1]]), "edge_index: there is no destination -1"),
        (torch.tensor([[20], [0]]), "indices: there is no source 20"),
        (torch.tensor([[0.0], [1.0]]), "edge_index: expected integers"),
        (torch.zeros(3, 2, dtype=torch.int64), r"edge_index: expected \[2, E\]"),
        (torch.zeros(2, dtype=torch.int64), r"edge_index: expected \[2, E\]"),
        ([[0], [1]], "edge_index: expected a torch.Tensor, got list"),
    ],
)
def test_malformed_edges(graph: Any, name: str) -> None:
    with pytest.raises(ArrayError, match=name):
        nn.GATv2Conv(5, 4)(torch.randn(20, 5), graph)


def test_edge_features_are_refused() -> None:
    with pytest.raises(InputError, match="edge_dim: edge features are not supported"):
        nn.GATv2Conv(5, 4, edge_dim=3)
    with pytest.raises(ArrayError, match="edge_attr: edge features are not supported"):
        nn.GATv2Conv(5, 4)(torch.randn(20, 5), edges(20, 20), torch.randn(60, 3))  # type: ignore[call-overload]


def test_without_torch_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['torch'] = None\nimport pyfast, pyfast.ops\nimport pyfast.ops.nn"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode and done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pyfast.ops.nn needs torch: pip install 'pyfast-qa[torch]'"
    )
