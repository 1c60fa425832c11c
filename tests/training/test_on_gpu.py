"""The op that computes the attention of graph_convqa's encoder in a training: the GPU's where there is a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyfast.ops.gatv2_cpu as on_cpu  # noqa: E402
import pyfast.ops.gatv2_gpu as on_gpu  # noqa: E402
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape  # noqa: E402
from pyfast.systems.graph_convqa.graph import TokenGraph  # noqa: E402
from pyfast.training.loop import Schedule, fit  # noqa: E402


def counted(real: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    return call


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_the_op_of_the_device_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, autocast: bool
) -> None:
    calls: list[str] = []
    for module, name in ((on_gpu, "forward"), (on_gpu, "backward"), (on_cpu, "forward"), (on_cpu, "backward")):
        said = f"{module.__name__.removeprefix('pyfast.ops.')}.{name}"
        monkeypatch.setattr(module, name, counted(getattr(module, name), said, calls))
    torch.manual_seed(0)
    encoder = GraphEncoder(Shape(64, dropout=0.0)).to(device).train()
    indices = np.array([1, 2, 0, 3, 4, 0, 1], np.int32)
    graph = TokenGraph(np.arange(5, dtype=np.int32), np.array([0, 2, 3, 5, 6, 7]), indices, 1)
    x, projected = torch.randn(5, 64, device=device), list[Any]()
    encoder.layers[0].source.register_forward_hook(lambda *given: projected.append(given[2].dtype))
    curve = fit(
        [0] * 8,
        lambda batch: encoder(x, graph).square().mean() * len(batch),
        dict(encoder.named_parameters()),
        tmp_path,
        Schedule(accumulation=4, learning_rate=1e-2, autocast=autocast),
        {},
    )
    assert len(curve) == 2 and curve[1].loss < curve[0].loss
    name = "gatv2_gpu" if device == "cuda" else "gatv2_cpu"
    assert set(calls) == {f"{name}.forward", f"{name}.backward"}
    assert len(calls) == 2 * len(encoder.layers) * 8
    assert set(projected) == {torch.bfloat16 if autocast else torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in encoder.parameters())
