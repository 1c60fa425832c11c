"""Multi-hop question answering over text, tables and knowledge graphs, as fast as the LLM allows.

    >>> import pyfast
    >>> index = pyfast.build_index("corpus/", "IDX")
    >>> run = pyfast.answer(["Who discovered Titan?"], index=index, llm="embedded", system="n2n")
    >>> print(run.records[0].answer)

`import pyfast` alone loads no other module of pyfast than its version. A name such as `pyfast.answer` is loaded
when you first use it.
"""

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyfast.version import __version__ as __version__

if TYPE_CHECKING:
    from pyfast import errors as errors
    from pyfast import ops as ops
    from pyfast import systems as systems
    from pyfast.api.answering import answer as answer
    from pyfast.api.changing import add_documents as add_documents
    from pyfast.api.changing import compact_index as compact_index
    from pyfast.api.changing import delete_documents as delete_documents
    from pyfast.api.changing import describe_index as describe_index
    from pyfast.api.changing import update_documents as update_documents
    from pyfast.api.comparing import compare as compare
    from pyfast.api.converting import convert as convert
    from pyfast.api.estimating import estimate as estimate
    from pyfast.api.evaluating import evaluate as evaluate
    from pyfast.api.evaluating_retrieval import evaluate_retrieval as evaluate_retrieval
    from pyfast.api.indexing import build_index as build_index
    from pyfast.api.indexing import open_index as open_index
    from pyfast.api.knowledge import build_knowledge as build_knowledge
    from pyfast.api.run import Run as Run
    from pyfast.api.service import Engine as Engine
    from pyfast.api.verifying import verify as verify
    from pyfast.engine import Evidence as Evidence
    from pyfast.engine import Question as Question
    from pyfast.engine import Record as Record
    from pyfast.engine import Usage as Usage
    from pyfast.experiments import Bench as Bench
    from pyfast.experiments import Experiment as Experiment
    from pyfast.experiments import bench as bench
    from pyfast.experiments import experiment as experiment
    from pyfast.llm import LLM as LLM
    from pyfast.llm import open_llm as open_llm
    from pyfast.reports import report as report
    from pyfast.reports import show as show
    from pyfast.reports import view as view
    from pyfast.retrieval import Index as Index
    from pyfast.server import serve as serve
    from pyfast.server import serve_mcp as serve_mcp

if not TYPE_CHECKING:  # A type checker reads only the imports above.
    _PLACES = {
        "pyfast.api.answering": ("answer",),
        "pyfast.api.changing": (
            *("add_documents", "compact_index", "delete_documents", "describe_index", "update_documents"),
        ),
        "pyfast.api.comparing": ("compare",),
        "pyfast.api.converting": ("convert",),
        "pyfast.api.estimating": ("estimate",),
        "pyfast.api.evaluating": ("evaluate",),
        "pyfast.api.evaluating_retrieval": ("evaluate_retrieval",),
        "pyfast.api.indexing": ("build_index", "open_index"),
        "pyfast.api.knowledge": ("build_knowledge",),
        "pyfast.api.run": ("Run",),
        "pyfast.api.service": ("Engine",),
        "pyfast.api.verifying": ("verify",),
        "pyfast.engine": ("Evidence", "Question", "Record", "Usage"),
        "pyfast.experiments": ("Bench", "Experiment", "bench", "experiment"),
        "pyfast.llm": ("LLM", "open_llm"),
        "pyfast.reports": ("report", "show", "view"),
        "pyfast.retrieval": ("Index",),
        "pyfast.server": ("serve", "serve_mcp"),
    }
    _MODULES = ("errors", "ops", "systems")
    __all__ = sorted([*_MODULES, *chain.from_iterable(_PLACES.values())])

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'pyfast' has no attribute {name!r}")
        place = next((place for place, names in _PLACES.items() if name in names), None)
        from pyfast.extras import explained

        with explained():
            value = import_module(f"pyfast.{name}") if place is None else getattr(import_module(place), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
