"""`pyfast.verify` finds everything that has changed since it was written, and nothing else."""

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_server import allow, counts, hostile
from knowing import know
from processes import Session, pyfast

from pyfast import add_documents, answer, build_index, compact_index, open_index, verify
from pyfast.api.verification import Verification
from pyfast.engine.configuration import read_configuration, write_configuration
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.utils.text_forms import counted


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, small: Index) -> Path:
    """A run that is done, with questions of its own and more lines than a frame of traces."""
    folder = tmp_path_factory.mktemp("verify") / "run"
    answer(
        [f"Which planet does {i} circle?" for i in range(200)],
        index=small,
        llm="instant",
        system="rag",
        run=folder,
    )
    return folder


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "run"))


def failed(found: Verification) -> list[str]:
    assert found.passed == all(check.passed for check in found.checks)
    assert all("\n" not in f"{check.name}{check.detail}" for check in found.checks)
    return [check.name for check in found.checks if not check.passed]


def test_a_run_that_is_done_is_whole(done: Path) -> None:
    before = {path.name: path.read_bytes() for path in done.iterdir() if path.suffix != ".sqlite-shm"}
    found = verify(done)
    assert failed(found) == [] and found.kind == "run"
    names = ["run.toml", "questions.jsonl", "journal.sqlite", "answers.jsonl", "traces.jsonl.zst"]
    assert [check.name for check in found.checks] == names
    assert "200 of 200" in found.checks[3].detail and "200 completions, 200 questions" in found.checks[2].detail
    assert found.summary == f"{done}: run, 5 checks: undamaged"
    assert all((done / name).read_bytes() == content for name, content in before.items())


def script(statement: str) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        database = sqlite3.connect(run / "journal.sqlite")
        assert database.execute(statement).rowcount != 0
        database.commit()
        database.close()

    return harm


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def harm(run: Path) -> None:
        before = (run / name).read_bytes()
        after = change(before)
        assert after != before
        (run / name).write_bytes(after)

    return harm


def other_model(run: Path) -> None:
    described = read_configuration(run / "run.toml")
    write_configuration(run / "run.toml", {**described, "llm": {**described["llm"], "fingerprint": "another"}})


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def swapped(content: bytes) -> bytes:
    first, second, *rest = content.splitlines(keepends=True)
    return b"".join([second, first, *rest])


ANSWERS, JOURNAL, TRACES = "answers.jsonl", "journal.sqlite", "traces.jsonl.zst"
STATE = b'"state":"answered"', b'"state":"failed"', 1
HARM: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "an edited answer": (edit(ANSWERS, lambda it: it.replace(b'"answer":"', b'"answer":"x', 1)), [ANSWERS]),
    "an edited state": (edit(ANSWERS, lambda it: it.replace(*STATE)), [ANSWERS]),
    "two lines in each other's place": (edit(ANSWERS, swapped), [ANSWERS]),
    "a line too many": (edit(ANSWERS, lambda it: it + it.splitlines(keepends=True)[0]), [ANSWERS, TRACES]),
    "something behind the last line": (edit(ANSWERS, lambda it: it + b"x"), [ANSWERS]),
    "answers that are gone": (edit(ANSWERS, lambda it: b"".join(it.splitlines(True)[:150])), [ANSWERS]),
    "a bit of the traces": (edit(TRACES, flip), [TRACES]),
    "traces that are gone": (lambda run: (run / TRACES).unlink(), [TRACES]),
    "another question": (edit("questions.jsonl", lambda it: it.replace(b"planet", b"s", 1)), ["questions.jsonl"]),
    "another model": (other_model, [JOURNAL]),
    "a completion": (
        script("UPDATE completions SET entry = replace(entry, 'stop', 'stopp') WHERE question = 7"),
        [JOURNAL],
    ),
    "another question's": (script("UPDATE completions SET question = 8 WHERE question = 7"), [JOURNAL]),
    "a digest": (script("UPDATE questions SET line = '0123456789abcdef' WHERE number = 3"), [ANSWERS]),
    "a question that is not there": (script("DELETE FROM questions WHERE number = 3"), [ANSWERS, TRACES]),
    "the cost of a question": (
        script("UPDATE questions SET ledger = substr(ledger, 1, 80) WHERE number = 3"),
        [JOURNAL],
    ),
    "a negative cost": (
        script("UPDATE questions SET ledger = replace(ledger, '_tokens\":', '_tokens\":-') WHERE number = 3"),
        [JOURNAL],
    ),
    "a state that is none": (script("UPDATE questions SET state = 'fine' WHERE number = 3"), [JOURNAL]),
    "a journal that is gone": (lambda run: (run / JOURNAL).unlink(), [JOURNAL, ANSWERS, TRACES]),
    "a view": (script("CREATE VIEW v AS SELECT 1"), [JOURNAL, ANSWERS, TRACES]),
    "a broken run.toml": (edit("run.toml", lambda it: b"["), ["run.toml"]),
}


