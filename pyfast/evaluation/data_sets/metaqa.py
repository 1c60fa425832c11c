"""MetaQA: a knowledge graph of films, and questions with all their answers."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from pyfast.errors import InputError
from pyfast.evaluation.data_sets.layout import Pieces, beside, gold, question, text_lines

_TOPIC = re.compile(r"\[([^\]]*)\]")
_HOPS = re.compile(r"([123])-?hop")


def metaqa(source: Path) -> Pieces:
    """Yield the converted lines of one file of questions, such as qa_test.txt, or of all files `*qa*.txt` in a
    folder.

    kb.txt must be in the folder of the first file, or in one of the two folders above this folder.
    """
    files = [source] if source.is_file() else sorted(source.rglob("*qa*.txt"))
    if not files:
        raise InputError(f"{source}: expected files of questions (*qa*.txt)")
    yield from _graph(beside(files[0], "kb.txt", "the knowledge graph"))
    for path in files:
        hops = _HOPS.search(str(path))
        kind = f"{hops[1]}-hop" if hops else None
        for number, line in text_lines(path):
            marked, tab, answers = line.partition("\t")
            topic = _TOPIC.search(marked)
            if not tab or topic is None:
                raise InputError(
                    f"{path}, line {number}: expected a question with a [topic], a tab, and its answers"
                )
            id = f"{kind or 'metaqa'}-{path.stem}-{number}"
            yield question(id, marked.replace("[", "").replace("]", ""))
            right = answers.split("|")
            yield gold(id, answers=right, answer_mode="all", type=kind, topic_entity=topic[1], metrics=["metaqa"])


def _graph(path: Path) -> Pieces:
    """Yield a document for each head in kb.txt: a knowledge graph with all triples of the head."""
    triples = []
    for number, line in text_lines(path):
        triple = line.split("|")
        if len(triple) != 3:
            raise InputError(f"{path}, line {number}: expected head|relation|tail")
        triples.append(triple)
    triples.sort(key=lambda triple: triple[0])  # The sort is stable, so triples of one head keep their order.
    for head, some in groupby(triples, key=lambda triple: triple[0]):
        yield "document", {"id": f"kb/{head}", "kind": "kg", "title": head, "triples": list(some)}
