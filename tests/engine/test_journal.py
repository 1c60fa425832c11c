"""The journal: what was committed comes back as it was, or not at all, whatever happened to its file."""

import contextlib
import random
import resource
import shutil
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.engine.journal.journal import (
    Journal,
    Key,
    Outcome,
    completion_row,
    has_calls,
    open_to_read,
    reading,
    row_of_question,
    sound,
)
from pyfast.errors import AnswerError, CallError, InputError, RunError
from pyfast.llm import Completion

TEXTS = ["", "Io", "\x00", "a\u2028b\x85\r\n", "\N{DROMEDARY CAMEL}é", '"\\\'"], [1, null', "x" * 5_000_000]


def same(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, Completion):
        return one == other
    return type(one) is type(other) and str(one) == str(other)


def keep(journal: Journal, number: int, *outcomes: Outcome) -> None:
    journal.commit([completion_row(number, ("ab", n), outcome) for n, outcome in enumerate(outcomes)], [])


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_was_kept_comes_back(tmp_path: Path, text: str) -> None:
    said: list[Outcome] = [
        Completion(text, "stop", 7, 5, 3),
        CallError(text),
        AnswerError(text),
        Completion("", text),
    ]
    journal = Journal(tmp_path / "j")
    keep(journal, 3, *said)
    keep(journal, 4, Completion("another's", "stop"))
    journal.close()
    found = Journal(tmp_path / "j").past(3)[0]
    assert list(found) == [("ab", 0), ("ab", 1), ("ab", 2), ("ab", 3)]
    assert all(same(found["ab", n], outcome) for n, outcome in enumerate(said))


@given(st.text(), st.text(), st.lists(st.integers(0, 2**32), min_size=3, max_size=3))
def test_any_text_comes_back_or_is_refused_alone(text: str, reason: str, tokens: list[int]) -> None:
    with TemporaryDirectory() as folder, contextlib.closing(Journal(Path(folder, "j"))) as journal:
        keep(journal, 0, Completion(text, reason, *tokens))
        assert journal.past(0)[0] == {("ab", 0): Completion(text, reason, *tokens)}
        assert journal.tokens() == tokens[0] + tokens[2]
        with pytest.raises(CallError, match="not valid text"):
            completion_row(0, ("ab", 1), Completion(text + "\udc80", "stop"))


def test_rows_of_earlier_versions_have_no_seconds(tmp_path: Path) -> None:
    """Rows as they were before: 9 fields, or 10 with reasoning tokens, and a checksum."""
    said = [("s", "stop", 7, 5, 3), ("s", "stop", 7, 5, 3, 2)]
    rows = [orjson.dumps((0, "ab", n, None, *fields)) for n, fields in enumerate(said)]
    journal = Journal(tmp_path / "j")
    journal.commit([b"%b,%d]" % (row[:-1], crc32(row)) for row in rows], [])
    assert journal.past(0)[2] == 0 and list(journal.past(0)[0].values()) == [Completion(*one) for one in said]
    journal.commit([completion_row(0, ("ab", n), CallError("no"), float(n)) for n in (2, 4, 3)], [])
    assert journal.past(0)[2] == 4 and len(journal.past(0)[0]) == 5
    # Times that cannot be true, although their checksum is right: in microseconds, they would be infinite.
    journal.commit(
        [completion_row(0, ("ab", n), CallError("no"), wrong) for n, wrong in ((5, 1e308), (6, -1.0))], []
    )
    assert journal.past(0)[2] == 4 and len(journal.past(0)[0]) == 5
    journal.close()


