"""Each metric equals a second implementation on 10,000 random pairs, and peers where they agree; gold is right."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import second

from pyfast.engine import Record
from pyfast.evaluation import Gold, hits
from pyfast.evaluation.hits import by_distance
from pyfast.evaluation.protocol import open_metric
from pyfast.evaluation.tatqa import tatqa_score

PAIRS = 10_000
VOCABULARY = [
    "the",
    "a",
    "an",
    "Apollo",
    "apollo.",
    "Moon,",
    "moon-landing",
    "U.S.",
    "yes",
    "no",
    "noanswer",
    "No!",
]
VOCABULARY += ["1969", "1,969", "19.69", "July", "16", "(1969)", "Neil", "Armstrong", "Armstrong's", "“quoted”"]
VOCABULARY += ["é", "–", ";", "the-end", "İstanbul", "...", "X"]
REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


def texts(seed: int, count: int = PAIRS) -> Iterator[tuple[str, str]]:
    """Pairs that often share words, and are often equal but for form."""
    draw = random.Random(seed)
    for _ in range(count):
        gold = [draw.choice(VOCABULARY) for _ in range(draw.randrange(5))]
        answer = [word if draw.random() < 0.8 else draw.choice(VOCABULARY) for word in gold]
        if draw.random() < 0.4:
            draw.shuffle(answer)
        if draw.random() < 0.4:
            answer.append(draw.choice(VOCABULARY))
        yield draw.choice([" ", "  "]).join(answer), " ".join(gold)


def record(answer: str | None, evidence: list[dict[str, Any]] | None = None, **trace: Any) -> Record:
    return Record(
        "q", "answered", answer, evidence_json=orjson.dumps(evidence or []), trace_json=orjson.dumps(trace)
    )


def gold(answers: list[str], **known: Any) -> Gold:
    return Gold.model_validate({"id": "q", "answers": answers, **known})


def score(metric: str, given: Record, right: Gold) -> dict[str, Any]:
    (values,) = open_metric(metric)([(given, right)])
    return dict(values or {})


@pytest.mark.parametrize("metric", ["em_f1", "squad", "hybridqa", "hotpotqa", "musique"])
def test_em_and_f1(metric: str) -> None:
    script = "hybridqa" if metric == "musique" else metric
    for answer, right in texts(1):
        precision, recall, f1 = second.tokens(answer, right, script)
        expected = {"em": second.em(answer, right), "f1": f1, "precision": precision, "recall": recall}
        assert score(metric, record(answer), gold([right])) == pytest.approx(expected), (answer, right)


def test_em_and_f1_of_torchmetrics() -> None:
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    for answer, right in texts(2, 400):
        truth = [{"answers": {"answer_start": [0], "text": [right]}, "id": "q"}]
        peer = squad([{"prediction_text": answer, "id": "q"}], truth)
        found = score("hybridqa", record(answer), gold([right]))  # its rule for empty answers is SQuAD 2's
        assert 100 * found["em"] == peer["exact_match"].item(), (answer, right)
        assert 100 * found["f1"] == pytest.approx(peer["f1"].item(), abs=1e-3), (answer, right)


def test_the_scripts_differ_where_they_do() -> None:
    """HotpotQA gives nothing for a part of a verdict; SQuAD 1.1 nothing for two empty answers."""
    f1 = {
        metric: [score(metric, record(a), gold([g]))["f1"] for a, g in [("yes it is", "yes"), ("the", "a")]]
        for metric in ("em_f1", "squad", "hybridqa", "hotpotqa")
    }
    assert f1 == {"em_f1": [0, 1], "squad": [0.5, 0], "hybridqa": [0.5, 1], "hotpotqa": [0, 0]}


def test_supporting_facts_and_joint() -> None:
    draw = random.Random(3)
    starts = {"d": [0, 10, 20, 30], "e": [0, 5]}
    facts = [("d", 0), ("d", 1), ("d", 2), ("d", 3), ("e", 0), ("e", 1)]
    for answer, right in texts(3):
        wanted = draw.sample(facts, draw.randrange(1, 4))
        evidence, found = [], set[tuple[str, int]]()
        for _ in range(draw.randrange(4)):
            uri = draw.choice(["d", "e", "elsewhere"])
            begins = starts.get(uri, [0])
            first = draw.randrange(len(begins))
            last = draw.randrange(first, len(begins))
            end = begins[last] + draw.randrange(1, 5)  # somewhere within the last sentence
            evidence.append({"uri": uri, "snippet": "", "segment": "0" * 16, "offsets": [begins[first], end]})
            outside = (uri, -1 - len(evidence))
            found |= {(uri, n) for n in range(first, last + 1)} if uri in starts else {outside}
        values = score(
            "hotpotqa",
            record(answer, evidence),
            gold([right], supporting_facts=wanted, sentence_starts=starts),
        )
        precision, recall, _ = second.tokens(answer, right, "hotpotqa")
        em, sp_precision, sp_recall, sp_f1 = sp = second.supporting(found, set(wanted))
        joint_em, joint_f1 = second.joint((second.em(answer, right), precision, recall), sp)
        expected = {
            "sp_em": em,
            "sp_precision": sp_precision,
            "sp_recall": sp_recall,
            "sp_f1": sp_f1,
            "joint_em": joint_em,
            "joint_f1": joint_f1,
        }
        assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_sets() -> None:
    draw = random.Random(4)
    films = ["Alien", "The Thing", "Heat", "Up", "Se7en", "M"]
    for _ in range(PAIRS):
        right = draw.sample(films, draw.randrange(1, 5))
        given = [draw.choice([film, film.upper()]) for film in draw.sample(films, draw.randrange(5))]
        answer = draw.choice([", ", "; ", ","]).join(given)
        found, wanted = second.item_set(answer), second.item_set(";".join(right))
        precision, recall, f1 = second.prf(second.shared(found, wanted), len(found), len(wanted))
        expected = {
            "hits@1": float(bool(found) and found[0] in wanted),
            "em": float(sorted(found) == sorted(wanted)),
            "f1": f1,
            "precision": precision,
            "recall": recall,
        }
        assert score("metaqa", record(answer), gold(right, answer_mode="all")) == pytest.approx(expected)


def distance(a: str, b: str) -> int:
    """Levenshtein's, by its recurrence."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def test_hits() -> None:
    draw = random.Random(5)
    letters = ["".join(draw.choices("abAB ", k=draw.randrange(1, 5))) for _ in range(60)]
    for _ in range(PAIRS):
        entities = draw.sample(letters, draw.randrange(9))
        answer, right = draw.choice(letters), draw.sample(letters, 2)
        order = sorted(range(len(entities)), key=lambda i: distance(answer.lower(), entities[i].lower()))
        ranked = [entities[i] for i in order]
        first, five, reciprocal = second.hits(answer, right, ranked)
        found = score("hits", record(answer, entities=entities), gold(right))
        assert found == pytest.approx({"h@1": first, "h@5": five, "mrr": reciprocal})
    assert by_distance("ab", ["b", "AB", "xyz", "ab"]) == ["AB", "ab", "b", "xyz"]
    assert hits(None, ["x"], ["x"]).first == hits("the", ["The"], ["the"]).first == 0


