"""`pyfast.experiment`: run each system with each model and seed on each data set, and make a table."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from hashlib import file_digest
from pathlib import Path
from statistics import stdev
from typing import Any, cast

import orjson

from pyfast.api.answer import answer
from pyfast.api.evaluation import evaluate
from pyfast.api.experiments.latency import bench
from pyfast.api.experiments.plan import (
    Model,
    Plan,
    Row,
    check_figures,
    folder_name,
    is_published,
    read_plan,
    unused_figures,
)
from pyfast.api.experiments.writing import (
    Cell,
    Searched,
    failures,
    name_of,
    searched,
    summary_of,
    systems_of,
    write_tables,
)
from pyfast.api.index import build_index, open_index
from pyfast.api.jobs import AnswerArguments, job_of
from pyfast.api.knowledge import build_knowledge, open_knowledge
from pyfast.api.models import opened
from pyfast.api.summaries import SUMMARIES, summarize_index
from pyfast.engine import Event, Watch, read_questions
from pyfast.engine.configuration import CONFIGURATION
from pyfast.engine.distributed.cluster import connected
from pyfast.engine.events import UNWATCHED
from pyfast.engine.journal.journal_reader import service_times
from pyfast.engine.status import read_status
from pyfast.errors import InputError, RunError
from pyfast.evaluation import Scored
from pyfast.evaluation.compare import Difference, few_note, holm
from pyfast.evaluation.compare import compare as differences_of
from pyfast.evaluation.cost import Prices, cost_of, listed, mean_cost
from pyfast.evaluation.evaluate import groups_of, names_of, rows_of, unanswered_of
from pyfast.evaluation.tables import DIFFERENCE, check_new, difference_cells, notes_of, write_table
from pyfast.knowledge import has_knowledge
from pyfast.llm import DEFAULT_ROLE
from pyfast.retrieval import Index
from pyfast.retrieval.pools import check_named
from pyfast.retrieval.vectors.embeddings import DEFAULT
from pyfast.systems import load_system
from pyfast.utils.files import free_name, write_atomically
from pyfast.utils.log import LOG
from pyfast.utils.options import OF_EXPERIMENT, RUN_DEFAULTS, Cluster, FollowUps, Load, RunOptions, Sampling
from pyfast.utils.text_forms import counted

_LOOK_S = 0.25
_OF_ROWS = {"of_a": "of_baseline", "of_b": "of_row", "first": "of the baseline", "second": "of the row"}
_QUESTIONS = ("questions.jsonl", "conversations.jsonl")


@dataclass(frozen=True, slots=True)
class _Work:
    """What all cells of an experiment share: its plan, its folder, and how its runs are carried out."""

    plan: Plan
    folder: Path
    options: RunOptions
    concurrency: int | None
    watch: Watch
    prices: Prices | None

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of a job in which a model reads a corpus"""
        options = RunOptions(outage=self.options.outage)
        return {"concurrency": self.concurrency, "options": options, "watch": self.watch}


@dataclass(frozen=True, slots=True)
class _DataSet:
    """A data set of the plan: its folder, and the digest of its corpus."""

    name: str
    source: Path
    digest: str

    @property
    def questions(self) -> Path:
        return next(self.source / name for name in reversed(_QUESTIONS) if (self.source / name).is_file())


@dataclass(frozen=True, slots=True)
class _Planned:
    """A cell before its runs: a row on a data set with a model."""

    data: _DataSet
    row: Row
    model: str
    index: Index
    folder: Path
    seeds: Sequence[int]

    @property
    def runs(self) -> tuple[Path, ...]:
        """The folder of each seed's run"""
        return tuple(self.folder / f"seed-{seed}" for seed in self.seeds)


