"""Multi-hop question answering over text, tables and knowledge graphs, as fast as the LLM allows.

    >>> import pyfast
    >>> index = pyfast.build_index("corpus/", "IDX")
    >>> run = pyfast.answer(["Who discovered Titan?"], index=index, llm="embedded", system="n2n")
    >>> print(run.records[0].answer)

`import pyfast` alone loads no other module of pyfast. A name such as `pyfast.answer` is loaded when you first
use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pyfast import errors, ops, systems
    from pyfast.api.answer import answer
    from pyfast.api.engine import Engine
    from pyfast.api.estimate import estimate
    from pyfast.api.evaluation import compare, convert, evaluate
    from pyfast.api.index import (
        add_documents,
        build_index,
        compact_index,
        delete_documents,
        describe_index,
        open_index,
        update_documents,
    )
    from pyfast.api.knowledge import build_knowledge
    from pyfast.api.retrieval_evaluation import evaluate_retrieval
    from pyfast.api.run import Run
    from pyfast.api.verification import verify
    from pyfast.engine import Evidence, Question, Record, Usage, Watch
    from pyfast.experiments import Bench, Experiment, bench, experiment
    from pyfast.llm import LLM, open_llm
    from pyfast.options import (
        Cluster,
        GraphConvqaOptions,
        HseqOptions,
        IndexOptions,
        Load,
        RunOptions,
        Sampling,
        ServerOptions,
        read_options,
    )
    from pyfast.reports import report, show, view
    from pyfast.retrieval import Index
    from pyfast.server import serve, serve_mcp

__all__ = [
    "LLM",
    "Bench",
    "Cluster",
    "Engine",
    "Evidence",
    "Experiment",
    "GraphConvqaOptions",
    "HseqOptions",
    "Index",
    "IndexOptions",
    "Load",
    "Question",
    "Record",
    "Run",
    "RunOptions",
    "Sampling",
    "ServerOptions",
    "Usage",
    "Watch",
    "add_documents",
    "answer",
    "bench",
    "build_index",
    "build_knowledge",
    "compact_index",
    "compare",
    "convert",
    "delete_documents",
    "describe_index",
    "errors",
    "estimate",
    "evaluate",
    "evaluate_retrieval",
    "experiment",
    "open_index",
    "open_llm",
    "ops",
    "read_options",
    "report",
    "serve",
    "serve_mcp",
    "show",
    "systems",
    "update_documents",
    "verify",
    "view",
]

if not TYPE_CHECKING:  # A type checker reads only the imports above.
    _PLACES = {
        "pyfast.api.answer": ("answer",),
        "pyfast.api.index": (
            *("add_documents", "build_index", "compact_index", "delete_documents", "describe_index", "open_index"),
            "update_documents",
        ),
        "pyfast.api.evaluation": ("compare", "convert", "evaluate"),
        "pyfast.api.estimate": ("estimate",),
        "pyfast.api.retrieval_evaluation": ("evaluate_retrieval",),
        "pyfast.api.knowledge": ("build_knowledge",),
        "pyfast.api.run": ("Run",),
        "pyfast.api.engine": ("Engine",),
        "pyfast.api.verification": ("verify",),
        "pyfast.engine": ("Evidence", "Question", "Record", "Usage", "Watch"),
        "pyfast.experiments": ("Bench", "Experiment", "bench", "experiment"),
        "pyfast.llm": ("LLM", "open_llm"),
        "pyfast.options": (
            *("Cluster", "GraphConvqaOptions", "HseqOptions", "IndexOptions", "Load", "RunOptions", "Sampling"),
            *("ServerOptions", "read_options"),
        ),
        "pyfast.reports": ("report", "show", "view"),
        "pyfast.retrieval": ("Index",),
        "pyfast.server": ("serve", "serve_mcp"),
    }

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
