"""`pyfast.view`: show runs as web pages on this machine, even while they are in progress."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from pyfast.api.evaluation import GoldLike
from pyfast.api.run import Run
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import PyfastError
from pyfast.evaluation import Metric
from pyfast.evaluation.prices import Prices, listed
from pyfast.ops.arrays import available_cores
from pyfast.reports.bundle import RunData
from pyfast.reports.reading import Scoring
from pyfast.reports.writing import MANIFEST, folders_of, title_of, write_manifest, write_page

_PAUSE = 1.0  # seconds between two looks at a run, at least
_SHARE = 5  # so many times as long as a look takes nobody looks again
_TYPES = {".js": "text/javascript", ".json": "application/json", ".gz": "application/gzip"}
_LOG = logging.getLogger("pyfast")


def view(
    runs: Run | str | Path | Sequence[Run | str | Path],
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    prices: str | Path | Prices | None = None,
    port: int = 0,
    on_start: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve runs as web pages on this machine, until `stop` is set or the process gets a signal to end.

    The pages are the same as with `pyfast.report`. If a run is in progress, finished questions appear within
    seconds.

    Args:
        runs: As in `pyfast.report`.
        gold: As in `pyfast.evaluate`.
        metrics: As in `pyfast.evaluate`.
        prices: As in `pyfast.report`.
        port: The port on 127.0.0.1. 0: a free port.
        on_start: A function that is called with the address of the page when the server is ready.
        stop: After you set this event, the server ends.

    Raises:
        InputError: A run has no folder or is damaged, the gold file has none of its questions, or a model is
            missing in the price list.
        OSError: Another program uses the port.

    Example:
        >>> import threading
        >>> import pyfast
        >>> stop = threading.Event()
        >>> threading.Timer(1, stop.set).start()
        >>> pyfast.view("RUN", "QUESTIONS.jsonl", stop=stop)
    """
    folders = folders_of(runs)
    stop = stop or threading.Event()
    with TemporaryDirectory(prefix="pyfast-view-") as made:
        pages = _Pages(folders, Path(made), Scoring(gold, metrics), listed(prices))
        write_page(Path(made), title_of(folders))
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, pages=pages))
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, name="pyfast-view", daemon=True)
        serving.start()
        try:
            if on_start is not None:
                on_start(f"http://127.0.0.1:{server.server_port}/")
            stop.wait()
        finally:
            server.shutdown()
            server.server_close()


class _Pages:
    """The folder with the pages and data of runs. `refresh` updates the data. Each request for the manifest
    calls `refresh`.
    """

    def __init__(self, folders: Sequence[Path], out: Path, scoring: Scoring, prices: Prices | None) -> None:
        self.out = out
        self._folders, self._scoring, self._prices = folders, scoring, prices
        self._data = [self._open(number) for number in range(len(folders))]
        self._parts: list[dict[str, Any]] = [{} for _ in folders]
        self._seen: list[tuple[int, ...]] = [() for _ in folders]
        self._lock = threading.Lock()
        self._next = 0.0
        self.refresh()

    def _open(self, number: int) -> RunData:
        place = self.out / "data" / f"run-{number}"
        if place.exists():
            rmtree(place)
        return RunData(self._folders[number], place, self._scoring, self._prices)

    def refresh(self) -> None:
        """Add the questions that have ended since the last update. A call soon after an update does nothing.

        Raises `PyfastError` if a run is damaged.
        """
        with self._lock:
            began = time.monotonic()
            if began < self._next:
                return
            changed = list(filter(self._has_changed, range(len(self._folders))))
            for number in changed:
                if self._data[number].done > len(self._data[number].reader.run.records):  # failures run again
                    self._data[number] = self._open(number)
                self._parts[number] = self._data[number].update(available_cores())
            if changed:
                live = any(part["running"] for part in self._parts)
                write_manifest(self.out, self._folders, self._parts, self._scoring, live)
            took = time.monotonic() - began
            self._next = time.monotonic() + max(_PAUSE, _SHARE * took)

    def _has_changed(self, number: int) -> bool:
        """Whether a run is in progress, or its file of answers has changed since the last call."""
        try:
            file = (self._folders[number] / ANSWERS).stat()
            state: tuple[int, ...] = (file.st_ino, file.st_size, file.st_mtime_ns)
        except OSError:
            state = (0,)
        before, self._seen[number] = self._seen[number], state
        return state != before or bool(self._parts[number].get("running"))


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files of the folder. It refuses requests for any other host than 127.0.0.1 or localhost."""

    def __init__(self, *arguments: Any, pages: _Pages) -> None:
        self._pages = pages
        self.extensions_map = {**self.extensions_map, **_TYPES}
        super().__init__(*arguments, directory=str(pages.out))

    def send_head(self) -> Any:
        """Check the request before a file is sent."""
        name = self.headers.get("Host", "").rpartition(":")[0]
        if name not in ("127.0.0.1", "localhost"):  # a page elsewhere under a name of its own
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        if self.path.partition("?")[0] == f"/{MANIFEST}":
            try:
                self._pages.refresh()
            except (PyfastError, OSError) as error:
                _LOG.warning("%s", error)
                return self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
        return super().send_head()

    def list_directory(self, path: Any) -> Any:
        """Refuse to list a folder."""
        return self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        """Forbid browsers to guess the types of files, to show a page inside another page, and to store
        copies."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests."""