@pytest.mark.parametrize(("harm", "names"), HARM.values(), ids=HARM)
def test_what_is_not_as_it_was_written_is_found(run: Path, harm: Callable[[Path], None], names: list[str]) -> None:
    harm(run)
    found = verify(run)
    assert failed(found) == names
    assert found.summary == f"{run}: run, {counted(len(found.checks), 'check')}: damaged: {', '.join(names)}"


def test_a_killed_run_is_whole_and_can_be_verified_while_it_works(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(f'{{"id": "{i}", "question": "Who is {i}?"}}\n' for i in range(900)))
    with hostile("--allow", "0") as url:
        arguments = (questions, "--system", "direct", "--llm", f"openai:m@{url}", "--concurrency", 4)
        for kill in (True, True, False):
            allow(url, counts(url)["requests"] + 200)
            session = Session(tmp_path / "run", *arguments)
            before = session.lines()
            session.until(lambda session=session, before=before: session.lines() > before + 100)
            assert failed(verify(tmp_path / "run")) == []
            if kill:
                session.send(signal.SIGKILL)
            allow(url, 10**6)
            session.ended()
            found = verify(tmp_path / "run")
            assert failed(found) == [] and ("the same command resumes it" in found.checks[3].detail) == kill


def test_an_index(tmp_path: Path, examples: Path) -> None:
    index = tmp_path / "index"
    build_index(examples / "corpus", index)
    assert [check.name for check in verify(index).checks] == ["index", "documents"]
    know(Index(index))
    found = verify(index)
    assert failed(found) == [] and found.kind == "index"
    assert [check.name for check in found.checks] == ["index", "documents", "knowledge"]
    broken = {"knowledge/1/triples.sqlite": ["knowledge"], "parts/1/terms/text.bin": ["index", "knowledge"]}
    for name, names in broken.items():
        path = index / name
        path.write_bytes(flip(path.read_bytes()))
        assert failed(verify(index)) == names


def test_the_earlier_commits_of_an_index(tmp_path: Path) -> None:
    """Compacted, an index keeps the parts of the commits before."""
    index = tmp_path / "index"
    build_index([{"id": "a", "text": "Holm lies by a lake."}], index)
    add_documents(index, [{"id": "b", "text": "Odda lies by a fjord."}])
    compact_index(index)
    found = verify(index)
    assert failed(found) == [] and found.checks[0].detail.endswith("; 2 earlier commits")
    path = index / "parts" / "1" / "terms" / "text.bin"
    path.write_bytes(flip(path.read_bytes()))
    assert failed(verify(index)) == ["index"] and open_index(index).search("lake", 1)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch])
def test_what_is_neither(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x")
    with pytest.raises(InputError, match="neither an index nor a run folder"):
        verify(tmp_path / "x")


def test_the_command(run: Path) -> None:
    told = pyfast("verify", run, cwd=run)
    assert (told.returncode, told.stderr) == (0, "") and told.stdout == "".join(
        [*(f"ok    {check.name}: {check.detail}\n" for check in verify(run).checks), f"{verify(run).summary}\n"]
    )
    lines = (run / "answers.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = json.dumps({**json.loads(lines[4]), "usage": 5}).encode() + b"\n"
    (run / "answers.jsonl").write_bytes(b"".join(lines))
    told = pyfast("verify", run, cwd=run)
    assert told.returncode == 1 and told.stderr == ""
    assert "FAIL  answers.jsonl: 1 of 200 lines were changed, starting with line 5\n" in told.stdout
