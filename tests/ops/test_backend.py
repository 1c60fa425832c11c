"""Where an op runs: it follows its arrays, and says in one line why it cannot."""

import sys
from threading import Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array

from pyfast import _native, ops
from pyfast.commands.checks import doctor
from pyfast.errors import ArrayError, DeviceError
from pyfast.ops.backend import GPU_OPS, Gpu, errors_at_end, errors_pending, errors_wait_for, gpu_problem, on_gpu

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
    "maxsim": lambda backend: ops.maxsim([[1.0]], [0, 1], [[1.0]], [0, 1], [[0, 0]], backend=backend),
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


def of_cupy(gpu: int) -> Any:
    found = OnDevice()
    found.device = SimpleNamespace(id=gpu)  # type: ignore[attr-defined]
    return found


def of_torch(gpu: int) -> Any:
    device = pytest.importorskip("torch").device("cuda", gpu)
    return SimpleNamespace(is_cuda=True, device=device)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose arrays are NumPy's."""
    same = dict.fromkeys(("asnumpy", "asarray", "ascontiguousarray"), np.asarray)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(zeros=np.zeros, empty=np.empty, **same))


def test_arrays_of_both_libraries_are_torchs() -> None:
    gpu = Gpu(of_cupy(1), of_torch(1))
    assert gpu.torch and gpu.device == of_torch(1).device


@pytest.mark.usefixtures("cupy")
def test_arrays_on_several_gpus_are_refused() -> None:
    Gpu(of_cupy(1), OnDevice(), np.zeros(3))  # one that does not tell is taken at its word
    for others in ([of_cupy(0), of_cupy(1)], [of_torch(1), of_torch(0)], [of_cupy(0), of_torch(1)]):
        with pytest.raises(ArrayError, match=r"the arrays: expected arrays on a single GPU, got GPU . and GPU ."):
            Gpu(*others)
    with pytest.raises(ArrayError, match="mask: expected arrays on a single GPU, got GPU 0 and GPU 1"):
        Gpu(of_cupy(1)).array("mask", of_cupy(0), "int32")


@pytest.mark.usefixtures("cupy")
def test_errors_of_a_derivative_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is called in a thread of its own, within or behind the block that its forward was in."""
    looked: list[str] = []
    monkeypatch.setattr(Gpu, "look_at", lambda gpu, status: looked.append("looked"))
    monkeypatch.setattr(Gpu, "stream", lambda gpu: 0)
    monkeypatch.setattr(Gpu, "memory", lambda gpu, found: (0, found.size))

    def derivative() -> None:
        with errors_wait_for(pending), gpu.queue(8):
            pass

    def in_a_thread() -> None:
        thread = Thread(target=derivative)
        thread.start()
        thread.join()

    with errors_at_end():
        gpu, pending = Gpu(OnDevice()), errors_pending()
        in_a_thread()
        assert not looked
    assert len(looked) == 1
    in_a_thread()
    assert len(looked) == 2


class Old:
    """What the native core says of a machine with such GPUs."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities = capabilities

    def devices(self) -> tuple[int, str]:
        return len(self.capabilities), ""

    def device_name(self, number: int) -> str:
        return f"GPU {number}, compute capability {self.capabilities[number]}, 16 GB"


def test_gpus_that_are_too_old(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_native, "cuda", Old("7.5", "6.1"), raising=False)
    assert gpu_problem().startswith("no GPU can be used: GPU 0, compute capability 7.5, 16 GB (too old")
    with pytest.raises(DeviceError, match="too old: the ops need"):
        on_gpu("cuda")
    monkeypatch.setattr(_native, "cuda", Old("7.5", "10.0"), raising=False)
    assert not gpu_problem()
    doctor()
    assert capsys.readouterr().out.count("too old") == 1


def test_doctor_tells_of_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    doctor()
    said = capsys.readouterr().out
    assert all(op in said for op in ops.__all__ if op.islower())
    assert "GPU ops: " in said and (gpu_problem() or "compute capability") in said.replace("\n", " ")