@dataclass(frozen=True, slots=True)
class Experiment:
    """The result of `pyfast.experiment`.

    Example:
        >>> import pyfast
        >>> rows = [{"name": "RAG", "system": "rag"}, {"name": "LLM alone", "system": "direct"}]
        >>> result = pyfast.experiment({"sets": ["moons"], "rows": rows}, "DATA", "COMPARED", llm="instant")
        >>> for one in result.compare("LLM alone"):
        ...     print(one.b, one.figure, one.difference, one.p_holm)
    """

    plan: Plan
    cells: list[Cell]

    def summary(self) -> tuple[list[str], list[list[str]]]:
        """Return the main figures of each cell as a table: a header, and a row for each cell."""
        return summary_of(self.plan, self.cells)

    def compare(
        self, baseline: str | None = None, out: str | Path | Sequence[str | Path] | None = None
    ) -> list[Difference]:
        """Compare each row with the baseline row, for each data set and model, question by question.

        Args:
            baseline: The name of the row to compare all other rows with. None: the first row that was run.
            out: A file for the differences with their intervals and p-values, or several. The name of each ends
                in .md, .tex, .csv, .jsonl, .parquet or .xlsx. Replaces existing files. Below the table, Markdown
                and LaTeX name the rows with questions that failed, and the sets with too few questions.

        Returns:
            The differences in each column of the plan, with p-values. Holm's correction over all differences
            is already applied to `p_holm`.

        Raises:
            InputError: No row that was run has this name, or `out` has a different extension.
        """
        files = [Path(one) for one in ([out] if isinstance(out, str | Path) else out or ())]
        for file in files:
            check_new(file, overwrite=True)
        name = baseline or (self.cells[0].row if self.cells else "")
        if name not in {cell.row for cell in self.cells}:
            raise InputError(f"no row {name!r} was run")
        found = list[tuple[dict[str, str], Difference]]()
        together = len(self.cells) * len(self.plan.columns)
        bases = {(cell.set, cell.model): cell for cell in self.cells if cell.row == name}
        for cell in self.cells:
            base = bases.get((cell.set, cell.model), cell)
            if base is not cell:
                place = {"set": cell.set, "model": cell.model, "row": cell.row, "baseline": name}
                pair = {name_of(base): base.scored, name_of(cell): _as(base.scored, cell.scored)}
                compared, _ = differences_of(pair, together)
                found += [(place, one) for one in compared if one.figure in self.plan.columns]
        few = {cell.set: few_note(len(set(groups_of(cell.scored))), len(found)) for cell in bases.values()}
        notes = [f"{of_set}: {note}" for of_set, note in few.items() if note]
        for note in notes:
            LOG.warning("%s", note)
        corrected = holm([one.p for _, one in found])
        both = [(place, replace(one, p_holm=p)) for (place, one), p in zip(found, corrected, strict=True)]
        records = [
            {**place, **{_OF_ROWS.get(key, key): it for key, it in asdict(one).items() if key not in ("a", "b")}}
            for place, one in both
        ]
        head = [_OF_ROWS.get(one, one) for one in DIFFERENCE]
        grid = (
            ["set", "model", "row", "baseline", *head],
            [[*place.values(), *difference_cells(one)] for place, one in both],
        )
        for file in files:
            write_table(file, records, [grid], [*failures(self.cells), *notes])
        return [one for _, one in both]


