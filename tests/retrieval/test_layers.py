"""The files of `pyfast/retrieval` are layers: no file imports, at any place, a file that stands on it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pyfast.retrieval

ROOM = "pyfast.retrieval"
FILES = {path.stem: path for path in Path(pyfast.retrieval.__file__).parent.glob("*.py")}


def imported(path: Path) -> set[str]:
    """The files of the room that a file imports, also inside of functions and under `TYPE_CHECKING`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == ROOM:
                assert {alias.name for alias in node.names} <= FILES.keys(), f"{path}: import from the file itself"
            names.update({str(node.module)}, (f"{node.module}.{alias.name}" for alias in node.names))
    return {name.removeprefix(f"{ROOM}.") for name in names} & FILES.keys()


def test_the_files_of_the_room_are_layers() -> None:
    tuple(TopologicalSorter({name: imported(path) for name, path in FILES.items()}).static_order())


def test_an_index_knows_no_retriever_and_no_reranker() -> None:
    assert not imported(FILES["index"]) & {"bm25", "vector_retrievers", "cross_encoder", "late", "rerank"}
