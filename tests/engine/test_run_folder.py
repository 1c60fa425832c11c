"""The folder of a run: it resumes with what it was started with or not at all, for one process at a time."""

import contextlib
import fcntl
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from runs import DESCRIBED, Watched, answers, ask_about, direct, go, records

import pyfast
from pyfast.corpus import read
from pyfast.engine import Budget, Configuration, Job, Prompt, Questions, RunFolder, check_run, set_aside
from pyfast.engine import run_folder as folder_module
from pyfast.engine.run_folder import is_running
from pyfast.errors import InputError
from pyfast.llm import open_llm
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system
from pyfast.systems.prompts import ANSWER, PLAN, AnswerFields


class Other(Instant):
    @property
    def fingerprint(self) -> str:
        return "another model"


@pytest.fixture(scope="module")
def other_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("other")
    (folder / "a.txt").write_text("Titan circles Saturn.")
    return build_index(read([folder / "a.txt"]), folder / "index")


def begun_with(built: Index, **changes: Any) -> Configuration:
    """The configuration of a run of N2N, but for `changes`."""
    settings = load_system("n2n").configure(changes.pop("settings", {})).model_dump(mode="json")
    questions = changes.pop("questions", {"count": 9, "digest": "00ff"})
    usual: dict[str, Any] = {
        "folder": None,
        "questions": Questions(lambda: iter(()), place="q.jsonl", **questions),
        "system": "n2n",
        "ask": direct,
        "settings": settings,
        "prompts": (PLAN, ANSWER),
        "llm": open_llm("instant"),
        "index": built,
        "budget": Budget.parse(changes.pop("limits", {})),
        "places": {"index": "idx"},
    }
    return Job(**{**usual, **changes}).describe()


REWORDED = Prompt(ANSWER.name, ANSWER.system, ANSWER.user + " ", AnswerFields, ANSWER.max_tokens)
LONGER = Prompt(ANSWER.name, ANSWER.system, ANSWER.user, AnswerFields, ANSWER.max_tokens + 1)
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "setting": ({"settings": {"beta": "1"}}, ["system.set_beta was 0.2 and is now 1.0"]),
    "switch": ({"settings": {"graph": "off"}}, ["system.set_graph was True and is now False"]),
    "system": ({"system": "rag", "settings": {}}, ["system.name was n2n and is now rag"]),
    "model": ({"llm": Other()}, ["llm.fingerprint was instant:2 and is now another model"]),
    "window": ({"llm": Instant(context_window=99)}, ["llm.context_window was 1000000 and is now 99"]),
    "words of a prompt": ({"prompts": (PLAN, REWORDED)}, ["prompts.answer was "]),
    "length of an answer": ({"prompts": (PLAN, LONGER)}, ["prompts.answer was "]),
    "a prompt less": ({"prompts": (PLAN,)}, ["prompts.answer was ", " and is now not set"]),
    "budget of calls": ({"limits": {"calls": "9"}}, ["budget.calls was not set and is now 9"]),
    "budget of tokens": ({"limits": {"tokens": "9"}}, ["budget.tokens was not set and is now 9"]),
    "budget of steps": ({"limits": {"steps": "9"}}, ["budget.steps was not set and is now 9"]),
    "attempts": ({"limits": {"attempts": "9"}}, ["budget.attempts was 3 and is now 9"]),
    "number of questions": ({"questions": {"count": 8, "digest": "00ff"}}, ["questions.count was 9 and is now 8"]),
    "questions": ({"questions": {"count": 9, "digest": "00fe"}}, ["q.jsonl has changed since the run began"]),
    "no index": ({"index": None}, ["index.corpus was ", "index.contents was ", " and is now not set"]),
}


