"""Write the blocks of a run in several processes.

Each additional process runs `main`. This function reads the blocks from a file (its standard input), as JSON
lines, and writes a line about each block into another file (its standard output).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryFile
from typing import IO

from pydantic import TypeAdapter

from pyfast.engine import dedicate_process
from pyfast.errors import PyfastError, RunError, error_of, told_of
from pyfast.processes import end_with_parent, process_of
from pyfast.reports.blocks import Block, BlockWriter
from pyfast.reports.summary import Series

_BLOCK = TypeAdapter(Block)
_WRITTEN = TypeAdapter[Series | tuple[str, str]](Series | tuple[str, str])  # or the class and the text of an error


def write_blocks(writer: BlockWriter, blocks: Sequence[Block], processes: int) -> list[Series]:
    """Write blocks. This process writes a share of them, and additional processes write all others at the
    same time.

    Returns the `Series` of each block, in the order of `blocks`. Raises `InputError` if the run is damaged,
    and `RunError` if another process was killed. At the end of the call, even if it raises an error, all
    additional processes have ended.
    """
    count = max(min(processes, len(blocks)), 1)
    mine, *others = (blocks[first::count] for first in range(count))
    with ExitStack() as stack:
        started = [stack.enter_context(_process(writer, share)) for share in others]
        written = [[writer.write(block) for block in mine], *(_written(*one) for one in started)]
    return [written[number % count][number // count] for number in range(len(blocks))]


@contextmanager
def _process(writer: BlockWriter, blocks: Sequence[Block]) -> Iterator[tuple[Popen[bytes], IO[bytes]]]:
    """Start a process that writes blocks. Yields the process, and the file into which the process writes its
    lines. At the end of the `with` block, the process is killed if it is still running."""
    folders = str(writer.reader.path), str(writer.out)
    with TemporaryFile(dir=writer.out) as source, TemporaryFile(dir=writer.out) as sink:
        source.writelines(_BLOCK.dump_json(block) + b"\n" for block in blocks)
        source.seek(0)
        with process_of(__name__, *folders, stdin=source, stdout=sink) as process:
            yield process, sink


def _written(process: Popen[bytes], sink: IO[bytes]) -> list[Series]:
    """Wait until a process has written its blocks. Returns the `Series` of each block that the process wrote,
    or raises the error that ended the process."""
    if code := process.wait():
        raise RunError(f"a process that wrote a part of the report ended ({code}); does it need more memory?")
    sink.seek(0)
    written = []
    for line in sink:
        told = _WRITTEN.validate_json(line)
        if not isinstance(told, Series):
            raise error_of(*told)
        written.append(told)
    return written


def main() -> None:
    """Read blocks of questions from the standard input (a block is a JSON line), and write their pages."""
    logging.disable()  # The process that started this one warns.
    end_with_parent()
    run, out = sys.argv[1:]
    try:
        writer = BlockWriter(Path(run), Path(out))
        dedicate_process()
        for line in sys.stdin.buffer:
            _tell(writer.write(_BLOCK.validate_json(line)))
    except PyfastError as error:
        _tell(told_of(error))


def _tell(what: Series | tuple[str, str]) -> None:
    sys.stdout.buffer.write(_WRITTEN.dump_json(what) + b"\n")
