"""pyfast/_native.pyi has the parameters of the native functions, and pyfast.ops names each one that it passes."""

import ast
from collections.abc import Iterator

import pytest
from native_signatures import ROOT, native_signatures, stub_signatures

from pyfast import _native

OPS = sorted((ROOT / "pyfast" / "ops").glob("*.py"))


def test_the_stub_has_the_parameters_of_the_core() -> None:
    assert stub_signatures() == native_signatures(_native)


@pytest.mark.skipif(not hasattr(_native, "cuda"), reason="built without GPU ops")
def test_the_stub_has_the_parameters_of_the_gpu_ops() -> None:
    assert stub_signatures("cuda") == native_signatures(_native.cuda)


def native_calls() -> Iterator[tuple[str, ast.Call]]:
    """`call(native.op, ...)`, `call_gpu(native.cuda.op, ...)` and `gpu.run(...)` of native ops: "op" or "cuda.op",
    and the call."""
    for path in OPS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("call", "call_gpu", "gpu.run"):
                name = ast.unparse(node.args[0])
                if name == "op":
                    continue  # in `Gpu.run` itself
                assert name.startswith("native."), f"{path.name}:{node.lineno}"
                yield name.removeprefix("native."), node


def test_native_calls_are_by_keyword() -> None:
    stub = stub_signatures() | {f"cuda.{name}": names for name, names in stub_signatures("cuda").items()}
    called = set()
    for name, node in native_calls():
        runs = ast.unparse(node.func) == "gpu.run"  # It passes a queue too.
        assert len(node.args) <= 1 + runs, name
        given = {each.arg for each in node.keywords} | ({"queue"} if runs else set())
        if None in given:  # A helper names some of them, such as `pools`. A wrong name fails in each call.
            assert given - {None} < set(stub[name]), name
        else:
            assert given == set(stub[name]), name
        called.add(name)
    assert stub.keys() - called == {
        "cuda.devices",
        "cuda.device_name",
        "maxsim_level",
        "hseq_check_subtree_ends",  # only tests call it
    }  # these raise nothing to be translated
