"""`pyfast.evaluate_retrieval`: measure how much of the gold evidence a retriever finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain, compress
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import orjson

from pyfast.api.index import index_of
from pyfast.api.run import GoldLike, lines_of, rows_in
from pyfast.corpus.formats.files import refuse_published
from pyfast.engine import Evidence
from pyfast.engine.questions import ONLY_NAMED
from pyfast.errors import InputError
from pyfast.evaluation.compare import Difference
from pyfast.evaluation.compare import compare as differences_of
from pyfast.evaluation.data_sets import GOLD
from pyfast.evaluation.evaluate import Row, rows_of
from pyfast.evaluation.evidence import RetrievalQuestion, is_gold, of_rows, ranking_figures, with_rows
from pyfast.evaluation.gold import Gold, read_records
from pyfast.evaluation.metrics import Scored
from pyfast.retrieval import Index, Pool, cite, evidence_of
from pyfast.retrieval.own_documents import OwnDocuments, own_documents, together
from pyfast.retrieval.pools import RERANK_SCORES
from pyfast.retrieval.rerank import order_pools
from pyfast.utils.log import LOG
from pyfast.utils.options import Documents

Ranking = Literal["list", "graph_rank", "bridge_rank"]
_AT_ONCE = 64  # questions in a batch


@dataclass(frozen=True, slots=True)
class RetrievalSetting:
    """A retrieval configuration that can be compared with others."""

    retriever: str = "bm25"
    """The retriever, as in `pyfast.open_index`"""
    ranking: Ranking = "list"
    """How the passages are ranked. `list`: by the retriever. `graph_rank` or `bridge_rank`: by the op of this
    name"""
    expand: bool | str = False
    """Whether to add passages that share terms with the best passages, or the name of a retriever, such as
    `dense`, to add the passages that it finds most similar to them. Only with the ranking `bridge_rank`
    """
    rerank: str = "off"
    """The reranker, as in `pyfast.open_index`"""
    pool: int = 100
    """The number of passages to retrieve for a question"""

    @staticmethod
    def parse(text: str) -> RetrievalSetting:
        """Read a setting from a string such as `ranking=bridge_rank expand=on rerank=cross`. Raises `InputError`
        if it contains an invalid name or value."""
        given: dict[str, Any] = {}
        for word in text.split():
            name, _, value = word.partition("=")
            given[name] = {"on": True, "off": False}.get(value, value) if name == "expand" else value
            if name == "pool" and value.isdecimal():
                given[name] = int(value)
        names = [field.name for field in fields(RetrievalSetting)]
        if unknown := given.keys() - set(names):
            raise InputError(f"setting {text!r}: unknown key {sorted(unknown)[0]!r}; known: {', '.join(names)}")
        return RetrievalSetting(**given)

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is not valid."""
        if self.ranking not in get_args(Ranking):
            raise InputError(f"ranking: expected one of {', '.join(get_args(Ranking))}, got {self.ranking!r}")
        if not isinstance(self.expand, bool | str):
            raise InputError(f"expand: expected on, off or the name of a retriever, got {self.expand!r}")
        if self.expand and self.ranking != "bridge_rank":
            raise InputError("expand: only ranking=bridge_rank can rank the added passages")
        if not isinstance(self.pool, int) or self.pool < 1:
            raise InputError(f"pool: expected a whole number of passages, at least 1, got {self.pool!r}")

    def __str__(self) -> str:
        """Return the retriever, and every other value that differs from its default, as a string that `parse` can
        read."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        changed = {"retriever": self.retriever, **changed}
        return " ".join(f"{name}={'on' if value is True else value}" for name, value in changed.items())


@dataclass(frozen=True, slots=True)
class SettingReport:
    """The figures of one `RetrievalSetting`."""

    setting: RetrievalSetting
    rows: list[Row]
    """The figures for all questions first, then for each type of question"""
    questions: list[Scored]
    named: ClassVar[str] = "setting"  # the heading of the column with the report names
    cost: ClassVar[None] = None  # No LLM is called. `write_figures` reads the costs of runs,
    unanswered: ClassVar[None] = None  # and how many of their questions failed.


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """The result of `pyfast.evaluate_retrieval`: how much of the gold evidence each setting found."""

    settings: dict[str, SettingReport]
    """The report of each setting, by name"""
    differences: list[Difference]
    """The differences between each setting and every later one"""
    without_gold: tuple[str, ...]
    """The ids of the questions without gold evidence. They are not scored"""
    not_indexed: tuple[str, ...] = ()
    """Gold documents that are not in the index. They count as not found"""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON types, without the figures of individual questions."""
        reports = {
            name: {"setting": asdict(one.setting), "rows": [asdict(row) for row in one.rows]}
            for name, one in self.settings.items()
        }
        differences = [asdict(one) for one in self.differences]
        left_out = {"without_gold": list(self.without_gold), "not_indexed": list(self.not_indexed)}
        return {"settings": reports, "differences": differences, **left_out}


