"""A run leaves its index as it found it, and so its order among other runs does not matter."""

import json
import shutil
from pathlib import Path

import pytest
from knowing import know
from runs import checksums
from word_vectors import WordVectors

import pyfast
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.systems import names
from pyfast.systems.subqrag.prompts import EXTRACT_TRIPLES, FROM_FACTS

QUESTIONS = [f"Which moon did Apollo {i + 9} visit?" for i in range(5)]
SETTINGS = {"graph_convqa": {"graph": False, "memory": "random"}}


class Learning:
    """The graph never tells, and each passage says that Apollo 11 flew to the Moon. `prompts`: what was asked."""

    fingerprint = "learning"

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.prompts.append(f"{request.digest().hex()} {request.messages[-1].content}")
        if request.messages[0].content == FROM_FACTS.system:
            return Completion(json.dumps({"answers": [], "used": []}), "stop")
        if request.messages[0].content == EXTRACT_TRIPLES.system:
            triple = {"head": "Apollo 11", "relation": "flew to", "tail": "Moon"}
            return Completion(json.dumps({"triples": [triple]}), "stop")
        return await Instant().complete(request)


@pytest.mark.guarantee("G10")
@pytest.mark.parametrize("with_knowledge", [False, True])
@pytest.mark.parametrize("system", names())
def test_no_file_of_the_index_changes(
    small: pyfast.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, with_knowledge: bool
) -> None:
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    folder = Path(shutil.copytree(small.folder, tmp_path / "index"))
    if with_knowledge:
        know(pyfast.open_index(folder))
    before = checksums(folder)
    for run in (None, tmp_path / "run"):
        given = {"system": system, "settings": SETTINGS.get(system), "run": run}
        assert len(pyfast.answer(QUESTIONS, index=folder, llm="instant", **given).records) == len(QUESTIONS)
    assert checksums(folder) == before


def test_runs_send_the_same_prompts_in_any_order(
    small: pyfast.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that learns, its ablation and `mtqa`: alone, after each other, and again."""
    monkeypatch.setattr("pyfast.knowledge.session.Embedder", WordVectors)
    given = {"learns": ("subqrag", {}), "does not": ("subqrag", {"update": False}), "reads": ("mtqa", {"rows": 2})}
    sent: dict[str, list[list[str]]] = {name: [] for name in given}
    names = [*given]
    for number in range(len(names)):
        order = names[number:] + names[:number]
        folder = Path(shutil.copytree(small.folder, tmp_path / str(number)))
        know(pyfast.open_index(folder))
        for name in (*order, order[0]):
            system, settings = given[name]
            llm = Learning()
            run = pyfast.answer(QUESTIONS, index=folder, llm=llm, system=system, settings=settings)
            assert any("learned" in record.trace for record in run.records) == (name == "learns")
            sent[name].append(sorted(llm.prompts))
    for prompts in sent.values():
        assert len(prompts) == 4 and all(each == prompts[0] for each in prompts)
