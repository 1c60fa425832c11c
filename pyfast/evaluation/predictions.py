"""Write the answers of a run in the prediction formats of published data sets, for their official scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.evaluation.evaluate import as_scored
from pyfast.evaluation.gold import Gold, Lines, read_gold
from pyfast.utils.files import write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted

FORMATS = {"hotpotqa": ".json", "2wiki": ".json", "musique": ".jsonl", "hybridqa": ".json"}
"""The extension of a prediction file, by the name of the data set in `pyfast.convert`"""
Published = Mapping[str, str | int]


def write_predictions(path: Path, format: str, records: Sequence[Record], gold: Lines | None) -> None:
    """Write the answers as the official script of the data set `format` reads them. The answer to a question is
    empty if the question failed or the system abstained.

    `gold` says how the published file refers to the documents. It can be None for HybridQA, whose format contains
    only answers. For a test set without answers, it is the question file. If questions of the data set have no
    prediction, a warning says how many. Raises `InputError` if `pyfast data convert` has not written the gold for
    this data set.
    """
    answers = {record.id: record.answer or "" for record in records}
    if format == "hybridqa":
        write_atomically(path, orjson.dumps([{"question_id": id, "pred": text} for id, text in answers.items()]))
        return
    assert gold is not None
    cited = {uri for record in records for uri in record.uris}
    published, ids, starts = dict[str, Published](), dict[str, str](), dict[str, Any]()
    is_complete, missing = False, 0
    for one in read_gold(gold):
        is_complete |= bool(one.published_as if format == "musique" else one.sentence_starts)
        starts |= {uri: places for uri, places in (one.sentence_starts or {}).items() if uri in cited}
        if one.id in answers:
            published[one.id], ids[one.id] = one.published_as, one.pair or one.id
        missing += one.id not in answers
    if not is_complete:
        raise InputError(f"{format}: expected gold or questions that `pyfast data convert {format}` has written")
    if missing:
        told = "%s: %s no prediction, but the official script expects all of them"
        LOG.warning(told, path, counted(missing, "question of the data set has", "questions of the data set have"))
    if format == "musique":
        lines = (
            _of_musique(as_scored(one), ids.get(one.id, one.id), published.get(one.id, {})) for one in records
        )
        write_atomically(path, b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
        return
    known = Gold(id="", sentence_starts=starts)
    facts = {record.id: _facts(as_scored(record), published.get(record.id, {}), known) for record in records}
    # pyfast's systems return no evidence triples. Without them, 2WikiMultihopQA's script leaves out joint figures.
    triples: dict[str, Any] = {"evidence": {}} if format == "2wiki" else {}
    write_atomically(path, orjson.dumps({"answer": answers, "sp": facts, **triples}))


def _of_musique(record: Record, id: str, numbers: Published) -> dict[str, Any]:
    """Return a line of a prediction file. Paragraphs of other questions have negative numbers, so that they count
    as wrong."""
    return {
        "id": id,
        "predicted_answer": record.answer or "",
        "predicted_support_idxs": [numbers.get(uri, -1 - n) for n, uri in enumerate(dict.fromkeys(record.uris))],
        "predicted_answerable": record.state != "abstained",
    }


def _facts(record: Record, titles: Published, known: Gold) -> list[tuple[str, int]]:
    """Return the cited sentences as pairs (title, number). As in the metric `hotpotqa`, evidence from a document
    without known sentences is one wrong sentence, and here its number is negative."""
    facts = dict[tuple[str, int], None]()
    for place, item in enumerate(record.evidence):
        title = str(titles.get(item.uri, item.uri))
        found = known.sentences(item.uri, *item.offsets)
        numbers = [-1 - place] if found is None else found
        if item.uri not in titles and title in titles.values():  # another question's paragraph with the same title
            numbers = [-1 - abs(number) for number in numbers]
        facts.update(dict.fromkeys((title, number) for number in numbers))
    return list(facts)
