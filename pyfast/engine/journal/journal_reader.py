"""Read a run's finished questions from its journal: their LLM calls, usage and times. From stored prompts,
estimate how many tokens the prefix cache of an LLM's server saves."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfast.engine.journal.journal import Key, Outcome, read_outcome, reading
from pyfast.engine.journal.ledger import UsageTotals, ledger_of
from pyfast.engine.journal.prompt_store import Asked, DamagedError, KeptPrompts, LLMCall
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import CallError, InputError
from pyfast.llm import Completion, Message
from pyfast.llm.protocol import ON_GPU

_FRAMES = 128  # frames of stored prompts in memory: about as many as the questions in progress need
_AT_ONCE = 128  # the number of questions whose calls are read together
_QUESTIONS = "SELECT number, id, ledger FROM questions WHERE number BETWEEN ? AND ? ORDER BY number"
_IDS = "SELECT id FROM questions WHERE number >= ? ORDER BY number"
# Without an index, SQLite reads the whole table, and sorts the matching rows.
_COMPLETIONS = "SELECT question, entry FROM completions WHERE question BETWEEN ? AND ? ORDER BY question, rowid"

Ended = tuple[str, dict[str, Any], list[LLMCall]]
"""A question that has ended: its id, its ledger (empty if damaged), and its LLM calls"""
_EDGE = 0.1
"""The share of questions left out at the beginning and at the end of a run, when fewer questions than usual are in
progress"""
_FEW = 20


def ended_questions(journal: Path, first: int, count: int) -> Iterator[Ended]:
    """Read those of the `count` questions from number `first` on that have ended, in the order of the run.

    All questions are read from the same state of the journal, even if a run writes to it meanwhile.

    Raises `InputError` if the journal is unreadable or damaged.
    """
    with reading(journal) as database:
        database.execute("BEGIN")
        prompts = KeptPrompts(database, _FRAMES)
        completions = database.execute(_COMPLETIONS, (first, first + count - 1))
        row = completions.fetchone()
        questions = database.execute(_QUESTIONS, (first, first + count - 1))
        while some := questions.fetchmany(_AT_ONCE):
            entries: dict[int, list[str]] = {number: [] for number, _, _ in some}
            while row is not None and row[0] <= some[-1][0]:
                if row[0] in entries:
                    entries[row[0]].append(row[1])
                row = completions.fetchone()
            calls = _read_calls(entries, prompts)
            for number, id, ledger in some:
                yield str(id), ledger_of(ledger), calls.pop(number)


def ended_ids(journal: Path, first: int = 0) -> list[str]:
    """Read the ids of the questions that have ended, in the order of the run, starting with number `first`.

    Raises `InputError` if the journal cannot be read.
    """
    with reading(journal) as database:
        return [str(id) for (id,) in database.execute(_IDS, (first,))]


def calls_of(journal: Path, id: str) -> list[LLMCall]:
    """Read a question's LLM calls in the order in which they ended. Raises `InputError` if no question with this
    id has ended."""
    with reading(journal) as database:
        row = database.execute("SELECT number FROM questions WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise InputError(f"{journal.parent}: there is no finished question {id!r}")
    ((_, _, calls),) = ended_questions(journal, row[0], 1)
    return calls


def _read_calls(entries: Mapping[int, Sequence[str]], prompts: KeptPrompts) -> dict[int, list[LLMCall]]:
    """Read the LLM calls of questions. `entries` maps question numbers to the rows of their completions. Raises
    `DamagedError` if a row is damaged."""
    read: dict[int, list[tuple[Key, Outcome]]] = {}
    for number, rows in entries.items():
        read[number] = [one for row in rows if (one := read_outcome(row, number)) is not None]
        if len(read[number]) < len(rows):
            raise DamagedError("a completion was changed")
    asked = prompts.of({digest for every in read.values() for (digest, _), _ in every})
    return {number: [_call(asked.get(key[0]), key, outcome) for key, outcome in read[number]] for number in read}


def _call(asked: Asked | None, key: Key, outcome: Outcome) -> LLMCall:
    name, messages = ("", None) if asked is None else (asked.name, asked.messages)
    role = key[0].partition(":")[0]
    if isinstance(outcome, CallError):
        return LLMCall(name, role, messages, None, str(outcome))
    return LLMCall(name, role, messages, outcome)


@dataclass(slots=True)
class Used(UsageTotals):
    """The LLM calls, tokens and time that one question of a run used."""

    seconds: float | None = None
    """The seconds from the question's start to its end, without the time of reused replies. None if they were not
    recorded"""
    by_role: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The tokens of prompts and completions, by the role of the LLM that answered"""

    @property
    def computed_tokens(self) -> int:
        """The prompt tokens that the LLM did not take from its prefix cache."""
        return self.prompt_tokens - self.cached_tokens


