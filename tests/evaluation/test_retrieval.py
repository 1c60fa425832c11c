"""`pyfast.evaluate_retrieval`: figures against trec_eval's own code, settings, the command."""

import csv
import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import pyfast
from pyfast.api.retrieval_evaluation import RetrievalSetting
from pyfast.commands.cli import app
from pyfast.errors import InputError
from pyfast.evaluation.evidence import ranking_figures
from pyfast.retrieval import Index
from pyfast.retrieval.rerank import order_pools

AT = (1, 2, 5, 10)


@given(st.permutations([f"d{i}" for i in range(12)]), st.sets(st.integers(0, 15), min_size=1), st.integers(0, 12))
def test_the_figures_are_those_of_trec_eval(ranked: list[str], gold: set[int], length: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    ranked, relevant = ranked[:length], {f"d{i}" for i in gold}
    cuts = ",".join(map(str, AT))
    evaluator = pytrec_eval.RelevanceEvaluator(
        {"q": dict.fromkeys(relevant, 1)}, {f"recall.{cuts}", f"ndcg_cut.{cuts}", "recip_rank"}
    )
    theirs = evaluator.evaluate({"q": {document: float(-place) for place, document in enumerate(ranked)}})
    expected = theirs.get("q", {})
    figures = ranking_figures(ranked, relevant, AT)
    for k in AT:
        assert figures[f"recall@{k}"] == pytest.approx(expected.get(f"recall_{k}", 0.0))
        assert figures[f"ndcg@{k}"] == pytest.approx(expected.get(f"ndcg_cut_{k}", 0.0))
    assert figures["mrr"] == pytest.approx(expected.get("recip_rank", 0.0))


@pytest.fixture(scope="module")
def questions(small: Index) -> list[dict[str, object]]:
    """Each passage's first words as a question for its document, and one question without gold."""
    made = []
    for number, passage in enumerate(range(0, len(small.passages), 7)):
        words = " ".join(small.text(passage).split()[2:9])
        made.append(
            {"id": f"q{number}", "question": words, "supporting": [small.uri(passage)], "type": f"t{number % 2}"}
        )
    return [*made, {"id": "none", "question": "What?"}]


def test_settings_beside_each_other(small: Index, questions: list[dict[str, object]]) -> None:
    settings = {
        "list": "",
        "graph": "ranking=graph_rank",
        "bridge": "ranking=bridge_rank expand=on pool=20",
        "near": "ranking=bridge_rank expand=bm25 pool=20",
    }
    report = pyfast.evaluate_retrieval(small, questions, settings, at=[5, 1])
    assert report.without_gold == ("none",)
    assert list(report.settings) == list(settings)
    # Recall by hand for the list.
    hits = []
    for line in questions[:-1]:
        (pool,) = small.search(str(line["question"]), 100)
        uris = list(dict.fromkeys(small.uri(int(u)) for u in pool.passages))
        hits.append(line["supporting"][0] in uris[:5])  # type: ignore[index]
    figure = report.settings["list"].rows[0]["recall@5"]
    assert figure.value == pytest.approx(np.mean(hits)) and figure.low <= figure.value <= figure.high
    assert {row.value for row in report.settings["list"].rows} == {"", "t0", "t1"}
    assert {(one.a, one.b) for one in report.differences} == set(combinations(settings, 2))
    (one,) = [one for one in report.differences if (one.a, one.b, one.figure) == ("list", "bridge", "mrr")]
    values = [report.settings[name].rows[0]["mrr"].value for name in ("list", "bridge")]
    assert one.difference == pytest.approx(values[1] - values[0]) and one.low <= one.difference <= one.high


def test_questions_search_their_own_documents(
    small: Index, questions: list[dict[str, object]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Recall by hand, from an index of the three documents that a question names."""
    every = sorted({small.uri(passage) for passage in range(len(small.passages))})
    asked = [
        {**line, "documents": [*line["supporting"], *every[:2]]}  # type: ignore[misc]
        for line in questions[:-1]
    ]
    found = []
    for line in asked:
        within = small.within(line["documents"])  # type: ignore[arg-type]
        (pool,) = within.search(str(line["question"]), 100)
        uris = list(dict.fromkeys(within.uri(int(passage)) for passage in pool.passages))
        found.append(line["supporting"][0] in uris[:1])  # type: ignore[index]
    report = pyfast.evaluate_retrieval(small, asked, at=[1])
    assert report.settings["retriever=bm25"].rows[0]["recall@1"].value == pytest.approx(np.mean(found))
    assert f"for {len(asked)} of {len(asked)} questions, only the documents that they list" in caplog.text
    whole = pyfast.evaluate_retrieval(small, asked, at=[1], documents="all")
    plain = pyfast.evaluate_retrieval(small, questions, at=[1])
    assert whole.settings["retriever=bm25"].rows == plain.settings["retriever=bm25"].rows
    changed = ["", "ranking=bridge_rank expand=on", "ranking=graph_rank pool=3"]
    mixed = [*asked, {**questions[0], "id": "whole"}]  # One question searches the whole index.
    several = pyfast.evaluate_retrieval(small, mixed, changed, at=[1])
    for name in changed:
        setting = RetrievalSetting.parse(name)
        for line, scored in zip(mixed, several.settings[str(setting)].questions, strict=True):
            within = small.within(line["documents"]) if "documents" in line else small  # type: ignore[arg-type]
            pools = [(pool, str(line["question"])) for pool in within.search(str(line["question"]), setting.pool)]
            (pool,) = order_pools(within, pools, setting.ranking, setting.expand)
            best = within.uri(int(pool.passages[0])) if len(pool) else None
            assert scored.figures["recall@1"] == sum(uri == best for uri in line["supporting"]) / len(
                line["supporting"]  # type: ignore[arg-type]
            )
    pyfast.write_figures(report.settings, tmp_path / "recall.csv")
    (row, *_) = csv.DictReader((tmp_path / "recall.csv").open(encoding="utf-8-sig"))
    assert float(row["recall@1"]) == pytest.approx(np.mean(found)) and row["setting"] == "retriever=bm25"


def test_the_command_says_what_the_api_says(
    small: Index, questions: list[dict[str, object]], tmp_path: Path
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in questions))
    asked = [
        "evaluate-retrieval",
        str(small.folder),
        str(file),
        "--setting",
        "",
        "--setting",
        "retriever=bm25:k1=0.9,b=0.4",
    ]
    done = CliRunner().invoke(app, [*asked, "--at", "3", "--json"])
    settings = ["", "retriever=bm25:k1=0.9,b=0.4"]
    expected = pyfast.evaluate_retrieval(small, file, settings, at=[3]).as_json()
    assert json.loads(done.output) == json.loads(json.dumps(expected))
    report = pyfast.evaluate_retrieval(small, file, settings)
    for kind in ("csv", "jsonl", "parquet", "xlsx", "md", "tex"):
        assert not CliRunner().invoke(app, [*asked, "--out", str(tmp_path / f"r.{kind}")]).exit_code
    table = pd.read_csv(tmp_path / "r.csv")
    assert table[table["test"].notna()]["p_holm"].tolist() == [one.p_holm for one in report.differences]
    assert table[table["test"].isna()]["setting"].nunique() == 2 and "failed" not in table
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == len(table)
    for text in ((tmp_path / f"r.{kind}").read_text() for kind in ("md", "tex")):
        assert "p (Holm)" in text and text.count("1, 2") == len(report.differences) > 0
    shown = CliRunner().invoke(app, asked).output
    assert "recall@20" in shown and "1 question lists no gold evidence" in shown


def test_a_table_is_the_gold_of_its_question(small: Index) -> None:
    table = next(small.uri(i) for i in range(len(small.passages)) if small.is_table[i])
    words = next(small.text(i) for i in range(len(small.passages)) if small.uri(i) == table)
    line = {"id": "q", "question": words, "supporting": ["elsewhere"], "table_id": table}
    report = pyfast.evaluate_retrieval(small, [line])
    assert report.settings["retriever=bm25"].rows[0]["recall@20"].value == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("expand=on", "only ranking=bridge_rank"),
        ("ranking=best", "ranking: expected one of"),
        ("speed=high", "unknown key 'speed'; known: retriever"),
        ("pool=0", "pool: expected a whole number"),
        ("ranking=bridge_rank expand=yes", "unknown retriever 'yes'"),
        ("retriever=nothing", "unknown retriever 'nothing'"),
        ("rerank=nothing", "unknown reranker 'nothing'"),
    ],
)
def test_settings_that_do_not_fit(small: Index, setting: str, message: str) -> None:
    line = {"id": "q", "question": "moon", "supporting": ["x"]}
    with pytest.raises(InputError, match=message):
        pyfast.evaluate_retrieval(small, [line], [setting])


def test_other_arguments_that_do_not_fit(small: Index) -> None:
    line = {"id": "q", "question": "moon", "supporting": ["x"]}
    with pytest.raises(InputError, match="at: expected ranks"):
        pyfast.evaluate_retrieval(small, [line], at=[0])
    with pytest.raises(InputError, match="given twice"):
        pyfast.evaluate_retrieval(small, [line], ["", RetrievalSetting()])
    with pytest.raises(InputError, match="no question lists"):
        pyfast.evaluate_retrieval(small, [{"id": "q", "question": "moon"}])
    assert RetrievalSetting.parse(
        str(RetrievalSetting("x:y", "bridge_rank", True, "cross", 7))
    ) == RetrievalSetting("x:y", "bridge_rank", True, "cross", 7)
