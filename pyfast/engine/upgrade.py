"""Convert a run of an older format to the current format."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pyfast.engine.configuration import (
    CONFIGURATION,
    FORMAT,
    Configuration,
    configuration_digest,
    read_with_format,
    write_configuration,
)
from pyfast.engine.journal import add_digests
from pyfast.engine.record import Record, digest
from pyfast.engine.run_folder import ANSWERS, JOURNAL, locked
from pyfast.engine.traces import LINES, TRACES, TraceWriter
from pyfast.errors import InputError
from pyfast.files import written_aside

# Settings that had another name in format 1. `units` of mtqa keeps its name.
_SETTINGS = {
    "rank": "ranking",
    "hop_least": "hop_min",
    "hop_most": "hop_max",
    "final_least": "final_min",
    "final_most": "final_max",
    "least_steps": "min_steps",
}
_SETTINGS_OF = {"graph_convqa": {"units": "passages"}}


def upgrade_run(folder: Path) -> bool:
    """Convert a run. Returns False if it already has the current format.

    If the process ends early, the run can still be read. Call the function again to finish the conversion.

    Raises `InputError` if another process works on the run, its format is newer, or its answers are damaged.
    """
    path = folder / CONFIGURATION
    if read_with_format(path)[0] == FORMAT:
        return False
    with locked(folder):
        version, described = read_with_format(path)
        if version == FORMAT:  # Another process has upgraded the run meanwhile.
            return False
        if version == 1:
            described = _from_1(described)
        if not _were_moved(folder / ANSWERS):
            _move_traces(folder, configuration_digest(described))
        write_configuration(path, described)
    return True


def _move_traces(folder: Path, run: str) -> None:
    """Move the traces from the answers to their own file, and write the digests of both into the journal."""
    path = folder / ANSWERS
    known: list[tuple[str, str]] = []
    with (
        path.open("rb") as before,
        written_aside(path, durable=True) as answers,
        written_aside(folder / TRACES, durable=True) as traces,
    ):
        with answers.open("wb") as after, contextlib.closing(TraceWriter(traces)) as writer:
            for records in _some(_records(before, path)):
                lines, details = [record.line() for record in records], [record.details() for record in records]
                after.writelines(lines)
                writer.write(details)
                known += zip(map(digest, lines), map(digest, details), strict=True)
        if (folder / JOURNAL).exists():
            add_digests(folder / JOURNAL, run, known)


def _records(lines: Iterable[bytes], path: Path) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if line.endswith(b"\n"):  # A line without an end was cut off by a kill.
            try:
                yield Record.read(line)
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}; without that line it can be upgraded") from None


def _some(records: Iterator[Record]) -> Iterator[list[Record]]:
    while some := list(islice(records, LINES)):
        yield some


def _were_moved(answers: Path) -> bool:
    """Return whether the traces are already in their own file, because an earlier upgrade was killed just
    before its end."""
    with answers.open("rb") as lines:
        first = lines.readline()
    return first.endswith(b"\n") and b'"trace":' not in first


def _from_1(described: Configuration) -> Configuration:
    system = described.get("system", {})
    names = _SETTINGS | _SETTINGS_OF.get(str(system.get("name")), {})
    renamed = {f"set_{before}": f"set_{now}" for before, now in names.items()}
    new = dict(described)
    if system:
        new["system"] = {renamed.get(name, name): value for name, value in system.items()}
    if "parameters" in described.get("index", {}):
        new["index"] = {**described["index"], "parameters": _parameters(described["index"]["parameters"])}
    return new


def _parameters(written: str) -> str:
    """Return the parameters of an index, which are a JSON text in run.toml, with their current names:
    `lexical` becomes `bm25`. A text that is not a JSON object stays unchanged."""
    try:
        parameters = {"bm25" if name == "lexical" else name: value for name, value in json.loads(written).items()}
    except (ValueError, TypeError, AttributeError):  # Someone has edited the file. No answer depends on it.
        return written
    return json.dumps(parameters, sort_keys=True)