def used_by(folder: Path) -> dict[str, Used]:
    """Read the usage of each ended question from a run's journal, by question id. Questions with a damaged ledger
    are left out.

    Raises `InputError` if the journal cannot be read.
    """
    with reading(folder / JOURNAL) as database:
        rows = ((id, ledger_of(text)) for id, text in database.execute("SELECT id, ledger FROM questions"))
        return {str(id): _used(ledger) for id, ledger in rows if ledger}


def _used(ledger: Mapping[str, Any]) -> Used:
    used = Used(seconds=ledger.get("seconds"))
    used.add_row(ledger)
    for _calls, _queued, _running, _batches, *of_prompt in ledger["stages"].values():
        if of_prompt and of_prompt[0]:  # A stage of a prompt has its role and its tokens, in and out.
            role, into, out = of_prompt
            before = used.by_role.get(role, (0, 0))
            used.by_role[role] = before[0] + into, before[1] + out
    return used


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The measured times of a run."""

    seconds: tuple[float, ...]
    """The number of seconds from each question's start to its end"""
    rate: float
    """Questions per second while the usual number of questions was in progress"""
    throughput: float
    """The number of questions, divided by the seconds during which at least one question was in progress"""
    shares: Mapping[str, float]
    """The shares of a question's time, between 0 and 1, by name: `llm`, `waiting for the llm`, `search` (searches
    and other batched calls) and `engine` (pyfast's own process)"""

    @property
    def in_progress(self) -> float:
        """The average number of questions in progress, by Little's law."""
        return self.rate * float(np.mean(self.seconds))


def service_times(run: Path) -> ServiceTimes | None:
    """Compute the times of a run, without pauses between its sessions, and without questions with reused replies,
    which did not wait for an LLM. Returns None if fewer than two questions have times.

    Raises `InputError` if the run's journal cannot be read.
    """
    ends, seconds = list[float](), list[float]()
    parts = dict.fromkeys(("llm", "waiting for the llm", "search"), 0.0)
    with reading(run / JOURNAL) as database:
        for (text,) in database.execute("SELECT ledger FROM questions"):
            ledger = ledger_of(text)
            # The ledger was rebuilt from the answer, or the question reused replies.
            if "started" not in ledger or "seconds" not in ledger or ledger.get("reused"):
                continue
            for name, (calls, queued, running, _batches, *of_prompt) in ledger["stages"].items():
                if calls and ON_GPU not in name:  # The time of a search already includes the GPU's time.
                    parts["llm" if of_prompt else "search"] += running / 1e6
                    parts["waiting for the llm" if of_prompt else "search"] += queued / 1e6
            seconds.append(float(ledger["seconds"]))
            ends.append(float(ledger["started"]) + seconds[-1])
    if len(seconds) < 2 or not sum(seconds):
        return None
    starts, ended = np.sort(np.subtract(ends, seconds)), np.sort(ends)
    gaps = np.diff(ended)
    edge = int(_EDGE * len(gaps)) if len(gaps) >= _FEW else 0
    gaps = gaps[edge : len(gaps) - edge]
    gaps = gaps[gaps <= max(seconds)]  # A longer gap is a pause: no question was in progress.
    # Questions that end together would give an arbitrary rate, but at most `peak` are in progress (Little's law).
    peak = int((np.arange(1, len(ends) + 1) - np.searchsorted(ended, starts, side="right")).max())
    rate = min(len(gaps) / max(float(gaps.sum()), 1e-9), peak / float(np.mean(seconds)))
    rate = rate or 1 / float(np.mean(seconds))  # With pauses between all questions, one runs at a time.
    shares = {name: part / sum(seconds) for name, part in parts.items()}
    shares["engine"] = max(1.0 - sum(shares.values()), 0.0)
    throughput = len(ends) / max(working_seconds(np.subtract(ends, seconds), ends), 1e-9)
    return ServiceTimes(tuple(seconds), rate, throughput, shares)


