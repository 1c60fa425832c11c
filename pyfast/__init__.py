"""Multi-hop question answering over text, tables and knowledge graphs, as fast as the LLM allows.

    >>> import pyfast
    >>> index = pyfast.build_index("corpus/", "IDX")
    >>> run = pyfast.answer(["Who discovered Titan?"], index=index, llm="embedded", system="n2n")
    >>> print(run.records[0].answer)

`import pyfast` loads only pyfast's version. Names such as `pyfast.answer` are loaded when you first use them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyfast.utils.version import __version__ as __version__

if TYPE_CHECKING:
    from pyfast import errors as errors
    from pyfast import ops as ops
    from pyfast import systems as systems
    from pyfast.api.answer import answer as answer
    from pyfast.api.engine import Engine as Engine
    from pyfast.api.estimate import estimate as estimate
    from pyfast.api.evaluation import changed_answers as changed_answers
    from pyfast.api.evaluation import compare as compare
    from pyfast.api.evaluation import convert as convert
    from pyfast.api.evaluation import evaluate as evaluate
    from pyfast.api.evaluation import export as export
    from pyfast.api.evaluation import write_figures as write_figures
    from pyfast.api.experiments import Bench as Bench
    from pyfast.api.experiments import Experiment as Experiment
    from pyfast.api.experiments import bench as bench
    from pyfast.api.experiments import experiment as experiment
    from pyfast.api.index import add_documents as add_documents
    from pyfast.api.index import build_index as build_index
    from pyfast.api.index import compact_index as compact_index
    from pyfast.api.index import delete_documents as delete_documents
    from pyfast.api.index import describe_index as describe_index
    from pyfast.api.index import list_documents as list_documents
    from pyfast.api.index import open_index as open_index
    from pyfast.api.index import sync_documents as sync_documents
    from pyfast.api.index import update_documents as update_documents
    from pyfast.api.knowledge import build_knowledge as build_knowledge
    from pyfast.api.retrieval_evaluation import evaluate_retrieval as evaluate_retrieval
    from pyfast.api.run import Run as Run
    from pyfast.api.training import distill as distill
    from pyfast.api.verification import verify as verify
    from pyfast.engine import Evidence as Evidence
    from pyfast.engine import Question as Question
    from pyfast.engine import Record as Record
    from pyfast.engine import Usage as Usage
    from pyfast.engine import Watch as Watch
    from pyfast.llm import LLM as LLM
    from pyfast.llm import open_llm as open_llm
    from pyfast.reports import report as report
    from pyfast.reports import show as show
    from pyfast.reports import view as view
    from pyfast.retrieval import Index as Index
    from pyfast.server import serve as serve
    from pyfast.server import serve_mcp as serve_mcp
    from pyfast.utils.options import Cluster as Cluster
    from pyfast.utils.options import DistillOptions as DistillOptions
    from pyfast.utils.options import GraphConvqaOptions as GraphConvqaOptions
    from pyfast.utils.options import Hardware as Hardware
    from pyfast.utils.options import HseqOptions as HseqOptions
    from pyfast.utils.options import IndexOptions as IndexOptions
    from pyfast.utils.options import Load as Load
    from pyfast.utils.options import RunOptions as RunOptions
    from pyfast.utils.options import Sampling as Sampling
    from pyfast.utils.options import ServerOptions as ServerOptions
    from pyfast.utils.options import read_options as read_options

if not TYPE_CHECKING:  # A type checker reads only the imports above.
    _PLACES = {
        "pyfast.api.answer": "answer",
        "pyfast.api.index": "add_documents build_index compact_index delete_documents describe_index"
        " list_documents open_index sync_documents update_documents",
        "pyfast.api.evaluation": "changed_answers compare convert evaluate export write_figures",
        "pyfast.api.estimate": "estimate",
        "pyfast.api.retrieval_evaluation": "evaluate_retrieval",
        "pyfast.api.knowledge": "build_knowledge",
        "pyfast.api.run": "Run",
        "pyfast.api.engine": "Engine",
        "pyfast.api.training": "distill",
        "pyfast.api.verification": "verify",
        "pyfast.engine": "Evidence Question Record Usage Watch",
        "pyfast.api.experiments": "Bench Experiment bench experiment",
        "pyfast.llm": "LLM open_llm",
        "pyfast.utils.options": "Cluster DistillOptions GraphConvqaOptions Hardware HseqOptions IndexOptions Load"
        " RunOptions Sampling ServerOptions read_options",
        "pyfast.reports": "report show view",
        "pyfast.retrieval": "Index",
        "pyfast.server": "serve serve_mcp",
    }
    _PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}
    _MODULES = ("errors", "ops", "systems")
    __all__ = sorted([*_MODULES, *_PLACE_OF])

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'pyfast' has no attribute {name!r}")
        from pyfast.utils.extras import explained

        with explained():
            place = _PLACE_OF.get(name)
            value = import_module(f"pyfast.{name}") if place is None else getattr(import_module(place), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
