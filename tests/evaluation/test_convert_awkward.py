"""What `data convert` writes, `index`, `answer` and `evaluate` take: each set in its authors' layout, with records
that are twice there, empty, null, NaN, without an answer or without paragraphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Record
from pyfast.errors import InputError
from pyfast.evaluation import evaluate
from pyfast.evaluation.data_sets import Converted, names

ODD = "Ærø’s “İstanbul” \u200b東京 e\u0301"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def jsonl(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def lines(path: Path | None) -> list[dict[str, Any]]:
    return [] if path is None else [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def hotpot(id: str, answer: Any, context: Any, facts: Any = ()) -> dict[str, Any]:
    return {
        "_id": id,
        "question": f"Who is {id}?",
        "answer": answer,
        "context": context,
        "supporting_facts": facts,
    }


def hotpotqa(folder: Path) -> Path:
    twice = [["Varn", ["A lake.", " In the north."]], ["Varn", ["A town."]], ["Empty", []], ["Blank", [" "]]]
    records = [
        hotpot("a", ODD, twice, [["Varn", 1], ["Missing", 0]]),
        hotpot("a", "north", [["Varn", ["A lake.", " In the north."]]], [["Varn", 0]]),
        hotpot("b", "", [[ODD, [ODD, None]]], None),
        hotpot("c", float("nan"), [[None, ["No title."]]], []),
        {**hotpot("d", "x", []), "answer_aliases": None},
    ]
    return write(folder / "dev.json", records)


def musique_record(id: str, answerable: bool, **more: Any) -> dict[str, Any]:
    paragraphs = [
        {"idx": 0, "title": "Varn", "paragraph_text": "Varn is a lake.", "is_supporting": answerable},
        {"idx": 1, "title": None, "paragraph_text": "No title.", "is_supporting": False},
        {"idx": 2, "title": "Blank", "paragraph_text": " ", "is_supporting": False},
    ]
    hop = {"id": 1, "question": "?", "answer": "North", "paragraph_support_idx": 0 if answerable else None}
    record = {"id": id, "question": "Where?", "answer": "North", "answer_aliases": [], "answerable": answerable}
    return {**record, "paragraphs": paragraphs, "question_decomposition": [hop], **more}


def musique(folder: Path) -> Path:
    return jsonl(
        folder / "musique_full_v1.0_dev.jsonl",
        musique_record("2hop__1_2", True),
        musique_record("2hop__1_2", False),
        musique_record("2hop__3_4", True, answer=ODD, answer_aliases=None),
        musique_record("2hop__5_6", True, paragraphs=[], answer=""),
        musique_record("2hop__7_8", False, answer=None),
    )


def table(uid: str) -> dict[str, Any]:
    rows = [[["Varn", ["/wiki/Varn"]], [None, []]], [[ODD, ["/wiki/Missing"]], ["7", None]]]
    return {"uid": uid, "title": None, "section_title": "", "header": [["Lake", []], ["Depth", []]], "data": rows}


def hybrid(id: str, **more: Any) -> dict[str, Any]:
    return {"question_id": id, "question": f"Which {id}?", "table_id": "Lakes_0", "answer-text": "7", **more}


HYBRID = [
    hybrid("a"),
    hybrid("a", **{"answer-text": ODD}),
    hybrid("b", table_id="Missing_0"),
    hybrid("c", **{"answer-text": None}),
    hybrid("d", **{"answer-text": 1971}),
    hybrid("e", question=" "),
]
PASSAGES = {"/wiki/Varn": "Varn is a lake.", "/wiki/Blank": " ", "/wiki/Null": None}


def hybridqa(folder: Path) -> Path:
    write(folder / "WikiTables-WithLinks" / "tables_tok" / "Lakes_0.json", table("Lakes_0"))
    write(folder / "WikiTables-WithLinks" / "request_tok" / "Lakes_0.json", PASSAGES)
    return write(folder / "released_data" / "dev.json", HYBRID)


def ottqa(folder: Path) -> Path:
    write(folder / "data" / "traindev_tables.json", {"Lakes_0": table("Lakes_0")})
    write(folder / "data" / "traindev_request_tok.json", PASSAGES)
    return write(folder / "released_data" / "dev.json", [{**one, "version": "dev"} for one in HYBRID])


def tatqa(folder: Path) -> Path:
    paragraph = {"uid": "p", "order": 1, "text": ODD}
    asked = {
        "question": "Sales?",
        "answer_type": "span",
        "answer_from": "table",
        "scale": None,
        "rel_paragraphs": None,
    }
    report = {
        "table": {"uid": "t", "table": [["", "2019"], ["Sales", None], ["Costs", 7]]},
        "paragraphs": [paragraph, {"uid": "blank", "order": 2, "text": None}],
        "questions": [
            {"uid": "a", "answer": ["7", None], **asked},
            {"uid": "a", "answer": 12.5, **asked},
            {"uid": "b", "answer": None, **asked},
            {"uid": "c", "answer": float("nan"), **asked},
        ],
    }
    other = {**report, "table": {"uid": "u", "table": []}, "questions": [{"uid": "d", "answer": "7", **asked}]}
    return write(folder / "tatqa_dataset_dev.json", [report, other])


def metaqa(folder: Path) -> Path:
    write(folder / "kb.txt", f"Varn|is_in|North\nVarn|is_in|North\n{ODD}|is_in|South\n")
    return write(
        folder / "qa_test.txt", f"where is [Varn]\tNorth||South\n\nwhere is [{ODD}]\tSouth\nwhere is [x]\t\n"
    )


def convmix(folder: Path) -> Path:
    def turn(id: str, **more: Any) -> dict[str, Any]:
        answers = [{"id": "Q1", "label": ODD}]
        return {"question_id": id, "question": "Who?", "answers": answers, "answer_text": "A", **more}

    records = [
        {
            "conv_id": 1,
            "questions": [turn("1-0"), turn("1-0", answers=[], answer_text=None), turn("x", question="")],
        },
        {"conv_id": 1, "questions": [turn("1-0", answers=None, answer_text=float("nan"))]},
    ]
    return write(folder / "dev_set.json", records)


def nq(folder: Path) -> Path:
    records = [{"question": "who", "answer": a} for a in (["x", None], ["x"], [], None, "y", [1971], [ODD, ODD])]
    return jsonl(folder / "NQ-open.dev.jsonl", *records)


def triviaqa(folder: Path) -> Path:
    def record(id: Any, **answer: Any) -> dict[str, Any]:
        return {"QuestionId": id, "Question": "Who?", **answer}

    right = {"Value": ODD, "Aliases": None}
    records = [record("a", Answer=right), record("a", Answer={**right, "Value": None}), record("b"), record(None)]
    return write(folder / "unfiltered-web-dev.json", {"Data": records})


def popqa(folder: Path) -> Path:
    rows = ['1\tauthor\tWho?\t"[""Ann"", null, 7, """"]"', f'1\tauthor\t{ODD}\t"[]"', '2\t\tWho?\t"[""Ann""]"']
    return write(folder / "test.tsv", "id\tprop\tquestion\tpossible_answers\n" + "\n".join(rows) + "\n")


