"""What an earlier or later build of pyfast wrote is refused in one line, which says to make it again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from runs import DESCRIBED, Watched, ask_about, direct, go
from word_vectors import WordVectors

from pyfast import evaluate, verify
from pyfast.corpus import read
from pyfast.engine import RunFolder, check_run, read_status
from pyfast.engine.configuration import read_configuration
from pyfast.errors import OtherBuildError
from pyfast.knowledge import build_knowledge, open_knowledge
from pyfast.retrieval import Index, build_index
from pyfast.retrieval.index.changes import delete_documents

FORMATS = [None, 0, 2, 7, "1", "a\nb"]
"""An earlier build wrote no `format_version`"""


def refused(does: Callable[[], object], folder: Path, again: str) -> None:
    with pytest.raises(OtherBuildError) as error:
        does()
    told = str(error.value)
    assert told.startswith(f"{folder}: written by another build of pyfast (format ") and again in told
    assert "\n" not in told


def renumber(path: Path, number: object) -> None:
    """Give a file of JSON another number of the format, or none."""
    facts = json.loads(path.read_text())
    assert facts.pop("format_version") == 1
    path.write_text(json.dumps(facts if number is None else {**facts, "format_version": number}))


@pytest.mark.parametrize("number", FORMATS)
def test_an_index(small: Index, examples: Path, tmp_path: Path, number: object) -> None:
    folder = shutil.copytree(small.folder, tmp_path / "index")
    renumber(folder / "manifest.json", number)
    again = f"build it again with `pyfast index SOURCE --out {folder} --overwrite`"
    for does in (Index, verify, lambda path: delete_documents(path, ["a"])):
        refused(lambda does=does: does(folder), folder, again)  # type: ignore[misc]
    documents = read([examples / "corpus"])
    assert build_index(documents, folder, overwrite=True).manifest["corpus"] == small.manifest["corpus"]


@pytest.mark.parametrize("number", FORMATS)
def test_a_run(tmp_path: Path, number: Any) -> None:
    folder, gold = tmp_path / "run", [{"id": "q0", "answers": ["x"]}]
    go(folder, direct, Watched(), ask_about(2))
    described = read_configuration(folder / "run.toml")
    told = {} if number is None else {"format_version": number}
    (folder / "run.toml").write_text(tomli_w.dumps({**told, **described}))
    for does in (
        read_status,
        verify,
        lambda path: evaluate(path, gold),
        lambda path: check_run(path, DESCRIBED),
        lambda path: RunFolder(path, DESCRIBED),
    ):
        refused(lambda does=does: does(folder), folder, "run it again")  # type: ignore[misc]


@pytest.mark.parametrize("number", FORMATS)
def test_a_knowledge_graph(known: Any, tmp_path: Path, number: object) -> None:
    index = Index(shutil.copytree(known.store.folder.parents[1], tmp_path / "index"))
    home = index.folder / "knowledge"
    snapshot = home / (home / "current").read_text().strip()
    renumber(snapshot / "manifest.json", number)
    again = f"build it again with `pyfast knowledge build {index.folder}`, after you remove the folder"

    def build() -> object:
        return build_knowledge(index, embedder=WordVectors(), run_job=lambda job: None)  # type: ignore[arg-type]

    for does in (lambda: open_knowledge(index), build, lambda: verify(index.folder)):
        refused(does, snapshot, again)
    shutil.rmtree(home)
    assert len(build())  # type: ignore[arg-type]


@pytest.mark.parametrize("number", FORMATS)
def test_an_encoder(tmp_path: Path, number: object) -> None:
    pytest.importorskip("torch")
    from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, load_encoder, save_encoder

    save_encoder(GraphEncoder(Shape(8)), tmp_path)
    renumber(tmp_path / "encoder.json", number)
    refused(lambda: load_encoder(tmp_path), tmp_path, "build it again with `pyfast train graph-convqa`")