def evaluate_retrieval(
    index: Index | str | Path,
    questions: GoldLike,
    settings: Sequence[str | RetrievalSetting] | Mapping[str, str | RetrievalSetting] = ("",),
    *,
    gold: GoldLike | None = None,
    at: Sequence[int] = (2, 5, 10, 20),
    scores: str | Path | None = None,
    documents: Documents = "own",
) -> RetrievalReport:
    """Measure how much of the gold evidence one or more retrieval settings find, without calling an LLM.

    Gold evidence is a set of documents. The retrieved documents are ranked by their best passages, and gold tables
    by their best gold row, as in the metric `evidence`. `recall@k` is the share of the gold documents that are
    among the first k documents.

    Args:
        index: An index, or its folder. The index's own retriever and rerankers are ignored.
        questions: A JSON lines file, or mappings with the same keys: `id`, `question`, `supporting` (the uris of
            the gold documents) and optionally `type`, `answers`, `supporting_facts` and `supporting_cells`. If a
            question has a `table_id`, this table is its gold document.
        settings: `RetrievalSetting`s, or strings such as `"ranking=bridge_rank expand=on rerank=cross"`. Use a
            mapping to name the settings. An empty string means BM25. The report compares each setting with every
            later one.
        gold: A JSON lines file with `id` and `supporting`. None: the questions' field `supporting` or, if none has
            it, the file gold.jsonl that `pyfast data convert` wrote into their folder.
        at: The values of k for `recall@k` and `ndcg@k`.
        scores: A folder that caches reranker scores, so that later calls need not recompute them.
        documents: own: a question with the field `documents` searches only these documents, as in `pyfast.answer`.
            all: every question searches the whole index.

    Returns:
        For each setting, `recall@k`, `ndcg@k` and `mrr` (mean reciprocal rank) with 95 % intervals. For each pair
        of settings, the differences on the same questions, with p-values after Holm's correction.

    Raises:
        InputError: A setting or a file is not valid, or no question has gold evidence.
        ModelNotFoundError: The model of a reranker or retriever is not on this machine.

    Example:
        >>> import pyfast
        >>> questions = [{"id": "q1", "question": "Who discovered Titan?", "supporting": ["titan"]}]
        >>> index = pyfast.build_index([{"id": "titan", "title": "Titan", "text": "Huygens found it."}], "IDX")
        >>> report = pyfast.evaluate_retrieval(index, questions, ["", "ranking=bridge_rank expand=on"])
        >>> report.settings["retriever=bm25"].rows[0]["recall@2"].value == 1
        True
    """
    named = _named(settings)
    cuts = sorted(set(at))
    if not cuts or cuts[0] < 1:
        raise InputError(f"at: expected ranks of at least 1, got {list(at)}")
    asked, without = _asked(questions, gold)
    if documents == "all":
        asked = [one.model_copy(update={"documents": ()}) for one in asked]
    elif own_count := sum(bool(one.documents) for one in asked):
        LOG.warning(ONLY_NAMED, own_count, len(asked))
    opened = index_of(index)
    rows = rows_in(lambda: opened)
    completed = [with_rows(one, rows) for one in asked]
    asked = [one for one, _, _ in completed]
    not_indexed = tuple(dict.fromkeys(chain.from_iterable(missing for _, _, missing in completed)))
    alike: dict[tuple[str, str], dict[str, RetrievalSetting]] = {}
    for name, setting in named.items():
        alike.setdefault((setting.retriever, setting.rerank), {})[name] = setting
    shares: dict[str, dict[str, dict[str, tuple[float, float]]]] = {name: {} for name in named}
    for (retriever, rerank), of_index in alike.items():
        searched = Index(opened.folder, retriever, opened.commit, rerank, hardware=opened.hardware)
        if scores is not None:
            Path(scores).mkdir(parents=True, exist_ok=True)
            searched = searched.keeping_scores(Path(scores) / RERANK_SCORES)
        for name, some, pools in _pools(searched, asked, of_index):
            for one, pool in zip(some, pools, strict=True):
                shares[name][one.id] = _shares(searched, pool, one, cuts)
    types = {one.id: {"type": one.type or "(none)"} for one in asked}
    scored = {
        name: [Scored(id, "retrieved", None, types[id], None, of_setting[id]) for id in types]
        for name, of_setting in shares.items()
    }
    reports = {name: SettingReport(one, rows_of(scored[name]), scored[name]) for name, one in named.items()}
    return RetrievalReport(reports, differences_of(scored)[0], without, not_indexed)


