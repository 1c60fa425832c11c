"""Each metric equals a second implementation on 2,500 random pairs and on answers of runs, and peers where they
agree; gold is right.

    PYFAST_PAIRS=10000 pytest tests/evaluation/test_second.py               more pairs
    PYFAST_RUNS=FOLDER pytest tests/evaluation/test_second.py -k finished     all runs below a folder, too
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import second
from scripted import Scripted

import pyfast
from pyfast.api.run import answers_of, gold_of
from pyfast.engine import Record
from pyfast.evaluation import Gold, hits
from pyfast.evaluation.evaluate import read_answers
from pyfast.evaluation.gold import read_gold
from pyfast.evaluation.metrics import by_distance, open_metric, tatqa_score

PAIRS = int(os.environ.get("PYFAST_PAIRS", "2500"))
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
    for answer, right in texts(2, PAIRS // 5):  # torchmetrics takes its time
        truth = [{"answers": {"answer_start": [0], "text": [right]}, "id": "q"}]
        peer = squad([{"prediction_text": answer, "id": "q"}], truth)
        found = score("hybridqa", record(answer), gold([right]))  # its rule for empty answers is SQuAD 2's
        assert 100 * found["em"] == peer["exact_match"].item(), (answer, right)
        assert 100 * found["f1"] == pytest.approx(peer["f1"].item(), abs=1e-3), (answer, right)


def test_em_and_f1_of_flashrag() -> None:
    """Its rules are HotpotQA's."""
    peers = pytest.importorskip("flashrag.evaluator.metrics")
    exact, f1 = peers.ExactMatch({"dataset_name": "any"}), peers.F1_Score({"dataset_name": "any"})
    for answer, right in texts(7):
        values = score("hotpotqa", record(answer), gold([right]))
        assert values["em"] == exact.calculate_em(answer, [right]), (answer, right)
        expected = f1.token_level_scores(answer, [right])
        assert {name: values[name] for name in expected} == pytest.approx(expected), (answer, right)


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
        whole = gold(right, answer_mode="all")
        assert score("metaqa", record(answer), whole) == pytest.approx(expected)
        del expected["hits@1"]
        assert score("em_f1", record(answer), whole) == pytest.approx(expected)


