"""The encoder against PyG's GATv2Conv with the same weights, its gradients against finite differences."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, load_encoder, save_encoder, token_table
from pyfast.systems.graph_convqa.graph import Chain, TokenGraph, token_graph

GRAPH = token_graph(
    [Chain((1, 2, 3, 4), ((0, 1, 0),)), Chain((5, 6, 1, 2), ((2, 3, 0), (0, 0, 1))), Chain((5,), ((0, 0, 1),))], 99
)
NOTHING = token_graph([], 99)


def encoder(**changes: object) -> GraphEncoder:
    torch.manual_seed(3)
    made = GraphEncoder(Shape(8, **changes)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.parameters():  # biases too, which begin at 0
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def pyg(made: GraphEncoder, x: torch.Tensor, graph: TokenGraph) -> torch.Tensor:
    nn = pytest.importorskip("torch_geometric.nn")
    destination = np.repeat(np.arange(len(graph.tokens)), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), destination]))
    y = x
    for layer in made.layers:
        heads, channels = layer.size
        peer = nn.GATv2Conv(heads * channels, channels, heads)
        peer.load_state_dict(
            {
                "att": layer.attention[None],
                "bias": layer.bias,
                **{f"lin_l.{name}": value for name, value in layer.source.state_dict().items()},
                **{f"lin_r.{name}": value for name, value in layer.destination.state_dict().items()},
            }
        )
        y = torch.nn.functional.elu(peer(y, edges))
    return y


def test_it_is_pygs_layers_one_after_the_other() -> None:
    x = torch.randn(len(GRAPH.tokens), 8)
    for changes in ({"residual": False}, {"residual": False, "layers": 1, "heads": 4}, {}):
        made = encoder(**changes)
        expected = pyg(made, x, GRAPH)
        if made.gate is not None:
            expected = x + made.gate * expected
        torch.testing.assert_close(made(x, GRAPH), expected, rtol=1e-4, atol=1e-5)


def test_gradients_reach_every_parameter_and_are_those_of_finite_differences() -> None:
    made = encoder().double()
    x = torch.randn(len(GRAPH.tokens), 8, dtype=torch.float64, requires_grad=True)
    flow = torch.randn(len(GRAPH.tokens), 8, dtype=torch.float64)

    def scalar() -> torch.Tensor:
        return (made(x, GRAPH) * flow).sum()

    scalar().backward()
    for name, parameter in [*made.named_parameters(), ("x", x)]:
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
        place = int(parameter.grad.abs().argmax())
        with torch.no_grad():
            flat = parameter.view(-1)
            before = flat[place].item()
            sides = []
            for step in (1e-6, -1e-6):
                flat[place] = before + step
                sides.append(scalar().item())
            flat[place] = before
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(parameter.grad.view(-1)[place].item(), rel=1e-5), name


def test_no_nodes_are_no_embeddings() -> None:
    assert encoder()(torch.empty(0, 8), NOTHING).shape == (0, 8)


def test_dropout_is_for_training_alone() -> None:
    made, x = encoder(), torch.randn(len(GRAPH.tokens), 8)
    assert torch.equal(made(x, GRAPH), made(x, GRAPH))
    made.train()
    assert not torch.equal(made(x, GRAPH), made(x, GRAPH))
    torch.manual_seed(1)
    first = made(x, GRAPH)
    torch.manual_seed(1)
    assert torch.equal(first, made(x, GRAPH))


def test_saved_and_loaded(tmp_path: Path) -> None:
    made, x = encoder(residual=False, heads=4), torch.randn(len(GRAPH.tokens), 8)
    save_encoder(made, tmp_path / "new")
    loaded = load_encoder(tmp_path / "new")
    assert loaded.shape == made.shape and not loaded.training
    assert torch.equal(loaded(x, GRAPH), made(x, GRAPH))


@pytest.mark.parametrize("damage", ["missing", "cut", "other shape", "no shape", "unknown"])
def test_what_is_no_encoder_is_refused(tmp_path: Path, damage: str) -> None:
    save_encoder(encoder(), tmp_path)
    weights, shape = tmp_path / "encoder.safetensors", tmp_path / "encoder.json"
    if damage == "missing":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif damage == "no shape":
        shape.write_text("[")
    else:
        changed = {"hidden": 16} if damage == "other shape" else {"frob": 1}
        shape.write_text(json.dumps({**json.loads(shape.read_text()), **changed}))
    with pytest.raises(InputError) as error:
        load_encoder(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_heads_divide_the_width() -> None:
    with pytest.raises(InputError, match="hidden size, 8, is not a multiple of the number of heads, 3"):
        GraphEncoder(Shape(8, heads=3))


def test_a_models_token_embeddings(tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny)
    assert torch.equal(token_table(tiny), model.get_input_embeddings().weight)
    with pytest.raises(ModelNotFoundError, match="token embeddings"):
        token_table(tmp_path)