def hipporag(folder: Path) -> Path:
    passages = [{"title": "Varn", "text": "A lake. In the north."}] * 2
    passages += [{"title": "Varn", "text": "A town."}, {"title": None, "text": ODD}, {"title": "", "text": ""}]
    write(
        folder / "hotpotqa.json",
        [hotpot("a", "north", [], [["Varn", 0]]), hotpot("a", None, [], None), hotpot("b", "", [])],
    )
    return write(folder / "hotpotqa_corpus.json", passages)


def beir(folder: Path) -> Path:
    jsonl(
        folder / "corpus.jsonl",
        {"_id": "doc-17", "title": "Varn", "text": "Lake Varn lies in the north.", "metadata": {}},
        {"_id": "doc-18", "title": None, "text": ODD},
        {"_id": "doc-17", "title": "Varn", "text": "Another text."},
        {"_id": 19, "title": float("nan"), "text": ""},
    )
    queries = [("q1", "Where does Lake Varn lie?"), ("q2", ODD), ("q3", "Not judged?"), ("q4", "Only nil?")]
    jsonl(folder / "queries.jsonl", *({"_id": id, "text": text, "metadata": {}} for id, text in queries))
    judged = "q1\tdoc-17\t1\nq1\tdoc-18\t0\nq2\tdoc-18\t2\nq2\tmissing\t1\nq4\tdoc-18\t0\nq9\tdoc-17\t1\n"
    write(folder / "qrels" / "test.tsv", f"query-id\tcorpus-id\tscore\n{judged}")
    write(folder / "qrels" / "train.tsv", "query-id\tcorpus-id\tscore\nq3\tdoc-17\t1\n")
    return folder


