"""Passages with some of their sentences: the text, the budget, and the gold sentences that stay."""

import re
from pathlib import Path

import orjson
import pytest

import pyfast
from pyfast.corpus import Level, read
from pyfast.retrieval import Index, build_index, narrate, narrate_sentences

ASKED = ["Who discovered Titan?", "From which launch site did Rosetta leave Earth?", "unheardofword", ""]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7, 1.0])
def test_lines_have_sentences_of_their_passages_in_order(small: Index, share: float) -> None:
    pools = small.search(ASKED, 12)
    full = [text.split("\n") if text else [] for text in narrate(small, pools, 10**6)]
    for (text, passages), lines in zip(
        narrate_sentences(small, list(zip(pools, ASKED, strict=True)), 10**6, share), full, strict=True
    ):
        shown = text.split("\n") if text else []
        assert len(shown) == passages <= len(lines)
        texts = iter(re.sub(r"^\[\d+\] ", "", line) for line in lines)
        for number, line in enumerate(shown, start=1):
            assert line.startswith(f"[{number}] ")
            pieces = line.removeprefix(f"[{number}] ").split(" ... ")
            assert any(all(piece.split(". ", 1)[-1] in whole for piece in pieces) for whole in texts), line
        if share == 1.0:
            assert shown == lines
    everything = sum(map(len, narrate(small, pools, 10**6)))
    chosen = narrate_sentences(small, list(zip(pools, ASKED, strict=True)), 10**6, share)
    assert sum(len(text) for text, _ in chosen) <= everything * share + 400 * len(pools)


def test_the_text_fits_the_room(small: Index) -> None:
    pool = small.search(["moons of Saturn"], 20)[0]
    for room in (0, 40, 300):
        ((text, _),) = narrate_sentences(small, [(pool, "moons of Saturn")], room, 0.5)
        assert len(text) <= room
    assert narrate_sentences(small, [], 100, 0.5) == []


def test_a_pronoun_brings_the_sentence_before(tmp_path: Path) -> None:
    """And sentences that are left out leave dots."""
    text = (
        "Emma Lund built the lighthouse of Hanko. She was born in Turku. Basalt is dark. Its tower is of granite."
    )
    (tmp_path / "lighthouse.jsonl").write_bytes(orjson.dumps({"id": "a", "title": "Lighthouse", "text": text}))
    index = build_index(read([tmp_path / "lighthouse.jsonl"]), tmp_path / "index")
    said = {}
    for asked in ("Who was born in Turku?", "What is of granite?"):
        pool = index.search([asked], 1)[0]
        ((said[asked], _),) = narrate_sentences(index, [(pool, asked)], 1000, 0.66)
    assert said["Who was born in Turku?"] == (
        "[1] Lighthouse. Emma Lund built the lighthouse of Hanko. She was born in Turku."
    )
    assert said["What is of granite?"].endswith("Basalt is dark. Its tower is of granite.")
    one = narrate_sentences(index, [(index.search(["granite"], 1)[0], "granite")], 1000, 0.01)
    assert one == [("[1] Lighthouse. Its tower is of granite.", 1)]


def test_half_of_the_text_keeps_the_gold_sentences(data: Path, tmp_path: Path) -> None:
    """Of HotpotQA, which says which sentences support an answer; the first half of the passages keeps fewer."""
    folder = data / "hotpotqa"
    index = build_index(read([folder / "corpus.jsonl"]), tmp_path / "index")
    rows = [orjson.loads(line) for line in (folder / "questions.jsonl").read_bytes().splitlines()]
    rows = [row for row in rows if row.get("supporting_facts")][:100]
    documents = map(orjson.loads, (folder / "corpus.jsonl").read_bytes().splitlines())
    starts = {row["id"]: row.get("sent_starts", []) for row in documents}
    pools = index.search([row["question"] for row in rows], 10)
    items = [(pool, row["question"]) for pool, row in zip(pools, rows, strict=True)]
    had = kept = first_half = 0
    for row, pool, (text, _) in zip(rows, pools, narrate_sentences(index, items, 10**6, 0.5), strict=True):
        (whole,) = narrate(index, [pool], 10**6)
        for passage in pool.passages.tolist():
            uri, segment = index.uri(passage), int(index.passages[passage])
            for of, number in row["supporting_facts"]:
                if of == uri and number < len(starts[uri]):
                    places = range(segment + 1, int(index.corpus.subtree_end[segment]))
                    begins = index.corpus.start[segment] + starts[uri][number]
                    gold = [index.corpus.content(i) for i in places if abs(index.corpus.start[i] - begins) <= 1]
                    assert index.corpus.level[segment] == Level.PARAGRAPH
                    had += len(gold)
                    kept += sum(" ".join(one.split()) in text for one in gold)
                    first_half += sum(" ".join(one.split()) in whole[: len(whole) // 2] for one in gold)
    assert had > 150
    assert kept / had > 0.94 > first_half / had


@pytest.mark.parametrize("system", ["rag", "n2n", "decompose"])
def test_systems_read_less(small: Index, system: str) -> None:
    """The same question with fewer tokens, and no LLM call more. The list of the evidence stays whole."""
    read = {}
    for share in (1.0, 0.4):
        run = pyfast.answer(
            ["From which launch site did Rosetta leave Earth?"],
            index=small, llm="instant", system=system, settings={"evidence_share": share},
        )  # fmt: skip
        (record,) = run.records
        read[share] = run.status.prompt_tokens, run.status.llm_calls, record.uris
    assert read[0.4][0] < 0.8 * read[1.0][0]
    assert read[0.4][1] == read[1.0][1]
    assert system != "rag" or read[0.4][2] == read[1.0][2]
