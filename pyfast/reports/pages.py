"""`pyfast.report`: write runs as web pages, into a static folder for any web server. `pyfast.view`: show runs as
web pages on this machine, even while they are in progress."""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from html import escape
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from string import Template
from typing import Any

import orjson

from pyfast.api.evaluation import compare
from pyfast.api.run import GoldLike, Run, warn_of_other_questions
from pyfast.engine.run_folder import ANSWERS
from pyfast.errors import InputError, PyfastError
from pyfast.evaluation import Metric
from pyfast.evaluation.cost import Prices, listed
from pyfast.reports.bundle import VERSION, RunData
from pyfast.reports.details import question_of
from pyfast.reports.run_reader import Scoring
from pyfast.utils.files import built_aside, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.processes import available_cores, scratch_folder
from pyfast.utils.version import __version__

MANIFEST = "manifest.json"


def report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path,
    gold: GoldLike | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    prices: str | Path | Prices | None = None,
    single: str | None = None,
    processes: int | None = None,
) -> Path:
    """Write runs as web pages into a static folder. The pages load nothing from the Internet.

    The folder has the page (`index.html`, `app.js`, `style.css`, `vendor/`), a manifest, and the data in
    compressed chunks. The page loads a chunk when it needs it. Any web server can serve the folder. If you
    open the page from the disk, a browser loads no data: use `pyfast view` for runs on this machine.

    Args:
        runs: A run, or several runs on the same questions, which the report compares. You can also give
            folders of runs.
        out: The folder to write. Replaces an existing report in this folder.
        gold: As in `pyfast.evaluate`. None: the gold answers in gold.jsonl in the folder of the run's
            questions. If there is no such file: the gold answers in the questions themselves, if they have
            any.
        metrics: As in `pyfast.evaluate`.
        prices: A price list, or its file (see `pyfast.evaluation.read_prices`). The report then has the cost
            of each stage in money.
        single: The id of a question. `out` is then one HTML file with only this question, which you can open
            from the disk. Give only one run.
        processes: How many processes may work at the same time. None: one for each core. Each process writes
            blocks of 4,096 questions, so a small run needs only one process. The files do not depend on this
            number.

    Returns:
        The folder, or the file.

    Raises:
        InputError: A run is in memory or damaged, the gold file has none of its questions, a model is missing
            from the price list, or `out` has files that are not a report.
        RunError: A process that wrote a part of the report was killed.

    Example:
        >>> import pyfast
        >>> pyfast.report("RUN", "REPORT", "QUESTIONS.jsonl")
        PosixPath('REPORT')
    """
    folders = folders_of(runs)
    out = Path(out)
    if single is not None:
        return _write_single(folders, out, single, Scoring(gold, metrics))
    if out.exists() and not (out.is_dir() and ((out / MANIFEST).is_file() or not any(out.iterdir()))):
        raise InputError(f"{out} exists and is not a report; choose another folder")
    scoring = Scoring(gold, metrics, listed(prices))
    if gold is None:
        warn_of_other_questions(folders)
    with built_aside(out.resolve()) as aside:
        _Pages(folders, aside, scoring, processes, live=False)
    return out


def _write_single(folders: Sequence[Path], out: Path, id: str, scoring: Scoring) -> Path:
    if len(folders) > 1:
        raise InputError("the page of a single question needs exactly one run")
    if out.exists() and not (out.is_file() and is_single_page(out)):
        raise InputError(f"{out} exists and is not the page of a question; choose another file")
    details = question_of(folders[0], id, scoring)
    write_atomically(out, single_page(f"{id} – {title_of(folders)}", details))
    return out


def folders_of(runs: Run | str | Path | Sequence[Run | str | Path]) -> list[Path]:
    """Return the folders of runs. Raises `InputError` if there is no run, a run is in memory, or a run is given
    twice.
    """
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    folders = [run.path if isinstance(run, Run) else Path(run) for run in given]
    known = [folder for folder in folders if folder is not None]
    if not known or len(known) < len(folders):
        raise InputError("a report needs runs with folders; pass a folder to pyfast.answer as `run`")
    if len({folder.resolve() for folder in known}) < len(known):
        raise InputError(f"the run {known[0]} is given twice")
    return known


