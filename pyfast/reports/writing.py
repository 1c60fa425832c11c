"""`pyfast.report`: write runs as web pages, into a static folder for any web server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from pyfast import __version__
from pyfast.api.evaluation import GoldLike, compare
from pyfast.api.run import Run
from pyfast.errors import InputError
from pyfast.evaluation import Metric
from pyfast.evaluation.prices import Prices, listed
from pyfast.files import built_aside, write_atomically
from pyfast.ops.arrays import available_cores
from pyfast.reports.bundle import VERSION, RunData
from pyfast.reports.details import question_of
from pyfast.reports.page import is_single_page, single_page, write_page

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
    compressed chunks. The page loads a chunk when it needs it. Any web server can serve the folder. A browser
    loads no data if you open the page from the disk: use `pyfast view` for runs on this machine.

    Args:
        runs: A run, or several runs over the same questions, which the report compares. You can also give
            folders of runs.
        out: The folder to write. An existing report in this folder is replaced.
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
            in the price list, or `out` has files that are not a report.
        RunError: A process that wrote a part of the report was killed.

    Example:
        >>> import pyfast
        >>> pyfast.report("RUN", "REPORT", "QUESTIONS.jsonl")
        PosixPath('REPORT')
    """
    folders = folders_of(runs)
    out = Path(out)
    if single is not None:
        return _write_single(folders, out, single, gold, metrics)
    if out.exists() and not (out.is_dir() and ((out / MANIFEST).is_file() or not any(out.iterdir()))):
        raise InputError(f"{out}: exists and is not a report; choose another folder")
    known = listed(prices)
    with built_aside(out.resolve()) as aside:
        data = [
            RunData(folder, aside / "data" / f"run-{number}", gold, metrics, known)
            for number, folder in enumerate(folders)
        ]
        parts = [one.update(processes or available_cores()) for one in data]
        write_manifest(aside, parts, differences(folders, gold, metrics, parts))
        write_page(aside, title_of(folders))
    return out


def _write_single(
    folders: Sequence[Path],
    out: Path,
    id: str,
    gold: GoldLike | None,
    metrics: Sequence[str | Metric] | None,
) -> Path:
    if len(folders) > 1:
        raise InputError("a single question is of one run")
    if out.exists() and not (out.is_file() and is_single_page(out)):
        raise InputError(f"{out}: exists and is not the page of a question; choose another file")
    details = question_of(folders[0], id, gold, metrics)
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
        raise InputError("a report needs runs with folders; give pyfast.answer a folder as `run`")
    if len({folder.resolve() for folder in known}) < len(known):
        raise InputError(f"{known[0]}: given twice")
    return known


def title_of(folders: Sequence[Path]) -> str:
    """Make the title of a page about these runs."""
    return f"{', '.join(folder.resolve().name for folder in folders)} – pyfast"


def differences(
    folders: Sequence[Path],
    gold: GoldLike | None,
    metrics: Sequence[str | Metric] | None,
    parts: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the differences between runs, as `pyfast.compare` finds them. `parts` has the entry of each run
    in the manifest. The result is empty if there are no scores, or if there is only one run.
    """
    if len(folders) < 2 or not all(part["scores"] for part in parts):
        return []
    names = {str(folder): part["name"] for folder, part in zip(folders, parts, strict=True)}
    found = compare(folders, gold, metrics=metrics).as_json()["differences"]
    return [{**one, "a": names[one["a"]], "b": names[one["b"]]} for one in found]


def write_manifest(
    out: Path, runs: Sequence[dict[str, Any]], differences: Sequence[dict[str, Any]], live: bool = False
) -> None:
    """Write the manifest of a report: the data of the first screen, and where all other data is. `live` says
    whether a run is still in progress.
    """
    manifest = {"version": VERSION, "pyfast": __version__, "live": live, "runs": runs, "differences": differences}
    write_atomically(out / MANIFEST, orjson.dumps(manifest, option=orjson.OPT_NON_STR_KEYS))