def numbers(draw: random.Random) -> str:
    whole = draw.choice(["0", "5", "56", "1,234", "58", "2019", "213,654"])
    number = whole + draw.choice(["", "", ".0", ".00", ".82", ".2", ".13"])
    return draw.choice(["{}", "${}", "$ {}", "({})", "-{}", "{}%", "+{}", "€{}"]).format(number)


def test_tatqa() -> None:
    draw = random.Random(6)
    kinds = ["span", "arithmetic", "count"]
    for _ in range(PAIRS):
        scale, kind = draw.choice(["", "", "thousand", "million", "percent"]), draw.choice(kinds)
        right = numbers(draw) if draw.random() < 0.7 else " ".join(draw.sample(VOCABULARY, 2))
        answer = right if draw.random() < 0.5 else numbers(draw)
        if draw.random() < 0.2:
            answer = answer.replace("$", "").replace(",", "")
        told = draw.choice(["", "", scale, "million"])
        said = f"{answer} {told}".strip() if second.value(answer) is not None and "%" not in answer else answer
        told = told if said != answer else ""
        readings = [(answer, told), (said, "")]
        expected = max(second.tatqa(one, its, [right], scale, kind) for one, its in readings)
        assert tatqa_score(said, [right], scale, kind) == pytest.approx(expected), (said, right, scale, kind)


TATQA = [
    ("5.82", ["58.2"], "", "span", 0, 0),
    ("56", ["56.00"], "", "arithmetic", 1, 1),
    ("$58.2 million", ["58.2"], "million", "span", 1, 1),
    ("58.2", ["58.2"], "million", "span", 0, 0),
    ("58,200,000", ["58.2"], "million", "span", 1, 1),
    ("23.42%", ["23.42"], "percent", "arithmetic", 1, 1),
    ("23.42 percent", ["23.42"], "percent", "arithmetic", 1, 1),
    ("0.2342", ["23.42"], "percent", "arithmetic", 1, 1),
    ("(13)", ["-13"], "", "arithmetic", 1, 1),
    ("2017; 2018; 2019", ["2019", "2018", "2017"], "", "multi-span", 1, 1),
    ("$510 thousand, $1,310 thousand", ["$1,310", "$510"], "thousand", "multi-span", 1, 1),
    ("2018, 2019", ["2019", "2018", "2017"], "", "multi-span", 0, 0.8),
    ("", ["1"], "", "count", 0, 0),
    ("9" * 5_000, ["1"], "", "span", 0, 0),
    ("the 9%", ["1"], "", "span", 0, 0),
]


@pytest.mark.parametrize(("answer", "right", "scale", "kind", "em", "f1"), TATQA)
def test_tatqa_by_hand(answer: str, right: list[str], scale: str, kind: str, em: float, f1: float) -> None:
    assert tatqa_score(answer, right, scale, kind) == (em, f1)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the benchmark data beside the repository")
def test_gold_answers_are_right() -> None:
    """Of every real set, whatever the metric: the gold, said as a careful reader would, scores 1."""
    for name in ("hotpotqa", "hybridqa", "2wiki", "musique", "nq", "metaqa", "tatqa"):
        metric = {"2wiki": "hotpotqa", "nq": "em_f1"}.get(name, name)
        for line in (REAL / name / "questions.jsonl").read_text(encoding="utf-8").splitlines():
            right = Gold.model_validate(json.loads(line))
            if not right.answers or not second.words(right.answers[0]):
                continue
            many = right.answer_mode == "all"
            scale = f" {right.scale}" if right.scale and "%" not in right.answers[0] else ""
            said = "; ".join(answer + scale for answer in right.answers) if many else right.answers[0] + scale
            values = score(metric, record(said), right)
            assert values["em"] == values["f1"] == 1, (name, said, right)