def title_of(folders: Sequence[Path]) -> str:
    """Make the title of a page about these runs."""
    return f"{', '.join(_names_of(folders))} – pyfast"


def _names_of(folders: Sequence[Path]) -> list[str]:
    """Name the runs by the last part of their paths, or by as many parts as tell them apart."""
    paths = [folder.resolve().parts for folder in folders]
    names = (["/".join(parts[-count:]) for parts in paths] for count in range(1, max(map(len, paths)) + 1))
    return next(some for some in names if len(set(some)) == len(some))


def _differences(
    folders: Sequence[Path], parts: Sequence[dict[str, Any]], scoring: Scoring
) -> list[dict[str, Any]]:
    """Return the differences between runs, as `pyfast.compare` finds them. `parts` has the entry of each run
    in the manifest. The result is empty if there are no scores, or if there is only one run.
    """
    if len(folders) < 2 or not all(part["scores"] for part in parts):
        return []
    names = {str(folder): part["name"] for folder, part in zip(folders, parts, strict=True)}
    found = compare(folders, scoring.gold, metrics=scoring.metrics).as_json()["differences"]
    return [{**one, "a": names[one["a"]], "b": names[one["b"]]} for one in found]


STATIC = files("pyfast.reports") / "static"
SCRIPTS = (
    *("dom", "data", "charts", "overview", "questions", "path", "graph", "pictures", "question"),
    *("compare", "main"),
)
"""The files that make up app.js, in their order"""
VENDOR = ("cytoscape.min.js", "d3.min.js", "plot.umd.min.js")
LICENCES = ("cytoscape.LICENSE", "d3.LICENSE", "plot.LICENSE")
# Digests of the styles that Plot and Cytoscape add to the page, in the versions of `vendor`; a browser names those
# that it refuses.
STYLES = (
    "'sha256-+TfQir1nvDucAdvE6XUQBt4ayUjpAWkbw2kCdSfekHM='",
    "'sha256-vnLCBQhI2E03zAY/Mp8RxBhuZSloT7+cclqIlG2t6/M='",
    "'sha256-pgvDUBa4IjFA2yuSJ2cqcyxmNYJMborsd0ORcRv9vw8='",
)
_GENERATOR = b'<meta name="generator" content="pyfast">'
FROM_DISK = "A browser loads no data from the disk. Open this report from any web server, or with: pyfast view RUN"


def write_page(out: Path, title: str) -> None:
    """Write index.html, app.js, style.css and the libraries into a folder."""
    (out / "vendor").mkdir(parents=True, exist_ok=True)
    for name in (*VENDOR, *LICENCES):
        (out / "vendor" / name).write_bytes((STATIC / "vendor" / name).read_bytes())
    (out / "app.js").write_text(_script(), encoding="utf-8")
    (out / "style.css").write_text(_static("style.css"), encoding="utf-8")
    policy = _policy("'self'", "'self'", "'self'")
    head = '<link rel="stylesheet" href="style.css">\n<script src="app.js" defer></script>'
    (out / "index.html").write_text(_html(title, policy, head, FROM_DISK), encoding="utf-8")


def single_page(title: str, details: dict[str, Any]) -> str:
    """Return the HTML of a page with one question. If you save it as a file, a browser can open this file from
    the disk. `details` come from `details_of`.
    """
    parts = (_static(f"vendor/{VENDOR[0]}"), _script())
    scripts = [part.replace("</script", "<\\/script").replace("<!--", "<\\!--") for part in parts]
    allowed = " ".join(_digest(part) for part in scripts)
    sheet = _static("style.css")
    policy = _policy(allowed, _digest(sheet), "'none'")
    data = orjson.dumps(details).decode().replace("<", "\\u003c")
    head = f'<style>{sheet}</style>\n<script type="application/json" id="question">{data}</script>\n'
    tail = "\n".join(f"<script>{part}</script>" for part in scripts)
    return _html(title, policy, head, "This page needs JavaScript.", tail)