def _named(
    settings: Sequence[str | RetrievalSetting] | Mapping[str, str | RetrievalSetting],
) -> dict[str, RetrievalSetting]:
    pairs = settings.items() if isinstance(settings, Mapping) else ((None, one) for one in settings)
    named: dict[str, RetrievalSetting] = {}
    for given, one in pairs:
        setting = RetrievalSetting.parse(one) if isinstance(one, str) else one
        name = str(setting) if given is None else given
        if name in named:
            raise InputError(f"settings: {name!r} is given twice")
        named[name] = setting
    if not named:
        raise InputError("settings: expected at least one")
    return named


def _asked(questions: GoldLike, gold: GoldLike | None) -> tuple[list[RetrievalQuestion], tuple[str, ...]]:
    """Return (the questions with gold evidence, the ids of the questions without it)."""
    every = _read(questions)
    if gold is None and isinstance(questions, str | Path) and not any(one.supporting for one in every):
        beside = Path(questions).with_name(GOLD)
        gold = beside if beside.is_file() else None
    if gold is not None:
        supporting = {one.id: one for one in _read(gold)}
        every = [
            supporting.get(one.id, one).model_copy(update={"question": one.question, "documents": one.documents})
            for one in every
        ]
    asked = [one for one in every if one.supporting and one.question.strip()]
    if not asked:
        raise InputError("no question lists its gold evidence (`supporting`)")
    return asked, tuple(one.id for one in every if not one.supporting)


def _pools(
    index: Index, questions: Sequence[RetrievalQuestion], settings: Mapping[str, RetrievalSetting]
) -> Iterator[tuple[str, Sequence[RetrievalQuestion], list[Pool]]]:
    """Yield (setting name, batch of questions, the pool that each of them finds in `index` with this setting). A
    question with its own documents searches an index of only these, which all settings share."""
    whole = [one for one in questions if not one.documents]
    for some in _batches(whole):
        for name, setting in settings.items():
            yield name, some, _ranked(index, [one.question for one in some], setting)
    for some in _batches([one for one in questions if one.documents]):
        owns = own_documents(index, [one.documents or () for one in some])
        for name, setting in settings.items():
            yield name, some, _within(index, list(zip(owns, (one.question for one in some), strict=True)), setting)


def _batches(questions: Sequence[RetrievalQuestion]) -> Iterator[Sequence[RetrievalQuestion]]:
    return (questions[start : start + _AT_ONCE] for start in range(0, len(questions), _AT_ONCE))


def _within(index: Index, items: Sequence[tuple[OwnDocuments, str]], setting: RetrievalSetting) -> list[Pool]:
    """Return the passages of `index` that each question finds in its own documents."""
    joined = [own.arrays and not isinstance(setting.expand, str) for own, _ in items]
    found = iter(together(_ranked, index, [*compress(items, joined)], setting) if any(joined) else ())
    pools = (
        next(found) if is_joined else _ranked(own, [question], setting)[0]
        for (own, question), is_joined in zip(items, joined, strict=True)
    )
    return [
        replace(pool, passages=own.base_rows[pool.passages].astype(np.int32))
        for (own, _), pool in zip(items, pools, strict=True)
    ]


def _read(source: GoldLike) -> list[RetrievalQuestion]:
    lines = lines_of(source)
    if isinstance(lines, Path):
        refuse_published(lines)
    return list(read_records(lines, RetrievalQuestion))


def _ranked(index: Index, questions: Sequence[str], setting: RetrievalSetting) -> list[Pool]:
    pools = index.search(questions, setting.pool)
    return order_pools(index, list(zip(pools, questions, strict=True)), setting.ranking, setting.expand)


def _shares(index: Index, pool: Pool, question: Gold, cuts: Sequence[int]) -> dict[str, tuple[float, float]]:
    ranked = [index.uri(passage) for passage in pool.passages.tolist()]
    if not (tables := of_rows(question)).isdisjoint(ranked):
        (cited,) = cite(index, [evidence_of(index, pool)])
        for place, item in enumerate(map(Evidence.read, orjson.loads(cited))):
            if item.uri in tables and not is_gold(item, question):
                ranked[place] += " (another row)"
    figures = ranking_figures(list(dict.fromkeys(ranked)), question.supporting or (), cuts)
    return {name: (value, 1.0) for name, value in figures.items()}
