"""Questions in: what is read, and that all else is refused by file and line."""

import os
from pathlib import Path

import pytest

from pyfast.engine import Question, read_questions
from pyfast.engine.questions import questions_in
from pyfast.errors import InputError

GOOD = b'{"id": "a", "question": "Who?", "answers": ["me"]}\n'


def read(path: Path, content: bytes, limit: int | None = None) -> list[Question]:
    path.write_bytes(content)
    return list(read_questions(path, limit))


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.rstrip(),
        b"\xef\xbb\xbf" + GOOD,
        b"\n \n" + GOOD + b"\n\n",
        GOOD.replace(b"\n", b"\r\n"),
    ],
    ids=["plain", "no last line end", "byte order mark", "blank lines", "CRLF"],
)
def test_what_is_read(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "q", content) == [Question("a", "Who?")]


def test_only_line_ends_end_a_line(tmp_path: Path) -> None:
    text = "one\u2028two\x85\x0b"
    line = '{"id": "a", "question": "one\u2028two\x85\\u000b"}'.encode()
    assert read(tmp_path / "q", line) == [Question("a", text)]


def test_a_limit_stops_before_later_lines_are_looked_at(tmp_path: Path) -> None:
    assert len(read(tmp_path / "q", GOOD + b"broken\n", limit=1)) == 1


BAD = {
    "broken": (b'{"id": "b", "question": "Wh', "not JSON"),
    "no object": (b'["b", "Who?"]', "not a JSON object"),
    "empty id": (b'{"id": "", "question": "Who?"}', "`id`"),
    "number as id": (b'{"id": 3.5, "question": "Who?"}', "`id`"),
    "no question": (b'{"id": "b"}', "`question`"),
    "blank question": (b'{"id": "b", "question": " \\t"}', "`question`"),
    "list as question": (b'{"id": "b", "question": ["Who?"]}', "`question`"),
    "same id": (GOOD.rstrip(), "the id 'a' occurs twice"),
    "Latin-1": (b'{"id": "b", "question": "Qu\xe9?"}', "not UTF-8"),
    "UTF-16": ('{"id": "b"}'.encode("utf-16"), "not UTF-8"),
    "surrogate": (b'{"id": "b", "question": "\\ud800"}', "not JSON"),
    "nested": (b"[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "q"
    path.write_bytes(GOOD + b"\n" + line + b"\n" + GOOD)
    with pytest.raises(InputError) as error:
        questions_in(path)
    assert str(error.value).startswith(f"{path}, line 3: ") and message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n\n")
    os.mkfifo(tmp_path / "pipe")
    for name, message in {"missing": "cannot be read", ".": "cannot be read", "empty": "no question"}.items():
        with pytest.raises(InputError, match=message):
            questions_in(tmp_path / name)
    with pytest.raises(InputError, match="must be a regular file"):  # and nobody waits for a writer
        questions_in(tmp_path / "pipe")