def experiment(
    plan: str | Path | Mapping[str, Any] | Plan,
    data: str | Path,
    out: str | Path,
    *,
    llm: str | Mapping[str, str] | None = None,
    llm_options: Mapping[str, Any] | None = None,
    limit: int | None = None,
    latency: int | None = None,
    prices: str | Path | Prices | None = None,
    concurrency: int | None = None,
    options: RunOptions = RUN_DEFAULTS,
    cluster: Cluster | None = None,
    watch: Watch = UNWATCHED,
) -> Experiment:
    """Run systems on data sets, score the answers, and write tables.

    Each combination of row, set, model and seed has a run in its own folder in `out`. If an experiment was
    stopped or killed, call `experiment` again with the same arguments to resume it without repeating
    finished runs. The indexes are also built in `out`.

    Args:
        plan: A TOML file, the name of a plan that comes with pyfast (`pyfast experiment --list`), or a
            mapping with the content of a plan.
        data: A folder with a subfolder for each set of the plan. `pyfast data convert` writes such subfolders:
            corpus.jsonl, questions.jsonl (or conversations.jsonl) and optionally gold.jsonl.
        out: The folder of the experiment: runs, indexes, tables.md, tables.tex, tables.csv, cells.parquet and, if
            matplotlib is installed, pareto.png and pareto.pdf.
        llm: A model that replaces the models of the plan: a string that names the model, or a mapping from roles
            to such strings.
        llm_options: Options of `llm`.
        limit: Ask only the first `limit` questions of each set. This argument replaces the plan's `limit`.
            You can resume the experiment with a larger `limit`.
        latency: Let one client ask this many questions of each cell, one by one, in this process, to measure the
            latency. This argument replaces the plan's `latency`.
        prices: A price list, or its file, for costs in money.
        concurrency: How many questions are in progress at the same time. None: as in `pyfast.answer`.
        options: As in `pyfast.answer`. `outage`, `sample`, `restart` and `accept_code` have an effect here;
            others are rejected. `sample` replaces the plan's `sample`, and you can resume the experiment with a
            larger one. Finished runs that other code started stay as they are; a warning names them.
        cluster: Let the workers of a Ray cluster carry out the runs. Each worker carries out one run at a time, so
            `cluster.workers` is the number of simultaneous runs. `out` must be a folder that all machines share.
            Pass models as strings. None: this process carries out the runs, one after another.
        watch: As in `pyfast.answer`, for all runs. If `watch.stop` is set, `RunError` is raised.

    Returns:
        The experiment, with the cells of the table.

    Raises:
        InputError: The plan or a set cannot be read, or `out` has runs of another experiment.
        RunError: A run cannot continue, or was stopped. Call `experiment` again with the same arguments to resume.

    Example:
        >>> import pyfast
        >>> rows = [{"name": "RAG", "system": "rag"}, {"name": "LLM alone", "system": "direct"}]
        >>> plan = {"sets": ["moons"], "rows": rows}
        >>> result = pyfast.experiment(plan, "DATA", "EXPERIMENT", llm="instant")
        >>> [(cell.row, cell.figures["em"].questions) for cell in result.cells]
        [('RAG', 2), ('LLM alone', 2)]
    """
    options.only("experiment", *OF_EXPERIMENT)
    models = None if llm is None else {_name_of(llm): Model(llm=llm, options=llm_options or {})}
    changed = {"models": models, "limit": limit, "sample": options.sample, "latency": latency}
    read = read_plan(plan).model_copy(update={name: new for name, new in changed.items() if new is not None})
    folder, sources = Path(out), {name: _source(Path(data) / name) for name in read.sets}
    if (folder / CONFIGURATION).exists():
        raise InputError(f"{folder} is the folder of a run; use another one for the experiment")
    check_figures(read)
    for note in unused_figures(read):
        LOG.warning("%s", note)
    for row in read.rows:  # A fault in the last row must not be found after the others were paid for.
        try:
            if not row.not_run:
                load_system(row.system).configure(row.settings)
                check_named(row.retriever, row.rerank)
        except InputError as error:
            where = f"{plan}: " if isinstance(plan, str | Path) else ""
            raise InputError(f"{where}the row {row.name!r}: {error}") from None
    sets = [_DataSet(name, source, _digest(source / "corpus.jsonl")) for name, source in sources.items()]
    work = _Work(read, folder, options, concurrency, watch, listed(prices))
    planned, found = [], dict[tuple[str, str], Searched]()
    for one in sets:
        for model_name in read.models:
            plain = _index(work, one, model_name)
            tree, summaries = _summarized(work, one, plain, model_name)
            found[one.name, model_name] = searched(
                one.questions, plain, summaries, _extracted(read, plain, model_name)
            )
            for row in read.rows:
                if not row.not_run:
                    index = tree if load_system(row.system).reads_summaries else plain
                    if (row.retriever, row.rerank) != index.opened_with[:2]:
                        index = _searched_by(row, index, read)
                    names = (folder_name(one.name), folder_name(row.name), folder_name(model_name))
                    place = folder.joinpath("runs", *names)
                    planned.append(_Planned(one, row, model_name, index, place, read.seeds))
    todo = [partial(_run, work, cell, seed) for cell in planned for seed in read.seeds]
    watch = replace(watch, on_limited=cache(watch.on_limited))  # Not every run should log the same again.
    if cluster is None:
        for do in todo:
            do(watch=watch)
    else:
        _run_on_workers(todo, cluster, watch)
    cells = [_cell(work, cell) for cell in planned]
    known = list(dict.fromkeys(name for cell in cells for name in names_of(cell.scored)))
    if unknown := [name for name in read.columns if name not in known and not is_published(read, name)]:
        raise InputError(
            f"`columns` of the plan: unknown figure {unknown[0]!r}; known: {', '.join(known)} (the runs are kept)"
        )
    try:
        for number, cell in enumerate(planned):
            cells[number] = replace(cells[number], latency=_latency(work, cell))
    finally:  # The runs were paid for, even if the latency cannot be measured.
        write_tables(read, cells, folder, found)
    for note in failures(cells):
        LOG.warning("%s", note)
    return Experiment(read, cells)


