"""Store the prompts of a run in its journal.

Each message is stored only once. Messages written together are compressed together into one zstd frame.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

import orjson
import zstandard

from pyfast.engine.traces import unpacked
from pyfast.errors import PyfastError
from pyfast.llm import Completion, Message
from pyfast.llm.protocol import AT_ONCE

# `entry` is JSON: the digest of a request, the prompt's name, the digests of its messages, and a checksum.
PROMPTS_SCHEMA = """
CREATE TABLE IF NOT EXISTS prompts (request TEXT PRIMARY KEY, entry TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (digest TEXT PRIMARY KEY, frame INTEGER NOT NULL, place INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frames (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""
TAKE_PROMPTS = (
    """
INSERT OR IGNORE INTO main.messages
SELECT digest, frame + (SELECT coalesce(max(id), 0) FROM main.frames), place FROM other.messages
""",
    """
INSERT INTO main.frames
SELECT id + (SELECT coalesce(max(id), 0) FROM main.frames), content FROM other.frames
""",
    "INSERT OR IGNORE INTO main.prompts SELECT * FROM other.prompts",
)
"""The SQL statements that copy the prompts of another journal, to be executed in this order. The other journal
must be attached to the database as `other`"""
_LEVEL = 3
_FRAMES = 16
_CHECKED = 1_000  # the number of requests that are checked together


class _Zstd(threading.local):
    """A compressor for each thread: to make one takes longer than to compress a few messages."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(_LEVEL)


_zstd = _Zstd()


class DamagedError(PyfastError):
    """Raised if the stored prompts are damaged."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A stored request: the name of its prompt, and its messages."""

    name: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class LLMCall:
    """One LLM call of a question, as `Run.prompts` returns it."""

    prompt: str
    """The name of the prompt, which is also the name of the call's stage. Empty if the run does not store
    prompts"""
    role: str
    messages: tuple[Message, ...] | None
    """The messages of the prompt. None if the run does not store prompts. Empty if the prompt consisted of
    embeddings"""
    completion: Completion | None
    """The LLM's reply. None if the call failed"""
    error: str | None = None
    """Why the call failed. None if it did not fail"""


def add_prompts(database: sqlite3.Connection, asked: Mapping[str, Asked]) -> None:
    """Store requests in the open transaction. `asked` maps the digest of each request to the request. Raises
    `sqlite3.Error`."""
    every = {_digest(message): message for request in asked.values() for message in request.messages}
    known = database.execute(
        "SELECT digest FROM messages WHERE digest IN (SELECT value FROM json_each(?))", (_json(list(every)),)
    )
    there = {digest for (digest,) in known.fetchall()}
    if new := [digest for digest in every if digest not in there]:
        texts = orjson.dumps([(every[digest].role, every[digest].content) for digest in new])
        frame = _zstd.compressor.compress(texts)
        number = database.execute("INSERT INTO frames (content) VALUES (?)", (frame,)).lastrowid
        database.execute("INSERT INTO messages SELECT value, ?, key FROM json_each(?)", (number, _json(new)))
    rows = []
    for digest, request in asked.items():
        entry = orjson.dumps((digest, request.name, [_digest(message) for message in request.messages]))
        rows.append((digest, (b"%b,%d]" % (entry[:-1], crc32(entry))).decode()))
    database.execute(
        "INSERT OR IGNORE INTO prompts SELECT value ->> 0, value ->> 1 FROM json_each(?)", (_json(rows),)
    )


class KeptPrompts:
    """Reads the prompts in a journal. Its methods raise `DamagedError` if a prompt is damaged."""

    def __init__(self, database: sqlite3.Connection, frames: int = _FRAMES) -> None:
        """Read from an open journal. Up to `frames` decompressed frames stay in memory."""
        self._database = database
        self._frame = lru_cache(frames)(self._unpacked)

    def of(self, requests: Collection[str]) -> dict[str, Asked]:
        """Read the stored requests with these digests. Other digests are ignored."""
        rows = self._rows("SELECT request, entry FROM prompts WHERE request", requests)
        entries = {request: _entry(request, text) for request, text in rows}
        messages = self._messages({digest for _, digests in entries.values() for digest in digests})
        return {
            request: Asked(name, tuple(map(messages.__getitem__, digests)))
            for request, (name, digests) in entries.items()
        }

    def check(self) -> int:
        """Read all prompts, and return how many there are."""
        requests = self._database.execute("SELECT request FROM prompts").fetchall()
        for first in range(0, len(requests), _CHECKED):
            self.of([request for (request,) in requests[first : first + _CHECKED]])
        return len(requests)

    def _messages(self, digests: Collection[str]) -> dict[str, Message]:
        found = {}
        # in the order of the frames, so that each is unpacked only once
        places = sorted(self._rows("SELECT frame, place, digest FROM messages WHERE digest", digests))
        for frame, place, digest in places:
            message = self._frame(frame).get(place)
            if message is not None and _digest(message) == digest:
                found[digest] = message
        for digest in digests:
            if digest not in found:
                raise _damaged(digest)
        return found

    def _rows(self, select: str, keys: Collection[str]) -> list[Any]:
        statement = f"{select} IN (SELECT value FROM json_each(?))"
        return self._database.execute(statement, (_json(list(keys)),)).fetchall()

    def _unpacked(self, number: int) -> dict[int, Message]:
        """Return the messages of the frame with this number, by their positions in the frame."""
        row = self._database.execute("SELECT content FROM frames WHERE id = ?", (number,)).fetchone()
        try:
            content = unpacked(row[0]) if row else b"[]"
            # A damaged frame may contain anything. The caller compares digests, so it accepts only intact
            # messages.
            messages = [Message(*map(str, each)) for each in orjson.loads(content)]  # type: ignore[arg-type]
            return dict(enumerate(messages))
        except (zstandard.ZstdError, ValueError, TypeError) as error:
            raise DamagedError(f"stored prompts are damaged: {error}") from None


def _entry(request: str, text: str) -> tuple[str, list[str]]:
    """Return the prompt's name and the messages' digests from the row of a request."""
    try:
        *fields, check = orjson.loads(text)
        if check == crc32(orjson.dumps(fields)) and fields[0] == request:
            _, name, digests = fields
            return name, digests
    except (ValueError, TypeError):
        pass
    raise _damaged(request)


def _damaged(digest: str) -> DamagedError:
    return DamagedError(f"stored prompts are damaged: {digest} was changed")


def _digest(message: Message) -> str:
    made = blake2b(message.role.encode(), digest_size=16, person=b"message")
    text = message.content.encode()
    for start in range(0, len(text), AT_ONCE):
        made.update(text[start : start + AT_ONCE])
    return made.hexdigest()


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