def test_questions_are_counted_once_as_they_ended_last(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    rows = [row_of_question(n, f"q\x00{n}", "failed" if n % 3 else "answered", "é\x00", {}) for n in range(9)]
    journal.commit([], [row_of_question(0, "q0", "failed", "late", {})])
    journal.commit([], rows)
    assert journal.counts() == {"failed": 6, "answered": 3}
    assert journal.counts(4) == {"failed": 2, "answered": 2}
    keep(journal, 0, Completion("a", "stop"))
    keep(journal, 1, Completion("b", "stop"))
    journal.forget(journal.failed())
    assert journal.counts() == {"answered": 3}
    assert (len(journal.past(0)[0]), len(journal.past(1)[0])) == (1, 0)


def test_a_group_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.start_session()
    database = sqlite3.connect(tmp_path / "j")
    database.execute("CREATE TRIGGER no BEFORE INSERT ON questions BEGIN SELECT RAISE(ABORT, 'no room'); END")
    database.close()
    rows = [completion_row(0, ("ab", n), Completion("x", "stop")) for n in range(5)]
    with pytest.raises(RunError, match="j: no room"):
        journal.commit(rows, [row_of_question(0, "q", "answered", None, {})])
    assert journal.past(0)[0] == {} and journal.is_empty()
    journal.commit(rows, [])
    assert len(journal.past(0)[0]) == 5


@contextlib.contextmanager
def no_room_beyond(size: int):
    """No file of this process may grow beyond `size` bytes: as a full disk, for SQLite."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [0, 1, 4096, 10_000, 40_000])
def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path, size: int) -> None:
    path, kept = tmp_path / "j", 0
    with no_room_beyond(size), pytest.raises(RunError, match="j: "), contextlib.closing(Journal(path)) as journal:
        journal.start_session()
        while True:
            keep(journal, kept, Completion("x" * 500, "stop"))
            kept += 1
    with no_room_beyond(0), pytest.raises(RunError), contextlib.closing(Journal(path)) as journal:
        journal.start_session()  # still full
    with contextlib.closing(Journal(path)) as journal:
        assert journal.salvaged is None
        assert [len(journal.past(n)[0]) for n in range(kept + 1)] == [1] * kept + [0]


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.start_session()
    with contextlib.closing(open_to_read(tmp_path / "j")) as reader:
        for n in range(50):
            keep(journal, n, Completion("x", "stop"))
            assert reader.execute("SELECT count(*) FROM completions").fetchone() == (n + 1,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM completions")


@pytest.mark.parametrize("content", [None, b"no database", b"\x00" * 5000])
def test_what_is_no_journal_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "j").write_bytes(content)
    with pytest.raises(InputError, match="j: "):
        open_to_read(tmp_path / "j")


# What happens to files on a bad disk. A journal that was closed is one file; a killed process leaves two more.

QUESTIONS = 150


def said(number: int) -> dict[Key, Outcome]:
    spoken: dict[Key, Outcome] = {
        (f"{number:032x}", nth): Completion(f"answer {number} {nth} " * 9, "stop", number, 0, nth)
        for nth in range(3)
    }
    return {**spoken, ("ff", 0): CallError(f"no answer to {number}")}


@pytest.fixture(scope="module", params=["closed", "killed"])
def journal_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal `j`, as it is left by a session that was closed, and by a second one that perhaps was killed."""
    folder = tmp_path_factory.mktemp("journal")
    (folder / "lived").mkdir()
    for session in range(2):
        journal = Journal(folder / "lived" / "j")
        journal.start_session()
        for number in range(session, QUESTIONS, 2):
            rows = [completion_row(number, key, outcome) for key, outcome in said(number).items()]
            journal.commit(rows, [row_of_question(number, f"q{number}", "answered", None, {"stages": {}})])
        if (session, request.param) != (1, "killed"):
            journal.close()
    shutil.copytree(folder / "lived", folder / "left")
    journal.close()
    return folder / "left"


def truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 10, 1000])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def overwritten(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    middle = chance.randbytes(chance.choice([1, 100, 4096, 20_000]))
    return content[:start] + middle + content[start + len(middle) :]


def zeroed(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content)) // 4096 * 4096
    return content[:start] + bytes(4096) + content[start + 4096 :]