def _run_on_workers(runs: Sequence[Callable[..., Any]], cluster: Cluster, watch: Watch) -> None:
    """Carry out runs on a cluster. Each worker of the cluster carries out one run at a time.

    `runs` has one function for each run, which gets the arguments `cluster` and `watch` of `pyfast.answer`. Calls
    of `on_event` do not overlap. The counts in an event are sums over all runs that have started. If a run raises
    an error, all other runs in progress are stopped before it is raised.
    """
    halt, turn = threading.Event(), threading.Lock()
    counts: dict[int, tuple[int, int]] = {}

    def hear(number: int, event: Event) -> None:
        with turn:
            counts[number] = event.done, event.total
            done, total = map(sum, zip(*counts.values(), strict=True))
            watch.on_event(replace(event, done=done, total=total))

    with connected(cluster) as pool:
        threads = ThreadPoolExecutor(pool.size, "pyfast-run")
        one = replace(cluster, workers=1)
        doing = [
            threads.submit(run, cluster=one, watch=Watch(partial(hear, number), None, halt, watch.on_limited))
            for number, run in enumerate(runs)
        ]
        try:
            left = set(doing)
            while left and not (watch.stop is not None and watch.stop.is_set()):
                ended, left = wait(left, _LOOK_S, FIRST_COMPLETED)
                for run in ended:
                    run.result()
        finally:
            halt.set()
            threads.shutdown(cancel_futures=True)
        for run in doing:
            if run.cancelled():
                raise RunError("stopped; the same command resumes the experiment")
            run.result()


def _run(work: _Work, cell: _Planned, seed: int, *, watch: Watch, cluster: Cluster | None = None) -> None:
    """Carry out the run of a cell with a seed, or resume it. Nothing happens if it is finished."""
    plan, row, run = work.plan, cell.row, cell.folder / f"seed-{seed}"
    model, follow_ups = plan.models[cell.model], cast(FollowUps, row.follow_ups)
    LOG.info("%s", run)
    options = replace(work.options, follow_ups=follow_ups, sample=plan.sample, documents=plan.documents)
    given: dict[str, Any] = {
        "index": cell.index,
        "llm": model.llm,
        "llm_options": model.options,
        "system": row.system,
        "settings": row.settings,
        "run": run,
        "limit": plan.limit,
        "concurrency": work.concurrency,
        "budget": None,
        "sampling": Sampling(plan.temperature, seed),
        "options": options,
    }
    questions, has_begun = cell.data.questions, not options.restart and (run / CONFIGURATION).exists()
    if has_begun:
        changed = job_of(questions, AnswerArguments(**given), joins=True)[0].changed_since_the_end()
        if changed:
            LOG.warning("%s: its questions were answered by different code; --restart answers them again", run)
        if changed is not None:
            return
    done = answer(questions, **given, cluster=cluster, watch=watch)
    if done.status.ended < done.status.questions:
        raise RunError(f"{run}: stopped; the same command resumes the experiment")


def _cell(work: _Work, cell: _Planned) -> Cell:
    gold, runs, metrics = cell.data.source / "gold.jsonl", cell.runs, work.plan.metrics
    reports = [evaluate(run, gold if gold.is_file() else cell.data.questions, metrics=metrics) for run in runs]
    scored = _together([report.questions for report in reports])
    costs = [
        cost_of(str(run), run, report.questions, work.prices) for run, report in zip(runs, reports, strict=True)
    ]
    figures, paper = rows_of(scored)[0].figures, cell.row.paper.get(cell.data.name, {})
    times = [one for one in map(service_times, runs) if one is not None]
    # Divide all questions by all seconds, because a mean of rates would hide a slow run behind a fast one.
    counts = [len(one.seconds) for one in times]
    busy = sum(count / one.throughput for count, one in zip(counts, times, strict=True))
    rate = sum(counts) / busy if len(times) == len(runs) else None
    wholes = [report.rows[0].figures for report in reports]
    each = {one: [whole[one].value for whole in wholes if one in whole] for one in figures}
    spread = {one: stdev(values) for one, values in each.items() if len(values) > 1}
    failed = unanswered_of([one for report in reports for one in report.questions])
    # The table says itself how many questions of a set were run.
    spent, notes = mean_cost(costs), notes_of(replace(reports[0], not_run=()))
    names = cell.data.name, cell.row.name, cell.model
    return Cell(*(*names, runs, figures, paper, spent, scored, failed, notes, rate), spread=spread)