def is_single_page(path: Path) -> bool:
    """Return whether a file is a page that `single_page` wrote."""
    with path.open("rb") as file:
        return _GENERATOR in file.read(1 << 12)


def _script() -> str:
    """Return the text of app.js, joined from its parts."""
    parts = [_static(f"app/{name}.js") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _policy(scripts: str, styles: str, data: str) -> str:
    given = (f"script-src {scripts}", " ".join((f"style-src {styles}", *STYLES)), f"connect-src {data}")
    return "; ".join(("default-src 'none'", *given, "img-src data:", "base-uri 'none'", "form-action 'none'"))


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _html(title: str, policy: str, head: str, message: str, tail: str = "") -> str:
    page = Template(_static("page.html"))
    return page.substitute(title=escape(title), policy=policy, head=head, message=escape(message), tail=tail)


_PAUSE = 1.0  # the minimum number of seconds between two looks at a run
_SHARE = 5  # the minimum pause after a look, in multiples of the look's time
_TYPES = {".js": "text/javascript", ".json": "application/json", ".gz": "application/gzip"}


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
        stop: Set this event to stop the server.

    Raises:
        InputError: A run has no folder or is damaged, the gold file has none of its questions, or a model is
            missing from the price list.
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
    with scratch_folder() as made:
        pages = _Pages(folders, made, Scoring(gold, metrics, listed(prices)), None, live=True)
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
    """The folder with the pages and data of runs. `refresh` updates the data. If the pages are `live`, each
    request for the manifest calls `refresh`.
    """

    def __init__(
        self, folders: Sequence[Path], out: Path, scoring: Scoring, processes: int | None, live: bool
    ) -> None:
        self.out = out
        self._folders, self._scoring = folders, scoring
        self._processes, self._live = processes or available_cores(), live
        self._data = [self._open(number) for number in range(len(folders))]
        self._parts: list[dict[str, Any]] = [{} for _ in folders]
        self._seen: list[tuple[int, ...]] = [() for _ in folders]
        self._lock = threading.Lock()
        self._next = 0.0
        self.refresh()
        write_page(out, title_of(folders))

    def _open(self, number: int) -> RunData:
        place = self.out / "data" / f"run-{number}"
        if place.exists():
            rmtree(place)
        return RunData(self._folders[number], place, self._scoring)

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
                self._parts[number] = self._data[number].update(self._processes)
            if changed:
                self._write_manifest()
            took = time.monotonic() - began
            self._next = time.monotonic() + max(_PAUSE, _SHARE * took)

    def _write_manifest(self) -> None:
        """Write the manifest of a report: the data of the first screen, and where all other data is."""
        live = self._live and any(part["running"] for part in self._parts)
        names = _names_of(self._folders)
        runs = [{"name": name, **part} for name, part in zip(names, self._parts, strict=True)]
        apart = _differences(self._folders, runs, self._scoring)
        manifest = {"version": VERSION, "pyfast": __version__, "live": live, "runs": runs, "differences": apart}
        write_atomically(self.out / MANIFEST, orjson.dumps(manifest, option=orjson.OPT_NON_STR_KEYS))

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
    """Serves the files of the folder. It refuses requests for any host except 127.0.0.1 and localhost."""

    def __init__(self, *arguments: Any, pages: _Pages) -> None:
        self._pages = pages
        self.extensions_map = {**self.extensions_map, **_TYPES}
        super().__init__(*arguments, directory=str(pages.out))

    def send_head(self) -> Any:
        """Check the request before a file is sent."""
        name = self.headers.get("Host", "").rpartition(":")[0]
        if name not in ("127.0.0.1", "localhost"):  # A site elsewhere may have pointed its own name here.
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        if self.path.partition("?")[0] == f"/{MANIFEST}":
            try:
                self._pages.refresh()
            except (PyfastError, OSError) as error:
                LOG.warning("%s", error)
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