def flashrag(folder: Path) -> Path:
    asked = [("a", ["north"]), ("a", [1971]), ("b", []), ("c", None), ("d", "south")]
    records = ({"id": id, "question": f"{id}?", "golden_answers": right} for id, right in asked)
    jsonl(
        folder / "wiki.jsonl",
        {"id": 0, "contents": '"Varn"\nLake Varn.'},
        {"id": "1", "contents": f"{ODD}\n{ODD}"},
    )
    return jsonl(folder / "test.jsonl", *records)


MAKERS: dict[str, Callable[[Path], Path]] = {
    "hotpotqa": hotpotqa,
    "2wiki": hotpotqa,
    "musique": musique,
    "hybridqa": hybridqa,
    "metaqa": metaqa,
    "tatqa": tatqa,
    "convmix": convmix,
    "ottqa": ottqa,
    "nq": nq,
    "triviaqa": triviaqa,
    "popqa": popqa,
    "hipporag": hipporag,
    "beir": beir,
    "flashrag": flashrag,
}


def of_turns(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [turn for line in found for turn in line.get("turns", [line])]


# The questions that have gold answers, as counted by hand; all others are unanswerable or have none.
COUNTS = {
    "hotpotqa": (5, 3),
    "2wiki": (5, 3),
    "musique": (5, 2),
    "hybridqa": (5, 4),
    "metaqa": (3, 2),
    "tatqa": (5, 3),
    "convmix": (3, 1),
    "ottqa": (5, 4),
    "nq": (7, 5),
    "triviaqa": (4, 1),
    "popqa": (3, 2),
    "hipporag": (3, 1),
    "beir": (3, 0),
    "flashrag": (5, 3),
}


def test_every_set_is_here() -> None:
    assert set(MAKERS) == set(COUNTS) == set(names())


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_converted_is_indexed_answered_and_scored(name: str, tmp_path: Path) -> None:
    made = pyfast.convert(name, MAKERS[name](tmp_path / "published"), tmp_path / "out")
    questions, answerable = COUNTS[name]
    asked, gold = of_turns(lines(made.questions)), of_turns(lines(made.gold))
    assert made.count == questions == len(asked) == len({one["id"] for one in asked})
    assert sum(any(text.strip() for text in one.get("answers", ())) for one in gold) == answerable
    assert {one["id"] for one in gold} <= {one["id"] for one in asked}
    texts = [text for one in gold for text in one.get("answers", ())]
    assert not {"None", "nan", "null"} & {str(text) for text in texts}
    index = None
    if made.corpus is not None:
        index = pyfast.build_index(made.corpus, tmp_path / "index", strict=True)
        uris = [document["id"] for document in lines(made.corpus)]
        assert len(set(uris)) == len(uris) == index.manifest["documents"] == made.documents
        assert {uri for one in asked for uri in one.get("documents", ())} <= set(uris)
    system = "direct" if index is None else "rag"
    run = pyfast.answer(made.questions, index=index, llm="instant", system=system, run=tmp_path / "run")
    assert run.status.states.get("failed", 0) == 0 and len(run.records) == questions
    report = pyfast.evaluate(run)
    assert report.rows[0].questions + len(report.without_gold) == len(asked)


def converted(name: str, tmp_path: Path) -> Converted:
    return pyfast.convert(name, MAKERS[name](tmp_path / "published"), tmp_path / "out")


def test_paragraphs_of_one_title_all_stay(tmp_path: Path) -> None:
    made = converted("hotpotqa", tmp_path)
    questions, gold = lines(made.questions), lines(made.gold)
    assert [one["id"] for one in questions] == ["a", "a (2)", "b", "c", "d"]
    assert questions[0]["documents"] == ["Varn", "Varn (2)"] and "documents" not in questions[4]
    assert gold[0]["supporting_facts"] == [["Varn", 1], ["Missing", 0]]
    assert made.notes == (
        "documents left out because they have no text: 2",
        "questions with gold evidence that is missing from the corpus: 1",
        "questions with a repeated id, which got a new id of the form `ID (2)`: 1",
        "questions that search the whole corpus, because it has none of their own documents: 1",
    )


def test_musique_full_pairs_sufficiency(tmp_path: Path) -> None:
    """Against the rule of the official script: F1 of the answerable one if it tells both apart, else 0."""
    made = converted("musique", tmp_path)
    gold = {one["id"]: one for one in lines(made.gold)}
    assert list(gold)[:2] == ["2hop__1_2", "2hop__1_2 (2)"] and {
        one["pair"] for one in list(gold.values())[:2]
    } == {"2hop__1_2"}
    assert gold["2hop__1_2"]["decomposition"][0]["doc"] == gold["2hop__1_2"]["supporting"][0]
    assert gold["2hop__1_2 (2)"]["decomposition"][0]["doc"] is None  # not the first paragraph
    supporting = json.dumps([{"uri": gold["2hop__1_2"]["supporting"][0]}]).encode()

    def figures(first: Record, second: Record) -> dict[str, float]:
        row = evaluate([second, first], [gold["2hop__1_2"], gold["2hop__1_2 (2)"]]).rows[0]
        assert row["em"].questions == 1  # the unanswerable one has no EM in the official script
        return {name: figure.value for name, figure in row.figures.items()}

    right = Record("2hop__1_2", "answered", "the North", evidence_json=supporting)
    silent = Record("2hop__1_2 (2)", "abstained")
    told = figures(right, silent)
    assert told["em"] == told["group_answer_sufficiency_f1"] == told["group_support_sufficiency_f1"] == 1
    half = figures(Record("2hop__1_2", "answered", "North Varn", evidence_json=supporting), silent)
    assert half["group_answer_sufficiency_f1"] == pytest.approx(2 / 3) == half["f1"]
    for other in (Record("2hop__1_2 (2)", "answered", "North"), Record("2hop__1_2 (2)", "failed", reason="x")):
        assert figures(right, other)["group_answer_sufficiency_f1"] == 0 and figures(right, other)["f1"] == 1
    both_silent = figures(Record("2hop__1_2", "abstained"), silent)
    assert both_silent["group_answer_sufficiency_f1"] == 0
    assert "group_answer_sufficiency_f1" not in evaluate([right], [gold["2hop__1_2"]]).rows[0].figures


def test_beir_is_evaluated_by_its_judgements(tmp_path: Path) -> None:
    source = beir(tmp_path / "beir")
    done = CliRunner().invoke(app, ["data", "convert", "beir", str(source), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    for note in (
        "queries left out because test.tsv",
        "queries of test.tsv left out because they are not in queries.jsonl: 1",
        "questions with gold evidence that is missing from the corpus: 1",
        "documents left out because an earlier document has the same id: 1",
        "documents left out because they have no text: 1",
    ):
        assert note in done.stdout
    out = tmp_path / "out"
    assert {one["id"]: one["supporting"] for one in lines(out / "gold.jsonl")} == {
        "q1": ["doc-17"],
        "q2": ["doc-18", "missing"],
        "q4": [],
    }
    index = pyfast.build_index(out / "corpus.jsonl", tmp_path / "index")
    report = pyfast.evaluate_retrieval(index, out / "questions.jsonl")
    row = report.settings["retriever=bm25"].rows[0]
    assert row.questions == 2 and row["recall@2"].value == pytest.approx(0.75) and report.without_gold == ("q4",)
    train = pyfast.convert("beir", source / "qrels" / "train.tsv", tmp_path / "train")
    assert [one["id"] for one in lines(train.questions)] == ["q3"]


def test_queries_and_judgements_are_no_documents(tmp_path: Path) -> None:
    source = beir(tmp_path / "beir")
    for path in (source / "queries.jsonl", source / "qrels" / "test.tsv"):
        with pytest.raises(InputError, match="`pyfast data convert beir "):
            pyfast.build_index(path, tmp_path / "index", strict=True)
    with pytest.raises(InputError, match="`pyfast data convert beir "):
        pyfast.answer(source / "queries.jsonl", llm="instant", system="direct")


def test_the_title_of_contents_is_its_first_line_in_quotes(tmp_path: Path) -> None:
    corpus = lines(converted("flashrag", tmp_path).corpus)
    assert [(one["id"], one["title"], one["text"]) for one in corpus] == [
        ("0", "Varn", "Lake Varn."),
        ("1", "", f"{ODD}\n{ODD}"),
    ]
