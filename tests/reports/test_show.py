"""One question as text, and as a file of its own."""

import json
from pathlib import Path

import pytest
from test_report import HOSTILE, QUESTIONS, Page
from typer.testing import CliRunner

import pyfast
from pyfast.cli import app
from pyfast.errors import InputError
from pyfast.reports import wrong_questions
from pyfast.retrieval import Index


@pytest.fixture(scope="module")
def place(small: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions and a run of n2n."""
    folder = tmp_path_factory.mktemp("shown")
    lines = [json.dumps(one) + "\n" for one in [*QUESTIONS, HOSTILE]]
    (folder / "questions.jsonl").write_text("".join(lines), encoding="utf-8")
    pyfast.answer(folder / "questions.jsonl", index=small, llm="instant", system="n2n", run=folder / "run")
    return folder


def test_the_text_has_what_the_record_has(place: Path) -> None:
    run = pyfast.Run(place / "run")
    record, text = run.records[0], pyfast.show(place / "run", "q0")
    assert str(record.answer) in text and QUESTIONS[0]["question"] in text and "Gold      Titan" in text
    assert all(hop["query"] in text for hop in record.trace["hops"])
    calls = run.prompts("q0")
    assert text.count("LLM call ") == len(calls)
    assert calls[0].messages is not None and calls[0].messages[0].content not in text
    whole = pyfast.show(run, "q0", prompts=True)
    for call in calls:
        assert call.completion is not None and call.completion.text in whole
        for message in call.messages or ():
            assert all(line in whole for line in message.content.splitlines())


def test_gold_passages_in_the_text(place: Path) -> None:
    run = pyfast.Run(place / "run")
    for question in QUESTIONS:
        id = str(question["id"])
        record = next(one for one in run.records if one.id == id)
        reached = any(one.uri == "passages/titan.md" for one in record.evidence)
        text = pyfast.show(run, id)
        assert ("  ok    passages/titan.md" in text) == reached == ("  LOST  passages/titan.md" not in text)


def test_the_wrong_ones(place: Path) -> None:
    report = pyfast.evaluate(place / "run")
    expected = {one.id for one in report.questions if one.figures["em"] != 1}
    assert set(wrong_questions(place / "run")) == expected and expected
    runner = CliRunner()
    done = runner.invoke(app, ["show", str(place / "run"), "--wrong"])
    assert done.exit_code == 0 and all(f"{id}: answered" in done.stdout for id in expected)
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)  # of the hostile question too


def test_bad_input(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no question 'nobody' has ended"):
        pyfast.show(place / "run", "nobody")
    (tmp_path / "thesis.html").write_text("<html>mine</html>")
    with pytest.raises(InputError, match="is not the page of a question"):
        pyfast.report(place / "run", tmp_path / "thesis.html", single="q0")
    with pytest.raises(InputError, match="no question 'nobody' has ended"):
        pyfast.report(place / "run", tmp_path / "q.html", single="nobody")
    assert not (tmp_path / "q.html").exists()


def test_a_single_question_is_one_file(place: Path, tmp_path: Path) -> None:
    """Nothing to load, and what a question says ends no script."""
    path = pyfast.report(place / "run", tmp_path / "q.html", single="h")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.tags if tag in ("script", "style", "link")] == [
        *("link", "style", "script", "script", "script")
    ]
    assert not [a for _, a in page.tags if a.get("src") or a.get("href") not in (None, "data:,")]
    data = text.split('id="question">')[1].split("</script>")[0]
    assert json.loads(data)["question"] == HOSTILE["question"] and "<" not in data
    assert pyfast.report(place / "run", path, single="q0") == path  # it replaces its own
