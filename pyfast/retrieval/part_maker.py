"""Complete the parts of an index in another process, while this process reads the next documents."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from pyfast.corpus import Corpus
from pyfast.corpus.storage import FOLDER as CORPUS
from pyfast.errors import PyfastError, RunError, error_of, told_of
from pyfast.processes import end_with_parent, process_of
from pyfast.retrieval.analysis import Analysis
from pyfast.retrieval.making import count_passages
from pyfast.retrieval.parts import complete_part
from pyfast.retrieval.passage_size import PassageSize


class PartMaker(ExitStack):
    """A process that completes parts, one at a time. It starts with the first part, and ends with the `with`
    block."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """`parameters` are those of the index, as in the manifest."""
        super().__init__()
        self._parameters = parameters
        self._process: Popen[bytes] | None = None

    def start(self, folder: Path) -> None:
        """Begin to complete a part. Its folder has only its corpus. Call `wait` before the next `start`."""
        if self._process is None:
            process = process_of(__name__, json.dumps(self._parameters), stdin=PIPE, stdout=PIPE)
            self._process = self.enter_context(process)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `wait` finds that the process has ended.
            self._process.stdin.write(json.dumps(str(folder)).encode() + b"\n")

    def wait(self) -> None:
        """Wait until the part is complete. Raises the error that ended the work; for an `OSError`, `RunError`."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            memory = "; does it need more memory?" if code < 0 else ""  # The kernel kills if there is no more.
            raise RunError(f"a process that made a part of the index ended ({code}){memory}")
        if told := json.loads(line):
            raise error_of(*told)


def main() -> None:
    """Complete the parts in the folders that the standard input names. Answer each line with a line: `null`, or
    the class and the text of an error."""
    logging.disable()
    end_with_parent()
    parameters = json.loads(sys.argv[1])
    size, analysis = PassageSize.of(parameters), Analysis.of(parameters)
    for line in sys.stdin.buffer:
        folder, told = Path(json.loads(line)), None
        tempfile.tempdir = str(folder)  # If this process is killed, the next build removes the folder.
        try:
            complete_part(folder, count_passages(Corpus.open(folder / CORPUS), size, analysis), alone=False)
        except PyfastError as error:
            told = told_of(error)
        except OSError as error:
            told = told_of(RunError(f"{error.filename or folder}: {error.strerror or error}"))
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
