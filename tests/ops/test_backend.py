"""Where an op runs: it follows its arrays, and says in one line why it cannot."""

from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array

from pyfast import ops
from pyfast.commands.doctor import doctor
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.backend import GPU_OPS, gpu_problem, on_gpu

X = csr_array(np.eye(3, dtype=np.float32))
POOLS = np.array([0, 3]), np.arange(3)
GRAPH = ops.evidence_graph(X, *POOLS)
STREAM = ops.hseq_stream([0, 2], [-1, 0], priority=[2])
FEATURES = np.ones((3, 1, 2), np.float32), np.ones((3, 1, 2), np.float32)
ATT = np.ones((1, 2), np.float32)
CALLS = {
    "evidence_graph": lambda backend: ops.evidence_graph(X, *POOLS, backend=backend),
    "weighted_degree": lambda backend: ops.weighted_degree(X, *POOLS, backend=backend),
    "graph_rank": lambda backend: ops.graph_rank(np.ones(3), np.ones(3), [0, 3], backend=backend),
    "pagerank": lambda backend: ops.pagerank(GRAPH, backend=backend),
    "hseq_stream": lambda backend: STREAM.window(STREAM.cursors(), 2, backend=backend),
    "gatv2": lambda backend: ops.gatv2(
        *FEATURES, [0, 1, 2, 3], [0, 1, 2], np.ones((1, 2), np.float32), backend=backend
    ),
}


class OnDevice:
    """An array on a GPU, as far as anyone can tell without looking into it."""

    dtype = np.dtype(np.int32)
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {
        "shape": (3,),
        "typestr": "<i4",
        "data": (0, False),
        "version": 3,
    }


def test_every_op_of_a_gpu_is_asked() -> None:
    assert set(CALLS) == set(GPU_OPS)


@pytest.mark.parametrize("op", GPU_OPS)
def test_backends_of_arrays_on_the_cpu(op: str) -> None:
    CALLS[op]("auto")
    CALLS[op]("cpu")
    with pytest.raises(ArrayError, match="backend: expected"):
        CALLS[op]("gpu")
    with pytest.raises(DeviceError if gpu_problem() else ArrayError) as raised:
        CALLS[op]("cuda")
    assert "\n" not in str(raised.value)


def test_auto_follows_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not on_gpu("auto", np.zeros(3), [1, 2], None)
    monkeypatch.setattr("pyfast.ops.backend.gpu_problem", lambda: "")
    assert on_gpu("auto", np.zeros(3), OnDevice())
    assert not on_gpu("cpu", OnDevice())


@pytest.mark.skipif(not gpu_problem(), reason="there is a GPU")
def test_arrays_on_a_gpu_that_cannot_be_used() -> None:
    with pytest.raises(DeviceError, match=r"built without|no GPU can be used"):
        ops.weighted_degree(X, [0, 3], OnDevice())  # type: ignore[arg-type]


def test_doctor_tells_of_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    doctor()
    said = capsys.readouterr().out
    assert all(op in said for op in ops.__all__ if op.islower())
    assert "GPU ops: " in said and (gpu_problem() or "compute capability") in said.replace("\n", " ")