def ask_one(path: Path, described: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a run so described answer its first question."""
    monkeypatch.setattr("runs.DESCRIBED", described)
    go(path, direct, Watched(), ask_about(1))


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_it_goes_on_with_nothing_else(
    small: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], told: list[str]
) -> None:
    ask_one(tmp_path, begun_with(small), monkeypatch)
    check_run(tmp_path, begun_with(small))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for attempt in (check_run, RunFolder):
        with pytest.raises(InputError, match="was started with different values") as error:
            attempt(tmp_path, begun_with(small, **change))
        assert all(words in str(error.value) for words in told) and "\n" not in str(error.value)
        changed = str(error.value).split(": ", 1)[1].split("; ")
        assert {name.partition(".")[0] for name in changed} == {told[0].partition(".")[0]}  # and nothing else
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.guarantee("G2")
def test_another_index_or_other_code(small: Index, other_index: Index, tmp_path: Path, monkeypatch: Any) -> None:
    described = begun_with(small)
    ask_one(tmp_path, described, monkeypatch)
    with pytest.raises(
        InputError, match=r"index\.contents was \w+ and is now \w+; index\.corpus was \w+ and is now \w+\."
    ):
        check_run(tmp_path, begun_with(other_index))
    for table, name in (("code", "digest"), ("code", "version"), ("index", "parameters"), ("index", "contents")):
        changed = {**described, table: {**described[table], name: "x"}}
        with pytest.raises(InputError, match=rf"{table}\.{name} was .+ and is now x\."):
            check_run(tmp_path, changed)
    check_run(tmp_path, begun_with(small, llm=Instant(context_window=9)), unknown=["llm.context_window"])


def test_the_same_corpus_indexed_again_elsewhere_is_the_same(
    small: Index, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_one(tmp_path / "run", begun_with(small), monkeypatch)
    again = build_index(read([examples / "corpus"]), tmp_path / "index")
    moved = {"questions": "/else/q.jsonl", "index": "/else/idx", "llm": "openai:m@http://else"}
    check_run(tmp_path / "run", begun_with(again, places=moved))


@pytest.mark.parametrize(("change", "_"), CHANGES.values(), ids=CHANGES)
def test_before_anything_was_asked_all_may_change(
    small: Index, tmp_path: Path, change: dict[str, Any], _: object
) -> None:
    RunFolder(tmp_path, begun_with(small)).close()
    RunFolder(tmp_path, begun_with(small, **change)).close()
    check_run(tmp_path, begun_with(small, **change))
    RunFolder(tmp_path, begun_with(small)).close()


BROKEN: dict[str, str | bytes] = {"empty": "format_version = 1", "half": "[questions]\ncou", "no tables": "a = 1"}
BROKEN |= {"Latin-1": b"a = '\xe9'", "deep": "a=" + "[" * 9999}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_configuration_is_told_in_one_line(tmp_path: Path, content: str | bytes) -> None:
    go(tmp_path, direct, Watched(), ask_about(1))
    (tmp_path / "run.toml").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=r"run\.toml|started with") as error:
        RunFolder(tmp_path, DESCRIBED)
    assert "--restart" in str(error.value) and "\n" not in str(error.value)


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no count": lambda tables: tables["questions"].pop("count"),
    "count is text": lambda tables: tables["questions"].update(count="four"),
    "count is a truth value": lambda tables: tables["questions"].update(count=True),
    "count is below 0": lambda tables: tables["questions"].update(count=-1),
    "count is a table": lambda tables: tables["questions"].update(count={"is": 4}),
    "no digest": lambda tables: tables["questions"].pop("digest"),
    "digest is a number, and no places": lambda tables: tables.update(
        questions={"count": 4, "digest": 3}, places={}
    ),
    "no questions": lambda tables: tables.pop("questions"),
    "no questions and no places": lambda tables: (tables.pop("questions"), tables.pop("places")),
    "questions is a number": lambda tables: tables.update(questions=4),
    "questions is a list": lambda tables: tables.update(questions=[4]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_table_of_questions_is_one_error_and_loses_nothing(
    tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    folder = tmp_path / "run"

    def answer(number: int, **options: Any) -> pyfast.Run:
        asked = [f"Who is {place}?" for place in range(number)]
        chosen = pyfast.RunOptions(**options)
        return pyfast.answer(asked, llm="instant", system="direct", run=folder, options=chosen)

    answer(4)
    whole, written = (folder / "run.toml").read_text(), answers(folder)
    tables = tomllib.loads(whole)
    damage(tables)
    (folder / "run.toml").write_text(tomli_w.dumps(tables))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    looks: list[Callable[[], object]] = [lambda: answer(4), lambda: answer(6), lambda: answer(2)]
    looks += [lambda: pyfast.Run(folder).status, lambda: pyfast.evaluate(folder, [])]
    for look in looks:
        with pytest.raises(InputError, match=r"run\.toml is (damaged: the number|not a run config)") as error:
            look()
        assert "--restart" in str(error.value) and "\n" not in str(error.value)
    (failed,) = [check for check in pyfast.verify(folder).checks if not check.passed]
    assert failed.name == "run.toml"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "run.toml").write_text(whole)
    grown = answer(6)
    assert grown.session is not None and grown.session.llm_calls == 2
    assert answers(folder).startswith(written) and grown.status.states == {"answered": 6}
    (folder / "run.toml").write_text(tomli_w.dumps(tables))
    assert answer(4, restart=True).status.states == {"answered": 4}
    (old,) = [path for path in tmp_path.iterdir() if path != folder]
    assert answers(old).startswith(written)


# What stands in answers.jsonl when a run goes on

GARBAGE = [b"\n", b"[]\n", b"null\n", b"\xff\n", b'{"id": "q2"', b'{"id": ["q2"]}\n', b"\x00" * 9999, b'{"sta":\n']


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("retry_failed", [False, True])
@pytest.mark.parametrize("garbage", [b"", *GARBAGE], ids=range(len(GARBAGE) + 1))
@pytest.mark.parametrize("place", range(5))
def test_answers_are_taken_up_to_the_first_that_is_not_one(
    tmp_path: Path, place: int, garbage: bytes, retry_failed: bool
) -> None:
    go(tmp_path, direct, Watched(), ask_about(5))
    whole = answers(tmp_path)
    lines = whole.splitlines(keepends=True)
    (tmp_path / "answers.jsonl").write_bytes(b"".join([*lines[:place], garbage, *lines[place + 1 :]]))
    go(tmp_path, direct, llm := Watched(), ask_about(5), retry_failed=retry_failed)
    assert answers(tmp_path) == whole and llm.given == 0


def test_answers_in_another_order_are_put_in_order(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(), ask_about(9))
    whole = answers(tmp_path)
    lines = whole.splitlines(keepends=True)
    for order in ([0, 1, 4, 7], [8, 7, 6], [0, 0, 1], [*range(9), 8], [0, 1, 2, 4, 3, 5, 6, 7, 8]):
        (tmp_path / "answers.jsonl").write_bytes(b"".join(lines[i] for i in order))
        go(tmp_path, direct, llm := Watched(), ask_about(9))
        assert answers(tmp_path) == whole and llm.given == 0


def test_a_line_cut_anywhere(tmp_path: Path) -> None:
    go(tmp_path, direct, Watched(), ask_about(3))
    whole = answers(tmp_path)
    for length in range(0, len(whole), 7):
        with contextlib.closing(RunFolder(tmp_path, DESCRIBED)) as folder:
            (tmp_path / "answers.jsonl").write_bytes(whole[:length])
            assert folder.answered(ask_about(3)) == whole[:length].count(b"\n")
        kept = answers(tmp_path)
        assert whole.startswith(kept) and kept.count(b"\n") == whole[:length].count(b"\n")


def test_answers_without_a_configuration_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_bytes(b'{"id": "precious"}\n')
    for attempt in (check_run, RunFolder):
        with pytest.raises(InputError, match=r"contains answers but no run\.toml"):
            attempt(tmp_path, DESCRIBED)
    assert set_aside(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]
    assert answers(tmp_path) == b'{"id": "precious"}\n'


# One process at a time

HOLD = f"""
import sys, time
from pathlib import Path
from pyfast.engine import RunFolder
folder = RunFolder(Path(sys.argv[1]), {DESCRIBED})
print("has it", flush=True)
time.sleep(600)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run folder with answers, and the process that works on it."""
    go(tmp_path / "run", direct, Watched(), ask_about(3))
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "has it\n"
        yield tmp_path / "run", process
        process.kill()


@pytest.mark.guarantee("G1")
def test_a_second_process_is_refused(held: tuple[Path, subprocess.Popen[str]]) -> None:
    path, process = held
    before = answers(path)
    with pytest.raises(InputError, match="another process is working on the run"):
        RunFolder(path, DESCRIBED)
    with pytest.raises(InputError, match="another process is working on the run"):
        set_aside(path)
    assert is_running(path) and answers(path) == before and path.is_dir()
    process.kill()
    process.wait()
    assert not is_running(path)
    go(path, direct, llm := Watched(), ask_about(3))
    assert llm.given == 0 and answers(path) == before


def test_one_who_looks_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pyfast status` holds the lock for an instant; it lets go while the run waits."""
    go(tmp_path, direct, Watched(), ask_about(3))
    with (tmp_path / "answers.jsonl").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(folder_module.time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
        RunFolder(tmp_path, DESCRIBED).close()


def test_a_folder_that_was_set_aside_meanwhile_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for the lock of a folder must not get it with another folder in its place."""
    path, aside = tmp_path / "run", tmp_path / "run.old-1"
    go(path, direct, Watched(), ask_about(3))
    new: list[RunFolder] = []
    with (path / "answers.jsonl").open("rb") as holding:
        fcntl.flock(holding, fcntl.LOCK_EX)

        def restart(_: float) -> None:
            """What `--restart` does in another process."""
            if not new:
                path.rename(aside)
                fcntl.flock(holding, fcntl.LOCK_UN)
                new.append(RunFolder(path, DESCRIBED))

        monkeypatch.setattr(folder_module.time, "sleep", restart)
        with pytest.raises(InputError, match="another process has moved the run"):
            RunFolder(path, DESCRIBED)
    new[0].close()


def test_set_aside_takes_the_next_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 3):
        go(tmp_path / "run", direct, Watched(), ask_about(number))
        assert set_aside(tmp_path / "run") == tmp_path / f"run.old-{number}"
        assert len(records(tmp_path / f"run.old-{number}")) == number
    assert set_aside(tmp_path / "run") is None
    go(tmp_path / "run", direct, Watched(), ask_about(1))
    monkeypatch.chdir(tmp_path / "run")
    assert set_aside(Path(".")) == tmp_path / "run.old-4"
