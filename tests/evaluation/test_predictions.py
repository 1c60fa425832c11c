"""Prediction files of data sets: what the official scripts compute from them is what pyfast reports."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import second
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import Answer, Context, Question
from pyfast.errors import InputError
from pyfast.evaluation.predictions import FORMATS
from pyfast.systems import Settings, System

WORDS = [
    "lake",
    "river",
    "Varn",
    "the",
    "moon",
    "found",
    "by",
    "Huygens",
    "in",
    "1655",
    "yes",
    "no",
    "a",
    "north",
    "bank",
]


def hotpotqa(folder: Path) -> Path:
    """A published file in little. Some titles have several texts, in different questions and in the same one."""
    rng = random.Random(1)

    def paragraph(title: str) -> list[Any]:
        return [
            title,
            [f" {' '.join(rng.choices(WORDS, k=rng.randint(3, 9)))}." for _ in range(rng.randint(1, 6))],
        ]

    shared = [paragraph(f"Title {k}") for k in range(30)]
    questions = []
    for k in range(120):
        context = [*rng.sample(shared, 6), *(paragraph(f"Title {rng.randrange(30)}") for _ in range(2))]
        first = dict(reversed(context))  # Facts mean the first paragraph with a title.
        facts = {(title, rng.randrange(len(first[title]))) for title in rng.sample([*first], min(3, len(first)))}
        answer = rng.choice(["yes", f"the {rng.choice(WORDS)} moon"])
        asked = {"_id": f"h{k}", "question": f"What is {k}?", "answer": answer, "context": context}
        questions.append({**asked, "supporting_facts": sorted(facts), "type": "bridge", "level": "hard"})
    (folder / "hotpot.json").write_text(json.dumps(questions))
    return folder / "hotpot.json"


def musique(folder: Path) -> Path:
    """A published file of MuSiQue-Full in little: each question twice, of which one cannot be answered."""
    rng, lines = random.Random(2), []
    for k in range(60):
        for answerable in rng.sample([True, False], 2):
            paragraphs = [
                {"idx": n, "title": f"T{n}", "paragraph_text": f"{k % 7} {n} {' '.join(rng.choices(WORDS, k=6))}"}
                for n in range(6)
            ]
            wanted = rng.sample(range(6), 2) if answerable else []
            paragraphs = [{**one, "is_supporting": one["idx"] in wanted} for one in paragraphs]
            aliases = [f"{rng.choice(WORDS)} moon"]
            asked = {"id": f"2hop__{k}", "question": f"What is {k}?", "paragraphs": paragraphs}
            gold = {"answer": f"{rng.choice(WORDS)} river", "answer_aliases": aliases, "answerable": answerable}
            lines.append(json.dumps({**asked, **gold, "question_decomposition": []}))
    (folder / "musique.jsonl").write_text("\n".join(lines))
    return folder / "musique.jsonl"


def guessing(made: Any) -> System:
    """A system that answers at random, and cites its own documents, those of other questions and unknown ones."""
    texts = {one["id"]: one["text"] for one in map(json.loads, made.corpus.read_text("utf-8").splitlines())}
    golds = {one["id"]: one for one in map(json.loads, made.gold.read_text("utf-8").splitlines())}

    async def guess(question: Question, ctx: Context, settings: Settings) -> Answer:
        rng, gold = random.Random(question.id), golds[question.id]
        if rng.random() < 0.1:
            raise ValueError("no")
        cited = [{"uri": "elsewhere", "snippet": "?"}] if rng.random() < 0.2 else []
        for uri, number in gold.get("supporting_facts", []):
            starts = [*gold["sentence_starts"][uri], len(texts[uri])]
            if rng.random() < 0.9:
                cited.append({"uri": uri, "snippet": "it", "offsets": starts[number : number + 2]})
        if "supporting_facts" not in gold:
            cited += [{"uri": uri, "snippet": "p"} for uri in gold["supporting"] if rng.random() < 0.8]
        for uri in rng.sample(sorted(texts), rng.random() < 0.3):
            first = rng.randrange(len(texts[uri]))
            cited.append(
                {"uri": uri, "snippet": "it", "offsets": [first, rng.randint(first + 1, len(texts[uri]))]}
            )
        said = rng.choice([*gold.get("answers", []), " ".join(rng.choices(WORDS, k=3)), "The yes", None])
        return Answer(said, orjson.dumps(cited))

    return System("guessing", guess, Settings, (), needs_index=False)


def by_script_of_hotpotqa(published: list[dict[str, Any]], predicted: Mapping[str, Any]) -> dict[str, float]:
    """The means over all questions of the published file, from the two files alone."""
    sums: dict[str, float] = defaultdict(float)
    for asked in published:
        said, wanted = predicted["answer"][asked["_id"]], {(title, n) for title, n in asked["supporting_facts"]}
        precision, recall, f1 = second.tokens(said, asked["answer"], "hotpotqa")
        answer = second.em(said, asked["answer"]), precision, recall
        facts = second.supporting({(title, n) for title, n in predicted["sp"][asked["_id"]]}, wanted)
        joint_em, joint_f1 = second.joint(answer, facts)
        for name, value in {"em": answer[0], "f1": f1, "precision": precision, "recall": recall}.items():
            sums[name] += value / len(published)
        for name, value in zip(("sp_em", "sp_precision", "sp_recall", "sp_f1"), facts, strict=True):
            sums[name] += value / len(published)
        sums["joint_em"] += joint_em / len(published)
        sums["joint_f1"] += joint_f1 / len(published)
    return sums


@pytest.mark.parametrize("real", [False, True])
def test_hotpotqas_script_computes_pyfasts_figures(real: bool, tmp_path: Path, request: Any) -> None:
    raw = request.getfixturevalue("data") / "hotpotqa/raw/hotpot_train_sample.json" if real else None
    source = raw or hotpotqa(tmp_path)
    made = pyfast.convert("hotpotqa", source, tmp_path / "set")
    run = pyfast.answer(made.questions, llm="instant", system=guessing(made), run=tmp_path / "run")
    count = pyfast.export([run], tmp_path / "p.json", format="hotpotqa")
    predicted = json.loads((tmp_path / "p.json").read_text("utf-8"))
    assert count == len(predicted["answer"]) == len(predicted["sp"]) == made.count
    by_script = by_script_of_hotpotqa(json.loads(source.read_text("utf-8")), predicted)
    whole = pyfast.evaluate(run).rows[0]
    assert {name: whole[name].value for name in by_script} == pytest.approx(by_script, abs=1e-12)
    assert all(0 < by_script[name] < 1 for name in ("em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1"))
    pyfast.export([run], tmp_path / "w.json", format="2wiki")
    assert json.loads((tmp_path / "w.json").read_text("utf-8")) == {**predicted, "evidence": {}}


def test_musiques_script_computes_pyfasts_figures(tmp_path: Path) -> None:
    source = musique(tmp_path)
    made = pyfast.convert("musique", source, tmp_path / "set")
    run = pyfast.answer(made.questions, llm="instant", system=guessing(made), run=tmp_path / "run")
    pyfast.export([run], tmp_path / "p.jsonl", format="musique")
    published, predicted = (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (source, tmp_path / "p.jsonl")
    )
    values: dict[str, list[float]] = defaultdict(list)
    pairs: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for asked, said in zip(published, predicted, strict=True):  # The script compares the files line by line.
        assert asked["id"] == said["id"]
        right, of_question = asked["answerable"], {}
        if right:
            gold = [asked["answer"], *asked["answer_aliases"]]
            of_question["f1"] = max(second.tokens(said["predicted_answer"], one, "hybridqa")[2] for one in gold)
            of_question["em"] = max(second.em(said["predicted_answer"], one) for one in gold)
            wanted = {(str(one["idx"]), 0) for one in asked["paragraphs"] if one["is_supporting"]}
            found = {(str(idx), 0) for idx in said["predicted_support_idxs"]}
            of_question["support_f1"] = second.supporting(found, wanted)[3]
            for name, value in of_question.items():
                values[name].append(value)
        pairs[asked["id"]].append((right, said["predicted_answerable"] == right, of_question))
    for both in pairs.values():
        assert len(both) == 2
        (own,) = [figures for right, _, figures in both if right]
        is_told = all(same for _, same, _ in both)
        values["group_answer_sufficiency_f1"].append(is_told * own["f1"])
        values["group_support_sufficiency_f1"].append(is_told * own["support_f1"])
    means = {name: sum(some) / len(some) for name, some in values.items()}
    whole = pyfast.evaluate(run).rows[0]
    assert {name: whole[name].value for name in means} == pytest.approx(means, abs=1e-12)
    assert all(0 < mean < 1 for mean in means.values())


@pytest.mark.parametrize("name", ["hotpotqa", "2wiki", "musique"])
def test_a_test_set_without_answers_has_the_same_predictions(name: str, tmp_path: Path) -> None:
    """Of the same answers, the file is the same byte for byte, whether or not the answers are published."""
    source = musique(tmp_path) if name == "musique" else hotpotqa(tmp_path)
    text = source.read_text("utf-8")
    published = [json.loads(line) for line in text.splitlines()] if name == "musique" else json.loads(text)
    hidden = [{key: one[key] for key in one.keys() & {"_id", "id", "question", "context"}} for one in published]
    for one, whole in zip(hidden, published, strict=True):
        if name == "musique":
            keys = ("idx", "title", "paragraph_text")
            one["paragraphs"] = [{key: each[key] for key in keys} for each in whole["paragraphs"]]
    test = tmp_path / f"test{source.suffix}"
    test.write_text("\n".join(map(json.dumps, hidden)) if name == "musique" else json.dumps(hidden), "utf-8")
    labelled = pyfast.convert(name, source, tmp_path / "labelled")
    unlabelled = pyfast.convert(name, test, tmp_path / "unlabelled")
    assert unlabelled.gold is None
    files = []
    for made in (labelled, unlabelled):
        folder = made.questions.parent
        run = pyfast.answer(made.questions, llm="instant", system=guessing(labelled), run=folder / "run")
        pyfast.export([run], folder / f"p{FORMATS[name]}", format=name)
        files.append((folder / f"p{FORMATS[name]}").read_bytes())
    assert files[0] == files[1] and len(files[0]) > 1_000
    with pytest.raises(InputError, match="there are no `answers` to the 120 finished questions"):
        pyfast.evaluate(run)


def test_missing_predictions_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = pyfast.convert("hotpotqa", hotpotqa(tmp_path), tmp_path / "set")
    options = {"llm": "instant", "system": guessing(made)}
    some = pyfast.answer(made.questions, **options, run=tmp_path / "some", limit=30)
    caplog.clear()
    assert pyfast.export([some], tmp_path / "p.json", format="hotpotqa") == 30
    (told,) = [text for text in caplog.messages if "p.json" in text]
    assert told.endswith(
        "p.json: 90 questions of the data set have no prediction, but the official script expects all of them"
    )


def test_hybridqas_predictions_need_no_gold(tmp_path: Path) -> None:
    run = pyfast.answer(["Who?", "When?"], llm="instant", system="echo_system:SYSTEM", run=tmp_path / "run")
    done = CliRunner().invoke(
        app, ["export", str(run.path), "--out", str(tmp_path / "p.json"), "--format", "hybridqa"]
    )
    assert done.exit_code == 0 and done.output.endswith("p.json: 2 predictions\n")
    told = [{"question_id": one.id, "pred": one.answer or ""} for one in run.records]
    assert json.loads((tmp_path / "p.json").read_text("utf-8")) == told


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    asked = [{"id": "q", "question": "Who?", "answers": ["Huygens"]}]
    run = pyfast.answer(asked, llm="instant", system="echo_system:SYSTEM", run=tmp_path / "run")

    def fails(match: str, name: str = "p.json", **options: Any) -> None:
        with pytest.raises(InputError, match=match):
            pyfast.export([run], tmp_path / name, **{"format": "hotpotqa", **options})
        assert not (tmp_path / name).exists()

    fails("unknown data set 'squad'; known: hotpotqa, 2wiki, musique, hybridqa", format="squad")
    fails(r"expected a name that ends in \.jsonl$", format="musique")
    fails("expected gold or questions that `pyfast data convert hotpotqa` has written", gold=asked)
    fails(
        "expected gold or questions that `pyfast data convert musique`",
        "p.jsonl",
        format="musique",
        gold=asked,
    )
    fails("needs a single run, and excludes wide", sources=True)
    with pytest.raises(InputError, match="needs a single run"):
        pyfast.export([run, run], tmp_path / "p.json", format="hybridqa")