def _latency(work: _Work, cell: _Planned) -> Mapping[str, float]:
    """Measure the latency of a cell with one client. Without the option `restart`, an earlier measurement is
    reused."""
    plan, model = work.plan, work.plan.models[cell.model]
    if not plan.latency:
        return {}
    out = cell.folder / f"latency-{plan.latency}"
    if work.options.restart or not (out / "bench.json").exists():
        bench(
            list(read_questions(cell.data.questions, plan.latency)),
            Load(clients=[1], count=plan.latency, warm_up=1, repeats=1, documents=plan.documents),
            index=cell.index,
            llm=model.llm,
            llm_options=model.options,
            system=cell.row.system,
            settings=cell.row.settings,
            out=out,
        )
    (load,) = orjson.loads((out / "bench.json").read_bytes())["loads"]
    return {f"p{p}": load[f"p{p}_e2el_ms"] / 1e3 for p in (50, 95, 99) if f"p{p}_e2el_ms" in load}


def _together(of_seeds: Sequence[Sequence[Scored]]) -> Sequence[Scored]:
    """Add up the scores of each question over the seeds."""
    return [_sum(same) for same in zip(*(_as(of_seeds[0], scored) for scored in of_seeds), strict=True)]


def _sum(same: Sequence[Scored]) -> Scored:
    shares = {
        name: (sum(one.shares[name][0] for one in same), sum(one.shares[name][1] for one in same))
        for name in same[0].shares
    }
    return replace(same[0], shares=shares)


def _as(like: Sequence[Scored], scored: Sequence[Scored]) -> Sequence[Scored]:
    """Return the questions `scored` in the order of the questions `like`."""
    by_id = {one.id: one for one in scored}
    return [by_id[one.id] for one in like]


def _source(folder: Path) -> Path:
    if not (folder / "corpus.jsonl").is_file() or not any((folder / name).is_file() for name in _QUESTIONS):
        raise InputError(
            f"{folder}: expected corpus.jsonl and questions.jsonl, as `pyfast data convert` writes them"
        )
    return folder


def _searched_by(row: Row, index: Index, plan: Plan) -> Index:
    """Open an index again, with the retriever and the reranker of a row."""
    try:
        return open_index(index.folder, row.retriever, row.rerank)
    except InputError as error:
        hint = "" if plan.vectors else "; for an experiment, set the key `vectors` of the plan"
        raise InputError(f"the row {row.name!r}: {error}{hint}") from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()


def _check_same(work: _Work, data: _DataSet, place: Path, **models: str) -> None:
    """Compare the inputs of an index (the corpus, the vectors and the `models` that read the corpus) with those
    recorded when it was built, and record them beside it. If they differ, `restart` renames the index; without
    `restart`, the function raises `InputError` if runs exist."""
    corpus, notes = data.source / "corpus.jsonl", place.parent / "made_of.json"
    now = {"corpus": data.digest, "vectors": list(work.plan.vectors), **models}
    noted = orjson.loads(notes.read_bytes()) if notes.exists() else {}
    before = noted.get(place.name, {}) if place.exists() else {}
    if place.exists() and not before:
        LOG.warning("%s: it is not known whether %s has changed since this index was built", place, corpus)
    if changed := next((one for one, value in now.items() if before.get(one, value) != value), None):
        known = {"corpus": str(corpus), "vectors": "the key `vectors` of the plan"}
        what = known.get(changed) or f"the {changed.replace('_', ' ')}"
        if (work.folder / "runs").exists() and not work.options.restart:  # Without runs, nothing is lost.
            raise InputError(
                f"{what} has changed since {place} was built; use another --out, or use --restart to build the"
                " index again and answer all questions again"
            )
        aside = free_name(place, "old")
        place.rename(aside)
        LOG.info("%s has changed; the old index was moved to %s", what, aside)
        before = {}
    if before != (now := {**before, **now}):
        write_atomically(notes, orjson.dumps({**noted, place.name: now}, option=orjson.OPT_INDENT_2))


