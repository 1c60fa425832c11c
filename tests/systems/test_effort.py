"""Effort by question: which passages are worth reading, and that the LLM reads these and no others."""

import json
import re
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyfast
from pyfast.corpus import read
from pyfast.errors import InputError
from pyfast.llm import Completion, Request
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, Pool, RerankConfig, build_index, rerank_pools
from pyfast.systems import load_system
from pyfast.systems.effort import FEATURES, NOT_FOUND, WEIGHTS, features_of, worth_reading

QUESTION = "From which launch site did Rosetta leave Earth?"
ASKED = [QUESTION, "Who discovered Titan?", "unheardofword", ""]


class Listening(Instant):
    """Keeps the prompts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.messages[-1].content)
        return await super().complete(request)


def asked_with(index: Index, system: str, **settings: Any) -> tuple[pyfast.Record, str]:
    """The record of a question, and the last prompt."""
    llm = Listening()
    run = pyfast.answer([QUESTION], index=index, llm=llm, system=system, settings=settings)
    return run.records[0], llm.asked[-1]


def items_of(index: Index, k: int = 20) -> list[tuple[Pool, Pool, str]]:
    return [(pool, pool, text) for pool, text in zip(index.search(ASKED, k), ASKED, strict=True)]


def test_features_are_what_they_say(small: Index) -> None:
    searched = small.search([QUESTION], 20)[0]
    ranked = Pool(searched.passages[::-1][:6].copy(), searched.scores[:6])
    other = Pool(np.array([ranked.passages[0]], np.int32), np.ones(1, np.float32))
    table, far = features_of(small, [(ranked, searched, QUESTION), (ranked, other, QUESTION)])
    weights = {term: small.idf(term) for term in small.question_terms(QUESTION)}
    rows, known, shares = small.X, set[int](), list[float]()
    for at, passage in enumerate(ranked.passages.tolist()):
        has = weights.keys() & set(rows.indices[rows.indptr[passage] : rows.indptr[passage + 1]].tolist())
        shares.append(sum(weights[term] for term in has) / sum(weights.values()))
        before = sum(weights[term] for term in known) / sum(weights.values())
        new = sum(weights[term] for term in has - known) / sum(weights.values())
        known |= has
        row = dict(zip(FEATURES, table[at].tolist(), strict=True))
        assert row["bias"] == 1 and row["rank"] == pytest.approx(np.log1p(at))
        assert row["place"] == pytest.approx(np.log1p(len(searched) - 1 - at))
        assert (row["before"], row["new"]) == (pytest.approx(before), pytest.approx(new))
        assert row["length"] == pytest.approx(np.log(len(small.text(passage).encode())))
    assert table[:, FEATURES.index("share")] == pytest.approx(np.array(shares) / max(shares))
    assert far[0, FEATURES.index("place")] == 0
    assert far[1:, FEATURES.index("place")] == pytest.approx(np.full(5, np.log1p(NOT_FOUND)))


def test_choosing(small: Index) -> None:
    """With less evidence left unread, more is chosen; the best passage always stays, and the others keep order and
    score."""
    items, sizes = items_of(small), list[list[int]]()
    for unread in (1e9, 0.5, 0.2, 0.1, 0.05, 1e-9):
        together = worth_reading(small, items, unread)
        sizes.append([len(pool) for pool in together])
        for (ranked, _, _), pool, item in zip(items, together, items, strict=True):
            places = np.searchsorted(np.sort(ranked.passages), pool.passages)
            assert (np.sort(ranked.passages)[places] == pool.passages).all()
            scores = dict(ranked)
            assert [scores[passage] for passage, _ in pool] == pool.scores.tolist()
            assert pool.passages.tolist() == [passage for passage, _ in ranked if passage in pool.passages]
            (alone,) = worth_reading(small, [item], unread)
            assert alone.passages.tolist() == pool.passages.tolist()
            (features,) = features_of(small, [item])
            chances = 1 / (1 + np.exp(-(features @ np.array(WEIGHTS))))
            assert chances[~np.isin(ranked.passages, pool.passages)].sum() <= unread + 1e-12
    assert sizes[0] == [min(len(ranked), 1) for ranked, _, _ in items]
    assert sizes[-1] == [len(ranked) for ranked, _, _ in items]
    assert all(fewer <= more for one, other in pairwise(sizes) for fewer, more in zip(one, other, strict=True))
    assert worth_reading(small, [], 0.1) == []


@pytest.mark.parametrize("system", ["rag", "n2n", "decompose", "cascade"])
def test_the_llm_reads_what_the_evidence_says(small: Index, system: str) -> None:
    """And no passage else. A number is a scale: with 1, it is `auto`."""
    read = {}
    for effort in ("paper", "auto", "1", 0.05, 1e6):
        record, prompt = asked_with(small, system, effort=effort)
        lines = re.findall(r"(?m)^\[\d+\] .*", prompt)
        assert len(lines) == len(record.evidence) and len(set(record.uris)) <= len(lines)
        read[effort] = record
    assert read["auto"].evidence == read["1"].evidence
    assert read["paper"].evidence == asked_with(small, system)[0].evidence
    few, auto, all_of_them = (len(read[effort].evidence) for effort in (0.05, "auto", 1e6))
    assert 0 < few < auto <= all_of_them
    if system in ("n2n", "decompose"):
        assert read["auto"].trace["read"] == [it.segment for it in read["auto"].evidence]
        assert "read" not in read["paper"].trace


def test_windows_of_hseq_have_what_is_worth_reading(small: Index) -> None:
    shown = {}
    for effort in ("paper", 0.05, "auto", 1e6):
        run = pyfast.answer(
            [QUESTION], index=small, llm="instant", system="hseq", settings={"effort": effort, "steps": 50}
        )
        trace = run.records[0].trace
        shown[effort] = list(dict.fromkeys(it for step in trace["steps"] for it in step["window"]))
        assert effort == "paper" or trace["ended"] in ("exhausted", "sufficient")
    (pool,) = small.search([QUESTION], 48)
    (ranked,) = rerank_pools(small, [(pool, QUESTION)], RerankConfig(48, 48, rank="bridge_rank", expand=True))
    (chosen,) = worth_reading(small, [(ranked, pool, QUESTION)], 0.4)
    assert (
        shown["auto"][: min(len(chosen), 16)]
        == [f"{int(it):016x}" for it in small.corpus.ids[small.passages[chosen.passages]]][:16]
    )
    assert 0 < len(shown[0.05]) < len(shown["auto"]) <= len(shown[1e6])
    assert load_system("hseq").configure({"effort": "auto"}).model_dump()["characters"] == 400
    with pytest.raises(InputError, match="prior must be above 0"):
        load_system("hseq").configure({"effort": "auto", "prior": 0})


def test_a_question_with_documents_of_its_own(small: Index) -> None:
    uris = tuple(dict.fromkeys(small.uri(passage) for passage, _ in small.search([QUESTION], 30)[0]))[:6]
    for system in ("rag", "n2n"):
        run = pyfast.answer(
            [{"id": "q", "question": QUESTION, "documents": list(uris)}],
            index=small, llm="instant", system=system, settings={"effort": "auto"},
        )  # fmt: skip
        (record,) = run.records
        assert record.state == "answered" and set(record.uris) <= set(uris)


def test_less_text_keeps_the_gold_documents(data: Path, tmp_path: Path) -> None:
    """Of HotpotQA, and `n2n` keeps them too."""
    index = build_index(read([data / "hotpotqa" / "corpus.jsonl"]), tmp_path / "index")
    rows = [json.loads(line) for line in (data / "hotpotqa" / "questions.jsonl").read_text().splitlines()]
    rows = [row for row in rows if blake2b(row["id"].encode()).digest()[-1] % 2 and row.get("supporting")]
    for system, most in (("rag", 0.7), ("n2n", 0.95)):
        found, spent = dict[str, float](), dict[str, int]()
        for effort in ("paper", "auto"):
            run = pyfast.answer(
                [{"id": row["id"], "question": row["question"]} for row in rows],
                index=index, llm="instant", system=system, settings={"effort": effort},
            )  # fmt: skip
            spent[effort] = run.status.prompt_tokens
            shares = (
                len({*row["supporting"]} & {*record.uris}) / len(row["supporting"])
                for row, record in zip(rows, run.records, strict=True)
            )
            found[effort] = sum(shares) / len(rows)
        assert spent["auto"] < most * spent["paper"], system
        assert found["auto"] > found["paper"] - 0.02, system


def test_an_index_without_a_found_passage(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("Saturn has rings.")
    index = pyfast.build_index(tmp_path / "one.txt", tmp_path / "index")
    run = pyfast.answer(["unheardofword?"], index=index, llm="instant", system="rag", settings={"effort": "auto"})
    assert run.records[0].evidence == ()


@pytest.mark.parametrize("wrong", ["many", "0", "-1", "nan", "inf", True, [1], None])
def test_a_wrong_effort_is_refused(wrong: Any) -> None:
    for system in ("rag", "n2n", "subqrag", "hseq"):
        with pytest.raises(InputError, match=r"setting effort: expected paper, auto or a number above 0$"):
            load_system(system).configure({"effort": wrong})


def test_a_minimum_that_has_no_effect_is_refused() -> None:
    with pytest.raises(InputError, match=r"final_min has no effect with effort=0\.5: use effort=paper"):
        load_system("n2n").configure({"effort": "0.5", "final_min": "3"})
    assert load_system("n2n").configure({"preset": "paper"}).model_dump()["effort"] == "paper"
