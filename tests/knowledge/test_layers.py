"""The order of the package: values, then the store, then its snapshots; extraction knows neither."""

import ast
from pathlib import Path

import pyfast.knowledge

ROOT = Path(pyfast.knowledge.__file__).parent


def imported(module: str) -> set[str]:
    """The modules of the package that one of them imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "pyfast.knowledge":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("pyfast.knowledge."):
            found.add(str(node.module).split(".")[2])
    return found


MODULES = {path.stem: imported(path.stem) for path in ROOT.glob("*.py") if path.stem != "__init__"}


def below(module: str) -> set[str]:
    """All that a module rests on."""
    found, new = set(), MODULES[module]
    while new:
        found |= new
        new = {one for other in new for one in MODULES[other]} - found
    return found


def test_no_module_rests_on_itself() -> None:
    assert len(MODULES) > 5 and [module for module in MODULES if module in below(module)] == []


def test_the_store_does_not_know_how_snapshots_are_made() -> None:
    assert not below("store") & {"snapshots", "build", "extracts"}


def test_extraction_does_not_know_the_store() -> None:
    for module in ("extraction", "extraction_prompts", "rule_based"):
        assert not below(module) & {"store", "snapshots", "build"}, module


def test_nothing_is_printed() -> None:
    for path in ROOT.glob("*.py"):
        assert "print(" not in path.read_text(encoding="utf-8").replace("fingerprint(", ""), path.name