def _reader(model: Model) -> str:
    """Return the fingerprint of the model that reads the documents."""
    models = opened(model.llm, model.options).full()
    reads = models.get("read", models.get(DEFAULT_ROLE))
    return "" if reads is None else reads.fingerprint  # Without a model, the call that needs it says so.


def _index(work: _Work, data: _DataSet, model_name: str) -> Index:
    """Build or open the index of a data set, with its knowledge graph if a system uses one. If the LLM of the
    table extracts the graph, each model has an index of its own with this graph."""
    plan, folder = work.plan, work.folder / "indexes"
    used = [(load_system(row.system), row.settings) for row in plan.rows if not row.not_run]
    embedders = {getattr(one.configure(its), "embedder", DEFAULT) for one, its in used if one.opens}
    extracts = plan.knowledge == "llm" and bool(embedders)
    place = folder / (f"{data.name}-{folder_name(model_name)}" if extracts else data.name)
    folder.mkdir(parents=True, exist_ok=True)
    # A graph has the vectors of one model. If systems use several, rules build a graph for each run.
    has_graph = extracts or len(embedders) == 1
    read_by = {"model_of_the_knowledge_graph": _reader(plan.models[model_name])} if extracts else {}
    embedded_by = {"embedder_of_the_knowledge_graph": min(embedders)} if has_graph else {}
    _check_same(work, data, place, **read_by, **embedded_by)
    corpus = data.source / "corpus.jsonl"
    index = open_index(place) if place.exists() else build_index(corpus, place, vectors=plan.vectors)
    if has_graph and not has_knowledge(index):
        LOG.info("%s: building the knowledge graph", place)
        model = plan.models[model_name]
        llm, options = (model.llm, model.options) if extracts else (None, None)
        build_knowledge(index, llm, llm_options=options, embedder=min(embedders), **work.reading)
    return index


def _extracted(plan: Plan, index: Index, model_name: str) -> str:
    """Describe what extracted the knowledge graph of an index, and with how many calls and tokens. The result is
    empty if no system uses a graph."""
    if not any(one.opens for one in systems_of(plan)):
        return ""
    if plan.knowledge == "rules":
        return "rules, without an LLM"
    done = open_knowledge(index).extractions
    calls = sum(one["calls"] for one in done)
    used = sum(one["prompt_tokens"] + one["completion_tokens"] for one in done)
    return f"the model of this table ({model_name}), with {counted(calls, 'LLM call')} and {used:,} tokens"


def _summarized(work: _Work, data: _DataSet, index: Index, model_name: str) -> tuple[Index, str]:
    """Return the index for systems that read summaries, and a description of its summaries."""
    plan = work.plan
    if not any(one.reads_summaries for one in systems_of(plan)):
        return index, ""
    if plan.documents == "own" and all(question.documents for question in read_questions(data.questions)):
        return index, "none, because each question searches its own documents"
    if not plan.summaries:
        return index, "none, because the plan does not ask for them"
    model = plan.models[model_name]
    place = index.folder.with_name(f"{data.name}-{folder_name(model_name)}-summaries")
    _check_same(work, data, place, model_of_the_summaries=_reader(model))
    if not place.exists():
        LOG.info("%s: writing the summaries", place)
        summarize_index(index, model.llm, out=place, llm_options=model.options, **work.reading)
    layers = [read_status(folder) for folder in place.glob(f"{SUMMARIES}/*")]
    written, calls = sum(one.states.get("answered", 0) for one in layers), sum(one.llm_calls for one in layers)
    used = sum(one.prompt_tokens + one.completion_tokens for one in layers)
    said = f"{written:,} in {counted(len(layers), 'layer')}, by the model of this table ({model_name})"
    return open_index(place), f"{said}, with {counted(calls, 'LLM call')} and {used:,} tokens"


def _name_of(llm: str | Mapping[str, str]) -> str:
    """Return the name of a model in tables and folders, without its address, because the model can move to another
    server."""
    specs = {"default": llm} if isinstance(llm, str) else llm
    names = {role: re.sub("@https?://.*", "", spec) for role, spec in specs.items()}
    return ", ".join(name if role == "default" else f"{role}={name}" for role, name in names.items())