def header_flipped(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(100)
    return content[:at] + chance.randbytes(1) + content[at + 1 :]


def gone(content: bytes, chance: random.Random) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [truncated, flipped, overwritten, zeroed, header_flipped, gone])
def test_a_damaged_file_gives_what_it_still_has_and_nothing_else(
    journal_folder: Path, tmp_path: Path, damage: object
) -> None:
    found = 0
    for seed in range(1 if damage is gone else 15):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(journal_folder, folder)
        hurt = chance.choice(sorted(folder.iterdir()))
        hurt.write_bytes(damage(hurt.read_bytes(), chance))  # type: ignore[operator]
        with contextlib.closing(Journal(folder / "j")) as journal:
            for number in range(QUESTIONS):
                expected = said(number)
                for key, outcome in journal.past(number)[0].items():
                    assert same(outcome, expected[key]), f"seed {seed}: {outcome!r} is wrong"
                    found += 1
            journal.start_session()
            journal.tokens()
            keep(journal, QUESTIONS, Completion("and on", "stop"))
            assert len(journal.past(QUESTIONS)[0]) == 1
            if journal.salvaged is not None:
                assert journal.salvaged.parent == folder and journal.salvaged.name == "j.damaged-1"
        with contextlib.closing(Journal(folder / "j")) as journal:  # and it is whole now
            assert journal.salvaged is None and len(journal.past(QUESTIONS)[0]) == 1
        shutil.rmtree(folder)
    if damage is not gone:
        print(f"{damage.__name__}: {found / seed / QUESTIONS / 4:.0%} of the completions came back")  # type: ignore[attr-defined]
        assert found > 0


def test_questions_without_their_key_are_not_counted_anew(tmp_path: Path) -> None:
    """A bit of the definition has changed, so that SQLite no longer knows the numbers of the questions."""
    path = tmp_path / "j"
    with contextlib.closing(Journal(path)) as journal:
        for number in range(3):
            journal.commit([], [row_of_question(number, f"q{number}", "answered", None, {})])
    content = path.read_bytes()
    assert content.count(b"number INTEGER PRIMARY KEY") == 1
    path.write_bytes(content.replace(b"number INTEGER PRIMARY KEY", b"number INTEGER PRIMARY_KEY"))
    with contextlib.closing(Journal(path)) as journal:
        assert journal.salvaged is not None and not journal.counts()
        journal.commit([], [row_of_question(0, "q0", "answered", None, {})])
        assert journal.counts() == {"answered": 1}


def test_a_changed_definition_is_damage(tmp_path: Path) -> None:
    """With one bit changed, most definitions are still valid: a column has another name, or a table."""
    path = tmp_path / "j"
    with contextlib.closing(Journal(path, runs=["run"])) as journal:
        keep(journal, 0, Completion("a", "stop"))
        journal.commit([], [row_of_question(0, "q0", "answered", None, {})])
        assert journal.past(0)[0]  # With its index
    content, chance = path.read_bytes(), random.Random(5)
    first, last = content.index(b"CREATE TABLE"), content.index(b"CREATE TABLE run") + 30
    for at in chance.sample(range(first, last), 60):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
        assert has_calls(path)
        with contextlib.suppress(InputError), reading(path) as database:
            database.execute("SELECT question, entry FROM completions").fetchall()
        with contextlib.closing(Journal(path, runs=["run"])) as journal:
            assert journal.salvaged is not None
            keep(journal, 1, Completion("b", "stop"))
            assert len(journal.past(1)[0]) == 1
        for file in tmp_path.iterdir():
            file.unlink()


@pytest.mark.parametrize("said", [[], [7], [7, "digest"], [7, "digest", 0, None], {}, None])
def test_an_entry_of_another_shape_is_no_completion(said: object) -> None:
    """Though its checksum holds."""
    entry = orjson.dumps([*said, crc32(orjson.dumps(said))] if isinstance(said, list) else said).decode()
    assert not sound(entry, 7)
