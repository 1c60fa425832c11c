"""Leases. A lease is a file in a block's folder that shows which worker has the block. The worker writes it
again every second.

A block may have only one worker at a time. A lock on a file cannot ensure this: some file systems do not share
locks between machines, and a frozen process keeps its lock. So if a lease is not renewed, another worker takes
the block: it renames the block's folder and continues in a copy with the old name. If the old worker wakes up,
it ends as soon as it sees that the lease is not its own, or that its files have moved. This needs a file system
with atomic renames.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from pyfast.engine import Event, Summary, Waiting
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.run_folder import JOURNAL, is_running
from pyfast.engine.status import totals_of
from pyfast.errors import InputError
from pyfast.files import built_aside, free_name, write_atomically

LEASE = "lease.json"
BEAT_S = 1.0
LEASE_S = 12 * BEAT_S
"""If a lease has not changed for this many seconds, no worker has the block any more"""


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease's file."""

    holder: str
    """Who has the block: machine, process, and a random number. Empty: the worker has released the block"""
    machine: str
    beat: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    waiting: Waiting | None = None
    """The outage whose end the block waits for. None: the block does not wait"""


_READ = TypeAdapter(Lease)


def machine() -> str:
    """Return a name for this machine. The name changes when the machine starts again.

    With this name, pyfast can see that a worker of this machine has ended: its lease names this machine, but no
    process of this machine has locked the block.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def read_lease(block: Path) -> Lease | None:
    """Read the lease of a block. Returns None if there is no lease, or if it cannot be read."""
    try:
        return _READ.validate_json((block / LEASE).read_bytes())
    except (OSError, ValidationError):
        return None


def is_given_back(block: Path, lease: Lease | None) -> bool:
    """Return whether it is certain that no worker is working on the block any more."""
    return lease is None or not lease.holder or (lease.machine == machine() and not is_running(block))


def take(block: Path, free: Lease | None) -> Holding | None:
    """Take a block for this worker, and return the new lease of the block.

    The driver has found that the block is free. If the reason is only that the lease has not changed for
    `LEASE_S` seconds, the old worker may still exist. Then the function renames the block's folder, and this
    worker gets a copy with the old name.

    Args:
        block: The folder of the block.
        free: The lease that the driver saw when it found that the block is free. If the block has another
            lease by now, another worker took the block while this worker stood still. The function then
            returns None.

    Raises `OSError`. Raises `InputError` if the block's journal cannot be read.
    """
    lease = read_lease(block)
    if lease != free:
        return None
    if not is_given_back(block, lease):
        left = free_name(block, "left")
        block.rename(left)
        with built_aside(block) as new:
            new.chmod(0o700)
            for path in left.iterdir():
                if path.is_file() and path.name != LEASE and not path.name.endswith("-shm"):
                    shutil.copyfile(path, new / path.name)
    return Holding(block)


class Holding:
    """A lease that this process has. The file of the lease also has the progress of the block."""

    def __init__(self, block: Path) -> None:
        """Write the lease. Raises `OSError`, and `InputError` if the block's journal cannot be read."""
        self._block = block
        self.is_new = not (block / JOURNAL).exists()
        """Whether this is the first worker of the block"""
        try:
            totals = Summary() if self.is_new else totals_of(block)
        except InputError:
            if (block / CONFIGURATION).exists():
                raise
            # A worker was killed while it made the journal, before any question.
            self.is_new, totals = True, Summary()
        self._name = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
        self._machine = machine()
        self._beats = 0
        self._states = Counter(totals.states)
        self._used = [totals.llm_calls, totals.prompt_tokens, totals.completion_tokens]
        self._waiting: Waiting | None = None
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self._write(self._name)

    def hear(self, event: Event) -> None:
        """Add an event of the block's run to the progress in the lease."""
        self._waiting = event.waiting
        if event.record is not None:
            usage = event.record.usage
            self._states[event.record.state] += 1
            for place, value in enumerate((usage.llm_calls, usage.prompt_tokens, usage.completion_tokens)):
                self._used[place] += value

    def keep(self, is_alive: Callable[[], bool], lost: Callable[[], None]) -> None:
        """Renew the lease from a thread, until it is released.

        Args:
            is_alive: A function that returns whether the work continues. If it returns False, the lease is not
                renewed.
            lost: A function that is called once if another worker takes the block.
        """

        def renew() -> None:
            while not self._over.wait(BEAT_S):
                lease = read_lease(self._block)
                if lease is None or lease.holder != self._name:
                    time.sleep(BEAT_S)  # a file system may be slow to show a file that was just written
                    lease = read_lease(self._block)
                if lease is None or lease.holder != self._name:
                    if not self._over.is_set():
                        lost()
                    return
                if is_alive():
                    with contextlib.suppress(OSError):
                        self._write(self._name)

        self._renewing = threading.Thread(target=renew, name="pyfast-lease", daemon=True)
        self._renewing.start()

    def give_back(self) -> None:
        """Release the lease, so that other workers can take the block."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        lease = read_lease(self._block)
        if lease is not None and lease.holder == self._name:
            with contextlib.suppress(OSError):
                self._write("")

    def _write(self, holder: str) -> None:
        self._beats += 1
        calls, into, out = self._used
        lease = Lease(holder, self._machine, self._beats, dict(self._states), calls, into, out, self._waiting)
        write_atomically(self._block / LEASE, orjson.dumps(lease))
