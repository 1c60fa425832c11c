"""The configuration of a run: everything that its answers depend on.

A run can be resumed only with the same configuration.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from pyfast.errors import InputError, of_another_build
from pyfast.llm import ROLES, Role
from pyfast.retrieval import Index
from pyfast.utils.files import write_atomically
from pyfast.utils.version import __version__

Configuration = dict[str, dict[str, Any]]
"""The tables of run.toml"""

CONFIGURATION = "run.toml"
FORMAT = 1
"""The version of the run format"""
_FORMAT = "format_version"
ENGINE = "engine"
"""The table that marks a folder as the journal of a `pyfast.Engine`, whose questions are not known beforehand"""
PLACES = "places"
"""The table with the paths of the index and model, which may differ between sessions of a run"""
STARTED_IN = "started_in"
"""The entry with the working directory of a run's last session, relative to the run's folder"""
COLUMNS = "columns"
"""The entry of the table `places` with the renamed columns of the question file, as JSON"""


def code_table() -> dict[str, Any]:
    """Return what run.toml records about pyfast's code."""
    return {"version": __version__, "digest": code_digest()}


def index_table(index: Index) -> dict[str, Any]:
    """Return what run.toml records about an index: everything that an answer can depend on."""
    manifest = index.manifest
    contents = json.dumps(manifest["files"], sort_keys=True).encode()
    described = {
        "commit": manifest["commit"],
        "corpus": manifest["corpus"],
        "parameters": json.dumps(manifest["parameters"], sort_keys=True),
        "contents": blake2b(contents, digest_size=16).hexdigest(),
        "retriever": index.retriever.fingerprint,
    }
    if index.filter:
        described["filter"] = list(map(str, index.filter))
    if index.rerankers:
        described["rerank"] = " ".join(reranker.fingerprint for reranker in index.rerankers)
    return described


def roles_in_common(one: Mapping[str, Any], other: Mapping[str, Any], known: bool = True) -> list[Role]:
    """Return the roles for which two `llm` tables of run.toml name the same LLM. `known`: whether the context
    windows are known, and so compared too."""
    names = ("fingerprint", "context_window") if known else ("fingerprint",)

    def of(table: Mapping[str, Any], role: Role) -> list[Any]:
        return [table.get(f"{role}_{name}", table.get(name)) for name in names]

    return [role for role in ROLES if of(one, role) == of(other, role) != [None] * len(names)]


def recorded_value(run: Path, table: str, name: str) -> Any:
    """Read a value from a run's run.toml.

    Args:
        run: The folder of a run.
        table: A table of run.toml.
        name: A key of this table.

    Returns:
        The value. None: there is no run or no such value.
    """
    path = run / CONFIGURATION
    return read_configuration(path).get(table, {}).get(name) if path.exists() else None


def recorded_path(run: Path, name: str) -> Path:
    """Find a file or folder that run.toml names in its table `places`.

    A relative path is searched for in the working directory, in the folder that contains the run, and in the
    folder in which the run was started. If that folder has been moved together with the run, it is found in its
    new location.

    Args:
        run: The folder of a run.
        name: `index`, `questions` or `gold`.

    Returns:
        The path.

    Raises:
        InputError: run.toml has no such entry, or the path does not exist. The message says where pyfast
            looked.
    """
    what = "index" if name == "index" else f"file of {name}"
    recorded = recorded_value(run, PLACES, name)
    if not isinstance(recorded, str) or not recorded:
        raise InputError(f"{run}: the run does not record its {what}")
    began = recorded_value(run, PLACES, STARTED_IN)
    started = [(run.resolve() / began).resolve()] if isinstance(began, str) else []
    folders = dict.fromkeys((Path.cwd(), run.resolve().parent, *started))
    for folder in folders:
        if (folder / recorded).exists():
            return Path(recorded) if folder == Path.cwd() else folder / recorded
    where = hint = ""
    if not Path(recorded).is_absolute():
        where = f" in {' or in '.join(map(str, folders))}"
        hint = "; go to the folder where the run was started"
    if name == "index":
        hint += (
            f"{' or,' if hint else ';'} if the index was moved, repeat the command of the run with its new place"
        )
    raise InputError(f"{run}: the {what} of this run is missing: there is no {recorded}{where}{hint}")