def working_seconds(starts: npt.ArrayLike, ends: npt.ArrayLike) -> float:
    """Return the number of seconds during which at least one question was in progress, from the questions' start
    and end times."""
    order = np.argsort(starts, kind="stable")
    began, until = np.asarray(starts)[order], np.maximum.accumulate(np.asarray(ends)[order])
    return float(until[-1] - began[0] - np.maximum(began[1:] - until[:-1], 0.0).sum()) if len(order) else 0.0


BLOCK = 12
"""The number of words in a block of the cache. A word counts as 4/3 tokens, so a block has 16 tokens, as in
vLLM"""
_TOKENS_PER_WORD = 4 / 3
_WORD = re.compile(r"\n*[^\S\n]*\S+")
_EVERY_ENTRY = "SELECT question, entry FROM completions ORDER BY rowid"


@dataclass(slots=True)
class CachedTokens:
    """An estimate for all calls of one prompt."""

    calls: int = 0
    tokens: float = 0.0
    """The tokens of the prompts"""
    cached: float = 0.0
    """How many of these tokens are in the prefix cache"""


class PrefixCache:
    """A model of a prefix cache, which consists of blocks of words. Each block is identified by all words up to
    its end, and the least recently used blocks are dropped first."""

    def __init__(self, tokens: float) -> None:
        """Create an empty cache for at most `tokens` tokens."""
        self._most = tokens / _TOKENS_PER_WORD / BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def read(self, words: Sequence[str]) -> int:
        """Read a prompt, and return how many of its first words are cached from earlier prompts."""
        chain, state = [], 0
        for first in range(0, len(words) - BLOCK + 1, BLOCK):
            state = hash((state, *words[first : first + BLOCK]))
            chain.append(state)
        kept = next((at for at, block in enumerate(chain) if block not in self._blocks), len(chain))
        for block in reversed(chain):  # so that the end of a prompt is dropped before its beginning
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        return min(kept * BLOCK, len(words) - 1)  # A server always computes the last token.


def words_of(messages: Iterable[Message]) -> list[str]:
    """Return the words of a prompt, each with the whitespace before it."""
    return [word for it in messages for word in (f"<{it.role}>", *_WORD.findall(it.content))]


def cached_tokens(journal: Path, tokens: float) -> dict[str, CachedTokens]:
    """Send a run's prompts through a prefix cache, in the order in which their calls ended. Returns an estimate
    for each prompt, by name. Raises `InputError` if the run stores no prompts, or the journal is damaged."""
    cache, found = PrefixCache(tokens), dict[str, CachedTokens]()
    with reading(journal) as database:
        prompts, rows = KeptPrompts(database), database.execute(_EVERY_ENTRY)
        while some := rows.fetchmany(1_000):
            read = [one for number, entry in some if (one := read_outcome(entry, number)) is not None]
            asked = prompts.of({digest for (digest, _), _ in read})
            for (digest, _), outcome in read:
                if digest not in asked or not (words := words_of(asked[digest].messages)):
                    continue
                each = found.setdefault(asked[digest].name, CachedTokens())
                told = outcome.prompt_tokens if isinstance(outcome, Completion) else 0
                size = told or len(words) * _TOKENS_PER_WORD
                each.calls += 1
                each.tokens += size
                each.cached += size * cache.read(words) / len(words)
    if not found:
        raise InputError(f"{journal.parent}: the estimate needs the run's prompts, but they were not stored")
    return found
