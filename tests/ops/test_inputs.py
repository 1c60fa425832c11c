"""What arrays may come as: DLPack, memory-mapped files, other dtypes; and what happens to them meanwhile."""

import threading
import time
import warnings
from array import array as std_array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_problems import OPS, random_problem, same
from scipy.sparse import csr_array, csr_matrix

from pyfast import _native, ops
from pyfast.errors import ArrayError
from pyfast.ops.arrays import array, call, tell_cost

PROBLEM = random_problem([0, 20, 3, 60])
BEFORE = {name: run(PROBLEM) for name, run in OPS.items()}


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Broken(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("on another planet")


def test_dlpack() -> None:
    q = PROBLEM
    offsets, docs, semantic = map(Foreign, (q.offsets, q.docs, q.semantic))
    words = tuple(map(Foreign, q.question_terms))
    graph = ops.evidence_graph(q.X, offsets, docs, mask_terms=words)
    assert np.array_equal(graph.weights, np.concatenate([pool[0] for pool in BEFORE["evidence_graph sum"]]))
    assert graph.weights.size
    for name, found in {
        "weighted_degree sum": ops.weighted_degree(q.X, offsets, docs),
        "bridge_rank": ops.bridge_rank(q.X, offsets, docs, semantic, words),
        "bridge_select": ops.bridge_select(q.X, offsets, docs, semantic, Foreign(q.is_table), q.cells),
    }.items():
        assert np.array_equal(found, np.concatenate([pool[0] for pool in BEFORE[name]]))
    assert np.array_equal(
        ops.graph_rank(semantic, semantic, offsets), ops.graph_rank(q.semantic, q.semantic, q.offsets)
    )
    nodes = ops.prune(semantic, Foreign(q.is_table), offsets)[1]
    assert np.array_equal(nodes, np.concatenate([pool[0] for pool in BEFORE["prune"]]))


def test_dlpack_that_fails() -> None:
    with pytest.raises(ArrayError, match=r"doc_ids.*another planet"):
        ops.weighted_degree(PROBLEM.X, PROBLEM.offsets, Broken(PROBLEM.docs))


def read_only(numbers: Any) -> Any:
    view = np.asarray(numbers).view()
    view.flags.writeable = False
    return view


class ReadOnly(np.ndarray[Any, np.dtype[Any]]):
    """Read-only memory as NumPy before 2.1 has it: it cannot be exported by DLPack."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("Cannot export readonly array since signalling readonly is unsupported by DLPack.")


def test_read_only_arrays_of_an_older_numpy() -> None:
    def old(numbers: Any) -> Any:
        return read_only(numbers).view(ReadOnly)

    x, att = np.ones((3, 2, 4), np.float32), np.ones((2, 4), np.float32)
    y = ops.gatv2(old(x), old(x), old([0, 1, 2, 3]), old([0, 1, 2]), old(att))
    assert np.array_equal(y, ops.gatv2(x, x, [0, 1, 2, 3], [0, 1, 2], att))
    assert np.array_equal(
        ops.weighted_degree(PROBLEM.X, old(PROBLEM.offsets), old(PROBLEM.docs)),
        ops.weighted_degree(PROBLEM.X, PROBLEM.offsets, PROBLEM.docs),
    )


NUMBERS = np.arange(8, dtype=np.float32)
BYTES = bytes(range(8))


@pytest.mark.parametrize(
    "value",
    [
        NUMBERS,
        read_only(NUMBERS),
        Foreign(NUMBERS),
        memoryview(NUMBERS),
        memoryview(read_only(NUMBERS)),
        std_array("f", NUMBERS),
        BYTES,
        bytearray(BYTES),
        memoryview(BYTES)[2:5],
    ],
    ids=lambda value: type(value).__name__,
)
def test_memory_that_fits_is_not_copied(value: Any) -> None:
    buffer = memoryview(value.array if isinstance(value, Foreign) else value)
    found = array("semantic", value, np.float32 if buffer.format == "f" else np.uint8)
    assert found.ctypes.data == np.frombuffer(buffer, found.dtype).ctypes.data
    assert found.tolist() == buffer.tolist()


def test_a_large_map_is_not_read_before_it_is_needed(tmp_path: Path) -> None:
    """A sparse file of a terabyte: only what the call asks for is touched."""
    length = 1 << 38
    with (tmp_path / "large").open("wb") as file:
        file.truncate(4 * length)
    mapped = np.memmap(tmp_path / "large", np.float32, "r", shape=(length,))
    assert array("semantic", mapped, np.float32).ctypes.data == mapped.ctypes.data


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (std_array("d", [1.5]), "int32"),
        (BYTES, None),
        (memoryview(NUMBERS.reshape(2, 4)), "one dimension"),
        (memoryview(NUMBERS), "int32"),
        (np.zeros(3, complex), "int32"),
        (np.zeros(3, "M8[s]"), "int32"),
        ("text", "one dimension"),
        (iter([1, 2]), "one dimension"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, reason: str | None) -> None:
    if reason is None:
        assert array("doc_ids", value, np.int32).tolist() == list(BYTES)
    else:
        with pytest.raises(ArrayError, match=f"doc_ids.*{reason}"):
            array("doc_ids", value, np.int32)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32)
    assert array("semantic", tensor, np.float32).ctypes.data == tensor.data_ptr()
    assert array("semantic", tensor[::2], np.float32).tolist() == [0, 2, 4]
    assert array("semantic", tensor.half(), np.float32).tolist() == tensor.tolist()
    for bad, reason in {
        tensor.clone().requires_grad_(): "detach",
        tensor.bfloat16(): "bfloat16 on cpu",
        tensor.to("meta"): "on meta",
        tensor.to_sparse(): "strided",
        tensor.reshape(2, 3): "one dimension",
    }.items():
        with pytest.raises(ArrayError, match=f"semantic.*{reason}"):
            array("semantic", bad, np.float32)


def test_read_only_mapped_files(tmp_path: Path) -> None:
    mapped = {}
    for name in ("indptr", "indices", "data"):
        np.save(tmp_path / f"{name}.npy", getattr(PROBLEM.X, name))
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    X = csr_array((mapped["data"], mapped["indices"], mapped["indptr"]), shape=PROBLEM.X.shape)
    for op, run in OPS.items():
        assert same(run(replace(PROBLEM, X=X)), BEFORE[op])


@pytest.mark.parametrize("op", OPS)
def test_other_dtypes_and_strides_of_the_same_numbers(op: str) -> None:
    x = PROBLEM.X.astype(np.float64)
    x.indptr, x.indices = x.indptr.astype(np.int64), x.indices.astype(np.int64)
    strided = replace(
        PROBLEM,
        X=csr_matrix(x),
        offsets=PROBLEM.offsets.astype(np.uint16),
        docs=np.repeat(PROBLEM.docs.astype(np.int64), 2)[::2],
        semantic=PROBLEM.semantic.astype(np.float64),
        is_table=PROBLEM.is_table.astype(bool),
    )
    assert same(OPS[op](strided), BEFORE[op])


WIDE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "float64": ("data", lambda data: data.astype(np.float64)),
    "int64": ("indices", lambda indices: indices.astype(np.int64)),
    "strided": ("data", lambda data: np.repeat(data, 2)[::2]),
}


@pytest.mark.parametrize("case", WIDE)
def test_what_each_call_converts_is_told_once(case: str) -> None:
    part, widened = WIDE[case]
    X = PROBLEM.X.copy()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int64)
    narrow = getattr(X, part)
    setattr(X, part, widened(narrow))
    tell_cost.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            ops.weighted_degree(X, PROBLEM.offsets, PROBLEM.docs)
            ops.evidence_graph(X, PROBLEM.offsets, PROBLEM.docs)
    (warning,) = told
    advice = f"X.{part} = X.{part}.astype(np.{narrow.dtype.name})"
    assert advice in str(warning.message) and warning.filename == __file__
    tell_cost.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(X, part, getattr(X, part).astype(narrow.dtype))  # as advised
        ops.weighted_degree(X, PROBLEM.offsets, PROBLEM.docs)


@pytest.mark.parametrize("case", ["float64", "int64"])
def test_rows_that_are_not_of_the_pool_are_not_read(case: str, tmp_path: Path) -> None:
    """Sparse files of half a terabyte: who converts all of them fills the memory."""
    row = PROBLEM.X[[int(np.diff(PROBLEM.X.indptr).argmax())]]
    dtypes = {"data": np.float64, "indices": np.int32} if case == "float64" else {"data": "f4", "indices": "i8"}
    X = csr_array((2, row.shape[1]), dtype=np.float32)
    X.indptr = np.array([0, row.nnz, 1 << 36], np.int64)
    for part, dtype in dtypes.items():
        with (tmp_path / part).open("wb") as file:
            file.truncate((1 << 36) * np.dtype(dtype).itemsize)
        mapped = np.memmap(tmp_path / part, dtype, "r+", shape=(1 << 36,))
        mapped[: row.nnz] = getattr(row, part)
        setattr(X, part, mapped)
    assert np.array_equal(ops.weighted_degree(X, [0, 2], [0, 0]), ops.weighted_degree(row, [0, 2], [0, 0]))
    assert ops.shared_terms(X, 0, 0)[0].size == row.nnz


def reversed_rows(writeable: bool = True) -> csr_array:
    """X with the entries of each row in reverse."""
    x = PROBLEM.X
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    order = np.lexsort((-x.indices, rows))
    arrays = x.data[order], x.indices[order], x.indptr.copy()
    for part in arrays:
        part.flags.writeable = writeable
    return csr_array(arrays, shape=x.shape)


@pytest.mark.parametrize("writeable", [True, False])
def test_unsorted_rows_are_read_in_order_and_left_as_they_are(writeable: bool) -> None:
    x, untouched = reversed_rows(writeable), reversed_rows()
    for op, run in OPS.items():
        assert same(run(replace(PROBLEM, X=x)), BEFORE[op])
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(x, part), getattr(untouched, part))
    some = int(PROBLEM.docs[0])
    assert same([ops.shared_terms(x, some, some)], [ops.shared_terms(PROBLEM.X, some, some)])


def test_a_mapped_file_is_not_written_to(tmp_path: Path) -> None:
    x = reversed_rows()
    for part in ("indptr", "indices", "data"):
        np.save(tmp_path / f"{part}.npy", getattr(x, part))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    mapped = {part: np.load(tmp_path / f"{part}.npy", mmap_mode="r+") for part in ("indptr", "indices", "data")}
    X = csr_array(x.shape, dtype=np.float32)
    X.indptr, X.indices, X.data = mapped["indptr"], mapped["indices"], mapped["data"]
    assert same(OPS["evidence_graph sum"](replace(PROBLEM, X=X)), BEFORE["evidence_graph sum"])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("rows", [-5, 5, 10_000])
def test_offsets_of_fewer_or_more_rows_than_the_shape_has(rows: int) -> None:
    X = reversed_rows()
    count = X.shape[0] + rows
    X.indptr = np.resize(X.indptr, count + 1) if rows < 0 else np.pad(X.indptr, (0, rows), mode="edge")
    docs = np.minimum(PROBLEM.docs, count - 1)
    good = ops.weighted_degree(PROBLEM.X, PROBLEM.offsets, docs)
    assert np.array_equal(ops.weighted_degree(X, PROBLEM.offsets, docs), good)
    with pytest.raises(ArrayError, match=rf"doc_ids: document {count} "):
        ops.weighted_degree(X, [0, 1], [count])


@pytest.mark.parametrize("name", ["doc_ids", "pool_offsets", "mask_terms"])
def test_a_mask_is_not_taken_for_ids(name: str) -> None:
    mask = np.array([False, True, True])
    given: dict[str, Any] = {"doc_ids": [0, 1, 2], "pool_offsets": [0, 3], "mask_terms": ([0, 2], [1, 2])}
    given[name] = ([0, 3], mask) if name == "mask_terms" else mask
    with pytest.raises(ArrayError, match=rf"{name}.*mask.*flatnonzero"):
        ops.evidence_graph(PROBLEM.X, **given)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("threshold", "high", "a number"),
        ("top_k", 1.5, "an integer of at most 64 bits or None"),
        ("top_k", 2**63, "an integer of at most 64 bits or None"),
        ("idf", None, "a string"),
    ],
)
def test_an_error_names_the_setting(setting: str, value: Any, expected: str) -> None:
    given: dict[str, Any] = {setting: value}
    with pytest.raises(ArrayError) as error:
        ops.evidence_graph(PROBLEM.X, PROBLEM.offsets, PROBLEM.docs, **given)
    assert str(error.value) == f"{setting}: expected {expected}, got {value!r}"


def test_unsorted_rows_put_in_order_by_many_threads_at_once() -> None:
    op = OPS["evidence_graph sum"]
    for _ in range(20):
        problem = replace(PROBLEM, X=reversed_rows())
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(op, [problem] * 8))
        assert all(same(result, BEFORE["evidence_graph sum"]) for result in results)


def test_many_threads_call_at_once() -> None:
    names = [*OPS] * 6
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(lambda name: OPS[name](PROBLEM, 2), names))
    assert all(same(result, BEFORE[name]) for name, result in zip(names, results, strict=True))


def test_a_native_library_of_another_version_is_named() -> None:
    ordinary: Any = {"scores": np.zeros(9, np.float32), "is_table": np.zeros(9, np.uint8)}
    with pytest.raises(
        ArrayError, match=r"^prune: the native library belongs to another version of pyfast; install"
    ):
        call(_native.prune, **ordinary, added_later=1)


@pytest.mark.parametrize("op", ["evidence_graph min", "weighted_degree min", "bridge_rank"])
def test_other_threads_run_during_a_call(op: str) -> None:
    problem = random_problem([1500] * 6, terms=2000, per_row=100)
    # A call that holds the GIL stops this thread for nearly as long as it takes. A busy machine may stop it too,
    # but hardly three times.
    assert any(longest_pause(lambda: OPS[op](problem)) < 0.5 for _ in range(3))


def longest_pause(call: Callable[[], object]) -> float:
    """The longest that this thread stands still while another makes the call, as a share of the call's time."""
    took: list[float] = []

    def timed() -> None:
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)

    worker = threading.Thread(target=timed)
    worker.start()
    turns = [time.perf_counter()]
    while worker.is_alive():
        time.sleep(0.001)
        turns.append(time.perf_counter())
    return float(np.diff(turns).max()) / took[0]