def with_accepted_code(described: Configuration, run: Path | None) -> Configuration:
    """Return a configuration with which the current code can resume the run in the folder `run`, although other
    code started it. The configuration names the code that started the run; if the current code differs, its
    version and digest are added to the table `places`. If the folder `run` contains no run yet, the configuration
    is unchanged.
    """
    if run is None or not (run / CONFIGURATION).exists():
        return described
    recorded, own = read_configuration(run / CONFIGURATION), described["code"]
    accepted = {**described, "code": recorded.get("code", own), "system": dict(described["system"])}
    continues = [] if accepted["code"] == own else [f"{own['version']} {own['digest']}"]
    if "code" in recorded.get("system", {}) and "code" in accepted["system"]:
        accepted["system"]["code"] = recorded["system"]["code"]
        if accepted["system"]["code"] != described["system"]["code"]:
            continues.append(f"system {described['system']['code']}")
    if continues:
        accepted[PLACES] = {**described[PLACES], "accepted_code": ", ".join(continues)}
    return accepted


def differences(recorded: Configuration, now: Configuration, unknown: Iterable[str] = ()) -> list[str]:
    """Compare two configurations. Returns one line per value that differs, with the old and the new value.

    The table `places`, and the values whose names are in `unknown`, are ignored. Checksums come last, because the
    other differences explain theirs.
    """
    before, after = dict(_flat(recorded)), dict(_flat(now))
    names = sorted((before.keys() | after.keys()) - set(unknown), key=lambda name: (name.endswith("digest"), name))
    if before.get("system.name") != after.get("system.name"):  # Settings of two systems cannot be compared.
        names = [name for name in names if not name.startswith(("system.set_", "prompts."))]
    return [
        f"{name} was {_shown(before.get(name, 'not set'))} and is now {_shown(after.get(name, 'not set'))}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def windows_of(described: Configuration) -> list[str]:
    """Return the names of the context windows in a configuration. Their values are known only after the LLMs
    have started."""
    return [f"llm.{name}" for name in described["llm"] if name.endswith("context_window")]


def configuration_digest(recorded: Configuration) -> str:
    """Compute a checksum of everything that `differences` compares, from the tables of run.toml. The journal
    stores this checksum, so that pyfast can check whether run.toml and the journal belong together."""
    values = json.dumps(dict(_flat(recorded)), sort_keys=True, default=str)
    return blake2b(values.encode(), digest_size=16).hexdigest()


def _shown(value: object) -> str:
    """Return a value as a one-line string, for a message."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))


def in_toml(described: Configuration) -> tuple[str, Configuration]:
    """Return the text of run.toml, and its tables, as `read_configuration` reads them."""
    text = tomli_w.dumps({_FORMAT: FORMAT, **described})
    tables = tomllib.loads(text)
    del tables[_FORMAT]
    return text, tables


def write_configuration(path: Path, described: Configuration) -> None:
    """Write run.toml and sync it to disk. If this fails, the old file remains."""
    write_atomically(path, in_toml(described)[0], durable=True)


def read_configuration(path: Path) -> Configuration:
    """Read the tables of run.toml.

    Raises `OtherBuildError` if the run has a different format, and `InputError` if the file is damaged.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}; --restart starts again") from None
    found = tables.pop(_FORMAT, None)
    if not all(isinstance(table, dict) for table in tables.values()):
        raise InputError(f"{path} is not a run configuration; --restart starts again")
    if found != FORMAT:
        again = "run it again, in another folder or with --restart"
        raise of_another_build(path.parent, found, FORMAT, again)
    asked = tables.get("questions", {})
    count, digest = asked.get("count"), asked.get("digest")
    if ENGINE not in tables and (type(count) is not int or count < 0 or not isinstance(digest, str)):
        what = "the number of questions or their checksum is missing; restore the file, or use --restart"
        raise InputError(f"{path} is damaged: {what}")
    return tables


def _flat(described: Configuration) -> Iterator[tuple[str, Any]]:
    for table, values in described.items():
        if table != PLACES:
            for name, value in values.items():
                yield f"{table}.{name}", value


# Code that no answer depends on: it is above the systems, and run.toml records what it decides.
_ABOVE = {"api", "commands", "evaluation", "integrations", "reports", "server", "training"}
_ABOVE |= {"__main__.py", "__init__.py"}
_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_digest(root: Path = _PACKAGE) -> str:
    """Compute a checksum of the code that answers depend on.

    The checksum covers the Python and native code of pyfast, and the versions of NumPy and SciPy. Code that
    no answer depends on, such as the API, the commands and the reports, is left out.
    """
    digest = blake2b(digest_size=8)
    for path in sorted([*root.rglob("*.py"), *root.glob("_native*")]):
        name = path.relative_to(root)
        if name.parts[0] not in _ABOVE and name.parts[1:2] != ("distributed",):
            digest.update(f"{name}\n".encode())
            digest.update(path.read_bytes())
    digest.update("".join(version(name) for name in ("numpy", "scipy")).encode())
    return digest.hexdigest()
