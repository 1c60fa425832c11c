"""Strings are paths, one string is one query; questions in the files that people have."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import pyfast
from pyfast.engine.question_files import tidy

ROOT = Path(__file__).resolve().parents[2]
ASKED = [{"id": 1, "question": "Who found Titan?", "answers": "Huygens"}, {"id": 2, "question": "When?"}]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> pyfast.Index:
    folder = tmp_path_factory.mktemp("strings")
    (folder / "a.txt").write_text(
        "Huygens discovered Titan in 1655.\n\nCassini discovered Rhea.", encoding="utf-8"
    )
    return pyfast.build_index(str(folder), str(folder / "IDX"))


def test_a_string_is_one_query(index: pyfast.Index) -> None:
    (alone,) = index.search("Rhea", 1)
    (listed,) = index.search(["Rhea"], 1)
    assert alone.passages.tolist() == listed.passages.tolist() == [1]


def test_a_string_is_one_question(index: pyfast.Index) -> None:
    run = pyfast.answer("Who found Titan?", index=str(index.folder), llm="instant", system="rag")
    assert [row["question"] for row in run.to_arrow().to_pylist()] == ["Who found Titan?"]


def files(folder: Path) -> dict[str, str]:
    lines = "".join(json.dumps(line) + "\n" for line in ASKED)
    (folder / "q.jsonl").write_text(lines, encoding="utf-8")
    (folder / "q.csv").write_bytes(
        'id;question;answers\n1;"Who found Titan?";["Huygens"]\n2;When?;\n'.encode("utf-16")
    )
    parquet.write_table(pa.Table.from_pylist(ASKED), folder / "q.parquet")
    return {name: str(folder / name) for name in ("q.jsonl", "q.csv", "q.parquet")}


@pytest.mark.parametrize("name", ["q.jsonl", "q.csv", "q.parquet"])
def test_files_of_questions_by_their_paths_as_strings(index: pyfast.Index, tmp_path: Path, name: str) -> None:
    path = files(tmp_path)[name]
    run = pyfast.answer(path, index=index, llm="instant", system="rag", run=str(tmp_path / "run"))
    assert [record.id for record in run.records] == ["1", "2"]
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps(ASKED[0]) + "\n", encoding="utf-8")
    assert pyfast.evaluate(str(tmp_path / "run"), str(gold)).rows[0].questions == 1


def test_numbers_and_single_answers_are_taken() -> None:
    turns = {"id": 7, "turns": [{"id": 8, "question": "x", "answers": "y"}]}
    assert tidy(turns) == {"id": "7", "turns": [{"id": "8", "question": "x", "answers": ["y"]}]}
    assert tidy({"id": True})["id"] is True


def test_every_variable_is_documented() -> None:
    pattern = re.compile(r'environ(?:\.get\(|\[)"([A-Z_]+)"|_VARIABLE = "([A-Z_]+)"')
    sources = [*(ROOT / "pyfast").rglob("*.py"), ROOT / "setup.py"]
    found = {
        name for path in sources for pair in pattern.findall(path.read_text(encoding="utf-8")) for name in pair
    }
    found -= {"", "CC", "CXX", "CFLAGS", "CXXFLAGS", "ARCHFLAGS"}
    documented = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/python.md").read_text(encoding="utf-8")))
    assert len(found) > 5 and found <= documented, found - documented
