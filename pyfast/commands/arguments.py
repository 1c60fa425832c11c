"""Arguments that several commands share, and `with_options`, which derives a command's arguments and options from
a function's parameters and from the fields of its `Options` objects."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

import typer

from pyfast.errors import InputError
from pyfast.utils.options import Hardware, Option, Options, RunOptions, meanings, read_values, told

IndexFolder = Annotated[Path, typer.Argument(help="The folder of an index, built by `pyfast index`.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.")]
RunFolders = Annotated[list[Path], typer.Argument(help="The folders of runs.", metavar="RUN...")]
Limit = Annotated[int | None, typer.Option(min=1, max=10**9, help="Use only the first N questions or chunks.")]
_OPTIONS_FILE = Annotated[
    Path | None,
    typer.Option(
        "--options",
        help="A TOML file with options of this command, named like the fields of pyfast.RunOptions or, in the"
        " tables `sampling`, `cluster` and `hardware`, like those of pyfast.Sampling, pyfast.Cluster and"
        " pyfast.Hardware. The command line takes precedence.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOptions(Options):
    """Options and limits of language models."""

    llm_options: Annotated[
        Mapping[str, Any], Option(flag="--llm-option", typed=list[str] | None, read="values")
    ] = field(default_factory=dict)
    """An option of the LLM, such as timeout_s=60, or ROLE.NAME=VALUE for the LLM of one role; repeatable."""
    budget: Annotated[Mapping[str, str] | None, Option(typed=list[str] | None, read="pairs")] = None
    """A limit per question or text chunk, such as seconds=60 or tokens=20000, or for the whole run, such as
    run_tokens=1000000; repeatable. When a run reaches its limit, questions in progress still finish. serve, mcp
    and bench accept no run limits."""
    concurrency: Annotated[int | None, Option(min=1, max=65_536)] = None
    """How many questions or text chunks to process at once; by default 64, or 10,000 with a Batch API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models(LlmOptions):
    """The language models of a command, with their options and limits."""

    llm: Annotated[Mapping[str, str], Option(typed=list[str], shown=("embedded",), read="models")] = field(
        default_factory=dict
    )
    """The LLM: embedded (a small model; embedded:base without its adapter), vllm:MODEL, llamacpp:PATH.gguf,
    transformers:FOLDER, openai:MODEL@URL (a server), batch:MODEL@URL (a Batch API), instant (meaningless replies),
    or MODULE:NAME. ROLE=LLM chooses the LLM for one role (purpose of prompts), such as pick=LLM; repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Models):
    """What answers the questions: a system with its settings, and the language models."""

    system: str = "n2n"
    """A system that `pyfast systems` lists, or MODULE:NAME."""
    settings: Annotated[Mapping[str, str], Option(flag="--set", typed=list[str] | None, read="pairs")]
    """A setting of the system, such as graph=off or preset=paper; repeatable."""


OF_ONE_QUESTION = ("system", "settings", "llm", "llm_options", "budget")
"""The fields of `Asked` for commands that answer single questions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(Options):
    """How passages are found in an index."""

    retriever: str = "bm25"
    """The retriever, which finds passages: bm25 (by words; bm25:k1=0.9,b=0.4 sets its parameters), dense, sparse
    or late (by a model's vectors), hybrid (several, such as hybrid:bm25+sparse), or MODULE:NAME."""
    rerank: str = "off"
    """The reranker, which rescores the best passages: off, cross (a cross-encoder; cross:MODEL selects another),
    late (token vectors), both, http:URL#MODEL (a model on a server), or MODULE:NAME."""
    filter: list[str] | None = None
    """Search only documents that meet this condition, such as source=reports/*, level=table_row, time>=1990 (for
    triples) or meta.author=Sagan|Drake (one of these); repeatable. Documents must meet all conditions."""

    def open(self, index: str | Path, hardware: Hardware) -> Any:
        """Open an index."""
        import pyfast.api.index

        return pyfast.api.index.open_index(index, self.retriever, self.rerank, self.filter or (), hardware)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Options):
    """How files are read."""

    readers: Annotated[Sequence[str], Option(flag="--reader", typed=list[str] | None, read="several")] = ()
    """An additional file reader, as MODULE:NAME; repeatable."""
    ignore: Annotated[Sequence[str], Option(flag="--ignore", typed=list[str] | None, read="several")] = ()
    """Skip files and folders with this name or path, such as '*.png' or 'drafts/*'; repeatable."""
    columns: Annotated[int | None, Option(min=2)] = 64
    """The maximum number of columns in a table. A wider table is split into several, each of which begins with the
    first column of the original."""
    strict: bool = False
    """Stop at the first file that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingAgain(Reading):
    """How files are read for an existing index."""

    columns: Annotated[int | None, Option(min=2)] = None
    """The maximum number of columns in a table, as in `pyfast index`; by default, the maximum with which the
    index was built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring(Options):
    """What the answers of runs are scored against, and how."""

    gold: Annotated[Path | tuple[Path, Mapping[str, str]] | None, Option(typed=Path | None)] = None
    """A file with `id` (or `question`) and `answers` (for conversations, `turns`, each with `answers`), in JSON
    lines, CSV, TSV, XLSX, Parquet or Arrow. Default: gold.jsonl in the same folder as the run's questions or, if
    there is none, the question file itself."""
    columns: Annotated[Mapping[str, str] | None, Option(flag="--column", typed=list[str] | None, read="pairs")] = (
        None
    )
    """With --gold: map a column name that pyfast expects to the one in the gold file, such as answers=Antwort or
    id=Nr; repeatable. The mappings that the run was started with still apply."""
    metrics: Annotated[list[str] | None, Option(flag="--metric")] = None
    """A metric by name, or MODULE:NAME; repeatable. Default: the metrics that the gold file names, plus evidence
    if the file contains `supporting`. If it names none: em_f1 (exact match and F1) and evidence, or hits (of
    ranked answers) for conversations."""
    figures: Annotated[Sequence[str], Option(flag="--figure", typed=list[str] | None, read="several")] = ()
    """A figure to report, such as em; repeatable. Default: all."""
    prices: Path | None = None
    """A price list (TOML), to show costs in money too."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Create the object. A gold file and its columns become one value, as API functions expect it."""
        gold, columns = given.get("gold"), given.get("columns")
        if columns and gold is None:
            raise InputError("--column: can only be used with --gold")
        return cls(**{**given, "gold": (gold, columns) if columns else gold, "columns": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Options):
    """Where a command writes its result."""

    json: bool = False
    """Print the result as JSON."""
    out: Path | None = None
    """Also write the table to this file (.md, .tex, .csv, .jsonl, .parquet or .xlsx)."""
    overwrite: bool = False
    """Replace an existing file."""

    def check(self) -> None:
        """Raise `InputError` if `out` exists and must not be replaced, or has an unsupported suffix."""
        from pyfast.evaluation.tables import check_new

        if self.out is not None:
            check_new(self.out, self.overwrite)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command. A parameter whose type is a subclass of `Options` becomes one option per
    field, and `Annotated[CLASS, "NAME", ...]` selects some of the fields. Any other parameter becomes an argument
    or, if it is keyword-only, an option, whose help is in the docstring under `Args:`."""
    hints = get_type_hints(command, include_extras=True)
    summary, _, documented = (inspect.getdoc(command) or "").partition("\n\nArgs:\n")
    meant = dict(re.findall(r"^    (\w+): (.*(?:\n     .*)*)", documented, re.MULTILINE))
    groups: dict[str, tuple[type[Options], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        hint = hints[one.name]
        if (group := _group(hint)) is not None:
            groups[one.name], of_fields = group, meanings(group[0])
            chosen = (it for it in fields(group[0]) if it.name in group[1])
            parameters += (_parameter(it.name, it.type, it.default, of_fields[it.name]) for it in chosen)
        elif one.name in meant:
            is_option = one.kind is inspect.Parameter.KEYWORD_ONLY
            parameters.append(_parameter(one.name, hint, one.default, meant[one.name], is_option))
        else:  # Its type holds everything, including the help.
            parameters.append(_keyword(one.name, hint, one.default))
    wanted = {kind: names for kind, names in groups.values() if kind.TABLE or kind is RunOptions}
    if RunOptions in wanted:
        parameters.append(_keyword("options_file", _OPTIONS_FILE, None))
    parameters.append(_keyword("context", typer.Context))

    @wraps(command)
    def called(*, context: typer.Context, options_file: Path | None = None, **given: Any) -> None:
        from_file = {} if options_file is None else read_values(options_file, wanted)
        for argument, (kind, names) in groups.items():
            values = {name: _read(kind.__dataclass_fields__[name], given.pop(name)) for name in names}
            values |= {
                name: value
                for name, value in from_file.get(kind, {}).items()
                if getattr(context.get_parameter_source(name), "name", "") != "COMMANDLINE"
            }
            given[argument] = kind.of(values)
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    called.__doc__ = summary
    return called


def _group(hint: Any) -> tuple[type[Options], list[str]] | None:
    """Return the `Options` class that a type names and the names of the selected fields, or None if it names no
    such class."""
    parts = get_args(hint) or (hint,)
    if not (isinstance(parts[0], type) and issubclass(parts[0], Options)):
        return None
    names = parts[1:] if get_origin(hint) is Annotated else ()
    return parts[0], list(names or (one.name for one in fields(parts[0])))


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _parameter(name: str, hint: Any, given: Any, meaning: str, is_option: bool = True) -> inspect.Parameter:
    """Create the parameter for typer. `given` is its default in Python, and the first paragraph of `meaning` its
    help text."""
    help = " ".join(meaning.partition("\n\n")[0].split())
    of, about = told(hint)
    default: Any = None if given is MISSING or given == () else given
    if about.shown is not None:
        default = about.shown if isinstance(about.shown, str) else list(about.shown)
    flag = (about.flag or f"--{name.replace('_', '-')}") if is_option else ""
    flag = f"{flag}/--no-{flag[2:]}" if default is True else flag
    return _keyword(name, _annotation(about.typed or of, flag, help, about), default)


@cache
def _annotation(typed: Any, flag: str, help: str, about: Option) -> Any:
    limits: dict[str, Any] = {"help": help, "min": about.min, "max": about.max}
    return Annotated[typed, typer.Option(flag, **limits) if flag else typer.Argument(**limits)]


def _read(one: Field[Any], given: Any) -> Any:
    """Convert what the command line gave for a field into its value."""
    about = told(one.type)[1]
    if not about.read or (given is None and one.default is None):
        return given
    return _READERS[about.read](about.flag or f"--{one.name}", given)


def read_models(given: list[str] | None) -> dict[str, str]:
    """Read the `--llm` options: one model for each role (purpose of a prompt). Raises `InputError` if a role is
    given two models."""
    from pyfast.llm import DEFAULT_ROLE, ROLES

    specs: dict[str, str] = {}
    for text in given or ():
        role, equals, spec = text.partition("=")
        if not equals or role not in ROLES:
            role, spec = DEFAULT_ROLE, text
        if role in specs:
            raise InputError(f"--llm: the role {role!r} is given twice")
        specs[role] = spec
    return specs


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Read strings of the form NAME=VALUE into a mapping. Raises an `InputError` that names the option `option` if
    a string has another form."""
    named = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected NAME=VALUE")
        named[name] = value
    return named


def values(option: str, given: list[str] | None) -> dict[str, Any]:
    """Read strings of the form NAME=VALUE, as `pairs` does, and parse each value as JSON (numbers, true, objects).
    A value that is not JSON remains a string."""
    import orjson

    parsed: dict[str, Any] = {}
    for name, text in pairs(option, given).items():
        try:
            parsed[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            parsed[name] = text
    return parsed


def numbers(option: str, given: str) -> list[float]:
    """Read comma-separated numbers. Raises an `InputError` that names the option `option` if a part is not a
    number."""
    try:
        return [float(number) for number in given.split(",")] if given else []
    except ValueError:
        raise InputError(f"{option} {given}: expected numbers, such as 2,1") from None


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "models": lambda flag, given: read_models(given),
    "pairs": pairs,
    "values": values,
    "numbers": numbers,
    "several": lambda flag, given: given or (),
}
