"""The parameters of native functions: as pyfast/_native.pyi has them, and as pybind11 tells them."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
Signatures = dict[str, list[str]]


def stub_signatures(submodule: str = "") -> Signatures:
    """Names of parameters by function in pyfast/_native.pyi: of the module, or of a submodule (there a class)."""
    body = ast.parse((ROOT / "pyfast" / "_native.pyi").read_text(encoding="utf-8")).body
    if submodule:
        (body,) = (node.body for node in body if isinstance(node, ast.ClassDef) and node.name == submodule)
    return {node.name: _parameters(node) for node in body if isinstance(node, ast.FunctionDef)}


def native_signatures(module: ModuleType) -> Signatures:
    """The same by the docstrings, whose first line is pybind11's: `name(parameter: type, ...) -> type`."""
    found = {}
    for name, function in vars(module).items():
        if callable(function) and not isinstance(function, type):
            (node,) = ast.parse(f"def {function.__doc__.splitlines()[0]}: ...").body
            assert isinstance(node, ast.FunctionDef) and node.name == name
            found[name] = _parameters(node)
    return found


def _parameters(node: ast.FunctionDef) -> list[str]:
    every = node.args
    assert not (every.vararg or every.kwarg or every.kwonlyargs or every.posonlyargs), node.name
    return [each.arg for each in every.args]