def test_evidence_selection_and_abstention() -> None:
    """Means of documents, micro averages of them, and coverage with risk."""
    draw = random.Random(8)
    asked, counts = list[tuple[Record, Gold]](), list[tuple[int, int, int]]()
    for answer, right in texts(8):
        cited = [draw.choice("abcdef") for _ in range(draw.randrange(5))]
        wanted = draw.sample("abcdef", draw.randrange(1, 4))
        evidence = [{"uri": uri, "snippet": ""} for uri in cited]
        given = record(answer if draw.random() < 0.8 else None, evidence)
        asked.append((given, gold([right, "Moon"], supporting=wanted)))
        counts.append(second.documents(cited, wanted))
        expected = second.figures("evidence", answer, cited, {"answers": [right], "supporting": wanted})
        assert score("evidence", *asked[-1]) == pytest.approx(expected)
        support = second.figures("musique", answer, cited, {"answers": [right], "supporting": wanted})
        assert score("musique", *asked[-1])["support_f1"] == pytest.approx(support["support_f1"])
    selected = totals("selection", asked)
    assert [selected[f"selection_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(
        second.micro(counts)
    )
    risks = second.coverage_and_risk([one.answer for one, _ in asked], [list(one.answers) for _, one in asked])
    assert tuple(totals("abstention", asked).values()) == pytest.approx(risks)


def totals(metric: str, asked: list[tuple[Record, Gold]]) -> dict[str, float]:
    """The shares of a metric over all questions."""
    sums: dict[str, list[float]] = {}
    for values in open_metric(metric)(asked):
        for name, share in (values or {}).items():
            above, below = share if isinstance(share, tuple) else (share, 1.0)
            so_far = sums.setdefault(name, [0.0, 0.0])
            so_far[0], so_far[1] = so_far[0] + above, so_far[1] + below
    return {name: above / below for name, (above, below) in sums.items()}


def test_rouge_l() -> None:
    pytest.importorskip("rouge_score")
    for answer, right in texts(9, PAIRS // 2):
        found = score("rouge_l", record(answer), gold([right, "Apollo 11"]))["rouge_l"]
        assert found == pytest.approx(max(second.rouge_l(answer, one) for one in (right, "Apollo 11")))


def test_hits() -> None:
    draw = random.Random(5)
    letters = ["".join(draw.choices("abAB ", k=draw.randrange(1, 5))) for _ in range(60)]
    for _ in range(PAIRS):
        entities = draw.sample(letters, draw.randrange(9))
        answer, right = draw.choice(letters), draw.sample(letters, 2)
        expected = second.figures("hits", answer, [], {"answers": right}, entities)
        found = score("hits", record(answer, entities=entities), gold(right))
        assert found == pytest.approx(expected)
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


def test_tatqa_of_several_spans() -> None:
    draw = random.Random(10)
    for _ in range(PAIRS):
        scale = draw.choice(["", "", "thousand", "million", "percent"])
        right = [draw.choice([numbers(draw), "net sales", "2019"]) for _ in range(draw.randrange(1, 4))]
        given = draw.sample(right, len(right)) if draw.random() < 0.6 else [numbers(draw), *right[1:]]
        said = draw.choice(["; ", ", ", "\n"]).join(f"{span} {draw.choice(['', scale])}".strip() for span in given)
        expected = second.tatqa_text(said, right, scale, "multi-span")
        assert tatqa_score(said, right, scale, "multi-span") == pytest.approx(expected), (said, right, scale)


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
    ("in 007!", ["in 7"], "", "span", 1, 1),  # a number once its punctuation is gone
    ("in ASC 718.!", ["in ASC 718."], "", "span", 1, 1),
    ("the 2017", ["2017"], "", "span", 0, 0),  # as the script has it: only a whole answer becomes 2017.0000
]


@pytest.mark.parametrize(("answer", "right", "scale", "kind", "em", "f1"), TATQA)
def test_tatqa_by_hand(answer: str, right: list[str], scale: str, kind: str, em: float, f1: float) -> None:
    assert tatqa_score(answer, right, scale, kind) == second.tatqa_text(answer, right, scale, kind) == (em, f1)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the benchmark data beside the repository")
def test_gold_answers_are_right() -> None:
    """Of every real set, in every metric: the gold, said as a careful reader would, scores 1."""
    for name in ("hotpotqa", "hybridqa", "2wiki", "musique", "nq", "metaqa", "tatqa"):
        metric = {"nq": "em_f1"}.get(name, name)
        for line in (REAL / name / "questions.jsonl").read_text(encoding="utf-8").splitlines():
            right = Gold.model_validate(json.loads(line))
            if not right.answers or not second.words(right.answers[0]):
                continue
            many = right.answer_mode == "all"
            scale = f" {right.scale}" if right.scale and "%" not in right.answers[0] else ""
            said = "; ".join(answer + scale for answer in right.answers) if many else right.answers[0] + scale
            values = score(metric, record(said), right)
            assert values["em"] == values["f1"] == 1, (name, said, right)


RAW = ("hotpotqa", "2wiki", "musique", "hybridqa", "metaqa", "tatqa", "convmix")
METRICS = ("em_f1", "squad", "hybridqa", "hotpotqa", "musique", "metaqa", "tatqa", "evidence", "hits")


def check(run: Path) -> int:
    """Each figure of each answer of a run equals the second implementation's. Returns how many answers it has."""
    asked = {one.id: one for one in read_gold(gold_of(run, None))}
    answers, _ = answers_of(run)
    assert isinstance(answers, Path)
    records = list(read_answers(answers))
    for given in records:
        right = asked[given.id]
        cited = [item.uri for item in given.evidence]
        entities = given.trace.get("entities", [])
        for metric in METRICS:
            known = json.loads(right.model_dump_json())
            expected = second.figures(metric, given.answer, cited, known, entities)
            values = score(metric, given, right)
            assert {name: values[name] for name in expected} == pytest.approx(expected), (
                metric,
                given.answer,
                right,
            )
    return len(records)


@pytest.mark.parametrize("name", RAW)
def test_answers_of_a_run(name: str, data: Path, tmp_path: Path) -> None:
    """Of real questions, by rag, with a model that knows the answers and is careless."""
    source = data / name / "raw"
    made = pyfast.convert(name, next(source.glob("*.json")) if name == "2wiki" else source, tmp_path / name)
    assert made.gold is not None
    corpus = made.corpus or data / name / "corpus.jsonl"
    lines = [json.loads(line) for line in made.questions.read_text(encoding="utf-8").splitlines()][:60]
    known = {one.id: list(one.answers) for one in read_gold(made.gold)}
    asked = [turn for line in lines for turn in line.get("turns", [line])]
    answers = {turn["question"]: known[turn["id"]] for turn in asked}

    def reply(request: Any) -> dict[str, str]:
        (question,) = re.findall(r"Question: (.*)", request.messages[-1].content)[-1:]
        draw = random.Random(question)  # the same reply whenever it is asked
        right = answers[question.strip()]
        some = [*right, f"the {right[0]}", " ".join(right[0].split()[:2]), "; ".join(right), "yes", "5.82 million"]
        return {"answer": draw.choice([*some, f"{right[0].upper()}!", "not known", f"{right[0]}%"])}

    index = pyfast.build_index(corpus, tmp_path / "index")
    (tmp_path / name / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    llm = Scripted(answer=reply)
    run = pyfast.answer(
        tmp_path / name / "few.jsonl", index=index, llm=llm, system="rag", run=tmp_path / "run", settings={"k": 3}
    )
    assert run.path is not None and check(run.path) == len(asked)
    report = pyfast.evaluate(run, metrics=["em_f1", "hits"]).rows[0]
    assert 0 < report["em"].value < 1
    assert name != "convmix" or report["h@1"].value < report["mrr"].value  # some answers are near the right entity


def test_answers_of_finished_runs() -> None:
    folder = os.environ.get("PYFAST_RUNS")
    if not folder:
        pytest.skip("PYFAST_RUNS names no folder of runs")
    runs = [path.parent for path in sorted(Path(folder).rglob("answers.jsonl")) if path.stat().st_size]
    assert runs
    for run in runs:
        print(run, check(run), "answers")
