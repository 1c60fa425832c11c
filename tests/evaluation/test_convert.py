"""Published layouts become corpus, questions and gold: by hand, and against the normalised data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.corpus import Unread
from pyfast.corpus.formats.files import published_set
from pyfast.engine import read_questions
from pyfast.errors import InputError
from pyfast.evaluation.data_sets import _SOURCES, names

HOTPOT = {
    "_id": "h1",
    "question": "Who discovered Titan?",
    "answer": "Huygens",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": [["Titan", 1]],
    "context": [["Titan", ["A moon.", " Found by Huygens."]], ["Rhea", ["Another moon."]]],
}
WIKI = {
    **HOTPOT,
    "evidences": [["Titan", "found by", "Huygens"]],
    "context": [["Titan", ["A moon.", "By Huygens."]]],
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Huygens",
    "answer_aliases": ["C. Huygens"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Titan", "paragraph_text": "Found by Huygens.", "is_supporting": True},
        {"idx": 1, "title": "Titan", "paragraph_text": "A moon.", "is_supporting": False},
    ],
    "question_decomposition": [{"id": 1, "question": "Who?", "answer": "Huygens", "paragraph_support_idx": 0}],
}
TATQA = {
    "table": {"uid": "t", "table": [["", "2019"], ["Sales", "$1,452"]]},
    "paragraphs": [{"uid": "p", "order": 1, "text": "In millions."}],
    "questions": [
        {
            "uid": "q",
            "question": "Sales?",
            "answer": ["$1,452"],
            "answer_type": "span",
            "answer_from": "table-text",
        }
        | {"scale": "million", "derivation": "", "rel_paragraphs": ["1"]},
        {"uid": "r", "question": "Twice?", "answer": 2904, "answer_type": "arithmetic", "answer_from": "table"}
        | {"scale": "million", "derivation": "2*1,452", "rel_paragraphs": []},
    ],
}
CONVMIX = {
    "conv_id": 7,
    "domain": "books",
    "questions": [
        {
            "question_id": "7-1",
            "question": "Who wrote it?",
            "answers": [{"id": "Q1", "label": "Ann Author"}],
            "answer_text": "A. Author",
            "answer_src": "kb",
        }
    ],
}
HYBRID = {"question_id": "h", "question": "Who?", "table_id": "Moons_0", "answer-text": "Huygens"}
TABLE = {
    "uid": "Moons_0",
    "url": "u",
    "title": "Moons",
    "section_title": "Saturn",
    "header": [["Moon", []], ["Found by", ["/wiki/Discovery"]]],
    "data": [[["Titan", ["/wiki/Titan_(moon)"]], ["Huygens", []]]],
}
PASSAGES = {"/wiki/Titan_(moon)": "Titan is a moon.", "/wiki/Discovery": "To find is to discover."}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def layout(name: str, folder: Path) -> Path:
    """The source of a set, in little, as its authors lay it out."""
    match name:
        case "hotpotqa":
            return write(folder / "hotpot_dev_distractor_v1.json", [HOTPOT])
        case "2wiki":
            return write(folder / "dev.json", [WIKI])
        case "musique":
            return write(folder / "musique_ans_v1.0_dev.jsonl", json.dumps(MUSIQUE) + "\n")
        case "tatqa":
            return write(folder / "tatqa_dataset_dev.json", [TATQA])
        case "convmix":
            return write(folder / "dev_set.json", [CONVMIX])
        case "hybridqa":
            write(folder / "WikiTables-WithLinks" / "tables_tok" / "Moons_0.json", TABLE)
            write(folder / "WikiTables-WithLinks" / "request_tok" / "Moons_0.json", PASSAGES)
            return write(folder / "released_data" / "dev.json", [HYBRID])
        case "ottqa":
            write(folder / "data" / "traindev_tables.json", {"Moons_0": TABLE})
            write(folder / "data" / "traindev_request_tok.json", PASSAGES)
            return write(folder / "released_data" / "dev.json", [{**HYBRID, "version": "dev"}])
        case "metaqa":
            write(folder / "kb.txt", "Alien|directed_by|Ridley Scott\nAlien|release_year|1979\n")
            return write(folder / "1-hop" / "vanilla" / "qa_dev.txt", "who directed [Alien]\tRidley Scott\n")
        case "nq":
            return write(folder / "NQ-open.dev.jsonl", '{"question": "who found titan", "answer": ["Huygens"]}\n')
        case "triviaqa":
            answer = {"Value": "Huygens", "Aliases": ["C. Huygens", "Huygens"]}
            record = {"QuestionId": "tc_1", "Question": "Who found Titan?", "Answer": answer}
            return write(folder / "unfiltered-web-dev.json", {"Data": [record], "Version": 1})
        case _:
            line = '1\tauthor\tWho wrote it?\t"[""Ann"", ""A.""]"\n'
            return write(folder / "test.tsv", f"id\tprop\tquestion\tpossible_answers\n{line}")


def lines(path: Path | None) -> list[dict[str, Any]]:
    return [] if path is None else [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


WITHOUT_CORPUS = {"convmix", "nq", "triviaqa", "popqa"}


@pytest.mark.parametrize("name", [name for name in names() if name not in ("hipporag", "beir", "flashrag")])
def test_a_set_becomes_an_index_a_run_and_its_scores(name: str, tmp_path: Path) -> None:
    """And what it is made of is refused as a corpus and as questions, with the command that it takes."""
    source = layout(name, tmp_path / "published")
    made = pyfast.convert(name, source, tmp_path / "out")
    assert (made.corpus is None) == (name in WITHOUT_CORPUS) == (made.no_corpus is not None)
    assert made.gold is not None
    if made.corpus is not None:
        index = pyfast.build_index(made.corpus, tmp_path / "index")
        uris = {document["id"] for document in lines(made.corpus)}
        asked = {uri for line in lines(made.questions) for uri in line.get("documents", ())}
        supporting = {uri for line in lines(made.gold) for uri in line.get("supporting", ())}
        assert asked <= uris and supporting <= uris and index.manifest["documents"] == len(uris)
    run = pyfast.answer(made.questions, llm="instant", system="direct", run=tmp_path / "run")
    report = pyfast.evaluate(run)  # gold.jsonl lies beside the questions
    assert report.rows[0].questions == made.count == len(list(read_questions(made.questions)))
    assert published_set(source) == name
    for refused in (source, source.parent):
        with pytest.raises(InputError, match=f"`pyfast data convert {name} "):
            pyfast.build_index([write(tmp_path / "a.txt", "A text."), refused], tmp_path / "other", strict=True)
    with pytest.raises(InputError, match=f"`pyfast data convert {name} "):
        pyfast.answer(source, llm="instant", system="direct")
    with pytest.raises(InputError, match=f"`pyfast data convert {name} "):
        pyfast.evaluate(run, source)
    for gold in (made.questions, made.gold, made.questions.parent):  # the folder has the corpus too
        with pytest.raises(InputError, match="like a question or its gold answers, not a document"):
            pyfast.build_index(gold, tmp_path / "other", strict=True)
    assert not (tmp_path / "other").exists()
    unread: list[Unread] = []
    pyfast.build_index([tmp_path / "a.txt", source], tmp_path / "other", on_unread=unread.append)
    assert any(it.missing and f"`pyfast data convert {name} " in it.reason for it in unread)


def test_by_hand(tmp_path: Path) -> None:
    def made(name: str) -> tuple[list[dict[str, Any]], ...]:
        found = pyfast.convert(name, layout(name, tmp_path / name), tmp_path / f"{name}-out")
        return lines(found.corpus), lines(found.questions), lines(found.gold)

    corpus, questions, gold = made("hotpotqa")
    assert corpus[0] == {"id": "Titan", "kind": "text", "title": "Titan", "text": "A moon. Found by Huygens."}
    assert questions == [{"id": "h1", "question": "Who discovered Titan?", "documents": ["Titan", "Rhea"]}]
    assert gold[0]["supporting_facts"] == [["Titan", 1]] and gold[0]["sentence_starts"]["Titan"] == [0, 7]
    corpus, _, gold = made("2wiki")
    assert corpus[0]["text"] == "A moon. By Huygens." and gold[0]["sentence_starts"]["Titan"] == [0, 8]
    corpus, questions, gold = made("musique")
    assert len({document["id"] for document in corpus}) == 2
    assert gold[0]["supporting"] == questions[0]["documents"][:1] and gold[0]["type"] == "2hop"
    assert gold[0]["answers"] == ["Huygens", "C. Huygens"]
    corpus, questions, gold = made("tatqa")
    assert corpus[0]["header"] == ["", "2019"] and corpus[0]["rows"] == [["Sales", "$1,452"]]
    assert [one["supporting"] for one in gold] == [["t", "p"], ["t"]] and gold[1]["answers"] == ["2904"]
    corpus, questions, gold = made("hybridqa")
    assert corpus[0]["links"] == {"0,0": ["/wiki/Titan_(moon)"]} and corpus[1]["title"] == "Titan (moon)"
    assert questions[0]["documents"] == ["Moons_0", "/wiki/Titan_(moon)", "/wiki/Discovery"]
    assert "documents" not in made("ottqa")[1][0]  # its questions are about the whole corpus
    corpus, questions, gold = made("metaqa")
    assert corpus[0]["triples"] == [["Alien", "directed_by", "Ridley Scott"], ["Alien", "release_year", "1979"]]
    assert questions[0]["question"] == "who directed Alien" and gold[0]["type"] == "1-hop"
    _, questions, gold = made("convmix")
    assert questions[0]["turns"][0]["answers"] == ["A. Author", "Ann Author"]
    assert gold[0]["turns"][0]["answer_src"] == "kb"


def test_convmix_without_evidence_says_what_to_index(tmp_path: Path, data: Path) -> None:
    """Of the published file: all its conversations with their gold, and none of its names as a document."""
    source = data / "convmix" / "raw" / "dev_sample.json"
    done = CliRunner().invoke(app, ["data", "convert", "convmix", str(source), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and "no text" in done.stdout and "dev_ers.jsonl" in done.stdout, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gold.jsonl", "questions.jsonl"]
    raw = json.loads(source.read_text(encoding="utf-8"))
    asked, gold = (lines(tmp_path / "out" / f"{name}.jsonl") for name in ("questions", "gold"))
    assert [[turn["question"] for turn in one["turns"]] for one in asked] == [
        [turn["question"] for turn in one["questions"]] for one in raw
    ]
    for mine, theirs in zip(turns(gold), (turn for one in raw for turn in one["questions"]), strict=True):
        assert mine["entities"] == theirs["entities"] and mine["answers"][0] == theirs["answer_text"]
        assert {answer["label"] for answer in theirs["answers"]} <= set(mine["answers"])


def test_evidence_of_convmix_is_a_corpus(tmp_path: Path) -> None:
    """As CONVINSE writes it: one conversation a line, its turns with what was retrieved for them."""
    entity = {"id": "Q1", "label": "Ann Author"}
    texts = ["Ann Author, notable work, Titan", "Ann Author was born in 1950.", "Ann Author, notable work, Titan"]
    evidence = [
        {"evidence_text": text, "source": "kb", "retrieved_for_entity": entity, "wikidata_entities": [entity]}
        for text in texts
    ]
    turn = {**CONVMIX["questions"][0], "question": "When was the author of Titan born?"}
    conversations = [
        {"conv_id": n, "questions": [{**turn, "question_id": f"{n}-1", "top_evidences": evidence[n:]}]}
        for n in range(2)
    ]
    written = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
    source = write(tmp_path / "ers" / "dev_ers.jsonl", written)
    assert published_set(source) == "convmix"
    for refused in (source, source.parent):
        with pytest.raises(InputError, match="`pyfast data convert convmix "):
            pyfast.build_index(refused, tmp_path / "other", strict=True)
    made = pyfast.convert("convmix", source.parent, tmp_path / "out")
    assert made.documents == 2 and made.count == 2
    assert [(one["title"], one["text"]) for one in lines(made.corpus)] == [
        ("Ann Author", text) for text in texts[:2]
    ]
    assert made.corpus is not None and len({one["id"] for one in lines(made.corpus)}) == 2
    index = pyfast.build_index(made.corpus, tmp_path / "index")
    run = pyfast.answer(made.questions, index=index, llm="instant", system="rag", run=tmp_path / "run")
    assert {item.uri for record in run.records for item in record.evidence} == {
        one["id"] for one in lines(made.corpus)
    }
    assert pyfast.evaluate(run).rows[0].questions == 2


RAW = {
    "hotpotqa": ("raw/hotpot_train_sample.json", "questions.train.jsonl", 100),
    "2wiki": ("raw/dev_sample.json", "questions.jsonl", 60),
    "musique": ("raw", "questions.train.jsonl", 100),
    "hybridqa": ("raw", "questions.jsonl", 40),
    "metaqa": ("raw", "questions.jsonl", 240),
    "tatqa": ("raw", "questions.jsonl", 100),
    "convmix": ("raw", "conversations.jsonl", 100),
}


@pytest.mark.parametrize("name", RAW)
def test_real_samples_are_as_somebody_else_normalised_them(name: str, tmp_path: Path, data: Path) -> None:
    source, normalised, least = RAW[name]
    made = pyfast.convert(name, data / name / source, tmp_path / "out")
    assert made.count >= least
    texts = {line["id"]: line.get("text") for line in lines(made.corpus)}
    key = "id" if name == "convmix" else "question"
    known = {line[key]: line for line in turns(lines(data / name / normalised))}
    gold = {line["id"]: line for line in turns(lines(made.gold))}
    same = 0
    for asked in turns(lines(made.questions)):
        other = known.get(asked[key])
        if other is None:
            continue
        same += 1
        assert set(gold[asked["id"]]["answers"]) & set(other["answers"]), asked
        if name in ("hotpotqa", "2wiki"):
            assert set(gold[asked["id"]]["supporting"]) == set(other["supporting"])
        if name == "musique" and other.get("supporting"):
            assert len(gold[asked["id"]]["supporting"]) == len(other["supporting"])
        if name == "tatqa":
            assert gold[asked["id"]]["scale"] == other["scale"]
    assert same >= least // 2
    if name in ("hotpotqa", "2wiki"):
        others = {line["id"]: line["text"] for line in lines(data / name / "corpus.jsonl")}
        assert sum(texts[uri] == others.get(uri) for uri in texts) > 0.9 * len(texts)


def turns(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [turn for line in found for turn in line.get("turns", [line])]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("hotpotqa", '[{"question": "Who?"}]', "1: expected an object with the keys question, _id, context; "
         "found an object with the keys question; for hotpotqa, pass a source such as hotpot_dev_dist"),
        ("tatqa", '{"a": 1}', "a list of records, found an object with the keys a; .* tatqa_dataset_dev.json"),
        ("triviaqa", '{"a": 1}', "expected a list of records, found an object with the keys a; "),
        ("2wiki", "[7]", "record 1: expected an object with the keys .*; found 7; for 2wiki, pass"),
        ("popqa", "id\tquestion\n", "the columns id, question and possible_answers; found id, question; for"),
        ("popqa", "", "the columns id, question and possible_answers; found an empty file; for popqa, pass"),
        ("metaqa", "hello", "kb.txt, .* must be in the same folder .*; for metaqa, pass a source such as qa_"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_what_it_has(name: str, content: str, told: str, tmp_path: Path) -> None:
    source = tmp_path / "a" / "b" / "c" / "file.json"
    source.parent.mkdir(parents=True)
    source.write_text(content)
    with pytest.raises(InputError, match=f"file.json[:,] .*{told}"):
        pyfast.convert(name, source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_data_set_has_an_example_of_its_source() -> None:
    """Those of the docs."""
    rows = (Path(__file__).resolve().parents[2] / "docs/data.md").read_text(encoding="utf-8").splitlines()
    documented = {row.split("`")[1]: row for row in rows if row.startswith("| `")}
    for name in names():
        for word in re.findall(r"[\w/.-]+\.(?:jsonl?|tsv|txt)", _SOURCES[name]):
            assert word in documented[name], name


def test_what_is_of_another_layout_leaves_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "dev.json", [{**HOTPOT, "context": "none"}])
    with pytest.raises(InputError, match=r"record 1: `context`"):
        pyfast.convert("hotpotqa", source, tmp_path / "out")
    with pytest.raises(InputError, match="unknown data set 'squad'; known: hotpotqa, "):
        pyfast.convert("squad", source, tmp_path / "out")
    with pytest.raises(InputError, match="no such file"):
        pyfast.convert("hotpotqa", tmp_path / "missing", tmp_path / "out")
    with pytest.raises(InputError, match="contains no questions"):
        pyfast.convert("hotpotqa", write(tmp_path / "none.json", []), tmp_path / "out")
    with pytest.raises(
        InputError,
        match="WikiTables-WithLinks, which contains the tables and passages, must be in the same folder",
    ):
        pyfast.convert("hybridqa", write(tmp_path / "x" / "y" / "z" / "dev.json", [HYBRID]), tmp_path / "out")
    write(tmp_path / "two" / "a.json", [HOTPOT])
    shutil.copy(tmp_path / "two" / "a.json", tmp_path / "two" / "b.json")
    with pytest.raises(InputError, match=r"found a\.json, b\.json; pass the path of one"):
        pyfast.convert("hotpotqa", tmp_path / "two", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pyfast.convert("hotpotqa", tmp_path / "two" / "a.json", tmp_path / "out")
    with pytest.raises(InputError, match="already exists"):
        pyfast.convert("hotpotqa", tmp_path / "two" / "a.json", tmp_path / "out")


def test_documents_of_one_title_with_two_texts_are_two(tmp_path: Path) -> None:
    other = {**HOTPOT, "_id": "h2", "context": [["Titan", ["A film."]]], "supporting_facts": [["Titan", 0]]}
    made = pyfast.convert("hotpotqa", write(tmp_path / "dev.json", [HOTPOT, other]), tmp_path / "out")
    assert [line["id"] for line in lines(made.corpus)] == ["Titan", "Rhea", "Titan (2)"]
    assert lines(made.gold)[1]["supporting_facts"] == [["Titan (2)", 0]]
    assert lines(made.questions)[1]["documents"] == ["Titan (2)"]


def test_a_document_about_questions_stays_one(tmp_path: Path) -> None:
    """A frequently asked question may be a document: it says so."""
    asked = {"id": "1", "question": "Who?", "answer": "Huygens"}
    write(tmp_path / "faq.jsonl", json.dumps({**asked, "kind": "text", "text": "Who? Huygens."}))
    assert pyfast.build_index(tmp_path / "faq.jsonl", tmp_path / "index").manifest["documents"] == 1
    write(tmp_path / "table.jsonl", json.dumps({"question": "Who?", "votes": 3}))
    pyfast.build_index(tmp_path / "table.jsonl", tmp_path / "table")


@pytest.mark.parametrize("of", ["hotpotqa", "musique"])
def test_hipporags_corpora(of: str, tmp_path: Path) -> None:
    """One corpus for all questions; gold passages by title, and by text where a title has several."""
    found = "A moon. Found by Huygens." if of == "hotpotqa" else "Found by Huygens."
    passages = [{"title": "Titan", "text": "Another one."}, {"title": "Titan", "text": found}]
    passages += [{"title": "Rhea", "text": "It is a moon.", "idx": 7}, {"title": "Rhea", "text": "It is a moon."}]
    source = write(tmp_path / "data" / f"{of}_corpus.json", passages)
    write(tmp_path / "data" / f"{of}.json", [HOTPOT if of == "hotpotqa" else MUSIQUE])
    for given in (source, source.parent):
        made = pyfast.convert("hipporag", given, tmp_path / f"out-{given.name}")
        assert made.documents == 3 and made.count == 1
        (gold,) = lines(made.gold)
        (document,) = [line for line in lines(made.corpus) if line["id"] == gold["supporting"][0]]
        assert document["text"] == found and len(gold["supporting"]) == 1
    index = pyfast.build_index(made.corpus, tmp_path / "index")
    report = pyfast.evaluate_retrieval(index, [{"id": gold["id"], "question": "Huygens"}], gold=[gold])
    assert report.settings["retriever=bm25"].rows[0]["recall@2"].value == 1
    assert len(pyfast.evaluate_retrieval(index, made.questions).settings) == 1  # gold.jsonl lies beside them
    write(source, passages[2:])
    with pytest.raises(InputError, match="the gold evidence 'Titan' is not a passage"):
        pyfast.convert("hipporag", source, tmp_path / "other")
    with pytest.raises(InputError, match="expected a file NAME"):
        pyfast.convert("hipporag", source.with_name(f"{of}.json"), tmp_path / "other")


def test_the_folder_of_the_questions_itself_can_be_passed(tmp_path: Path) -> None:
    file = layout("hybridqa", tmp_path / "raw")
    for number, source in enumerate((file, file.parent, tmp_path / "raw")):
        made = pyfast.convert("hybridqa", source, tmp_path / str(number))
        assert [one["id"] for one in lines(made.questions)] == ["h"]
