"""Store the batches that a run has submitted to a provider's Batch API, in the run's journal."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from pyfast.llm.collecting import BatchLog, LoggedBatch

if TYPE_CHECKING:
    from pyfast.engine.journal import Journal

T = TypeVar("T")

BATCHES_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (key TEXT PRIMARY KEY, llm TEXT NOT NULL, id TEXT, made REAL NOT NULL);
CREATE TABLE IF NOT EXISTS batch_calls (batch TEXT NOT NULL, place INTEGER NOT NULL, request TEXT NOT NULL);
"""
# The digest of a completion's request; its key in the journal begins with the role.
REQUEST_OF_ENTRY = "substr(entry ->> 1, instr(entry ->> 1, ':') + 1)"


class JournalledBatches(BatchLog):
    """Stores the batches of LLM calls that a run submits to a Batch API, in the run's open journal. Any
    method can raise `RunError`."""

    def __init__(self, journal: Callable[[], Journal], writer: Executor) -> None:
        """`journal` returns the open journal, and `writer` is the thread that writes it."""
        self._journal = journal
        self._writer = writer

    async def load(self, llm: str) -> Sequence[LoggedBatch]:
        """Return the stored batches of an LLM, the oldest first. Each batch has only the calls that have no
        reply in the journal yet."""
        return await self._do(lambda database: _load(database, llm))

    async def add(self, llm: str, batch: LoggedBatch) -> None:
        """Store a new batch. Call this method before the batch is submitted."""

        def add(database: sqlite3.Connection) -> None:
            database.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", (batch.key, llm, batch.id, batch.made))
            rows = ((batch.key, place, request) for place, request in batch.calls.items())
            database.executemany("INSERT INTO batch_calls VALUES (?, ?, ?)", rows)

        await self._do(add)

    async def identify(self, key: str, id: str) -> None:
        """Store the id that the provider gave to a batch."""
        await self._do(lambda database: database.execute("UPDATE batches SET id = ? WHERE key = ?", (id, key)))

    async def remove(self, key: str) -> None:
        """Remove a batch. Its calls can then be submitted again."""

        def remove(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM batch_calls WHERE batch = ?", (key,))
            database.execute("DELETE FROM batches WHERE key = ?", (key,))

        await self._do(remove)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, lambda: self._journal().change(work))


def _load(database: sqlite3.Connection, llm: str) -> list[LoggedBatch]:
    stored = Counter(request for (request,) in database.execute(f"SELECT {REQUEST_OF_ENTRY} FROM completions"))
    batches = []
    rows = database.execute("SELECT key, id, made FROM batches WHERE llm = ? ORDER BY made, rowid", (llm,))
    for key, id, made in rows.fetchall():
        calls = {}
        of_batch = database.execute(
            "SELECT place, request FROM batch_calls WHERE batch = ? ORDER BY place", (key,)
        )
        for place, request in of_batch:
            if stored[request]:  # Equal requests have equal answers, so any of them may be stored.
                stored[request] -= 1
            else:
                calls[place] = request
        batches.append(LoggedBatch(key, id, made, calls))
    return batches
