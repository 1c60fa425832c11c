"""Extraction of triples by an LLM. The extraction is a run. Each of its questions asks for the triples of one
chunk, or of several short chunks. A chunk consists of consecutive paragraphs of one text that an LLM reads in one
call. When a text is added to an index, the LLM reads only the chunks of the new text.

The folder of this run is next to the snapshots. It contains the texts of the chunks, so that the run can
resume even if the index has changed. This module does not change the store.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from pyfast.corpus import Corpus, Level
from pyfast.corpus.rendering import fold
from pyfast.engine import Answer, Context, Job, Question, Questions, questions_in
from pyfast.engine.configuration import CONFIGURATION, read_configuration, recorded_value
from pyfast.engine.run_folder import ANSWERS
from pyfast.engine.status import read_status
from pyfast.errors import InputError
from pyfast.knowledge.extraction_prompts import EXTRACT_GRAPH, EXTRACT_MORE, GraphFields, extract_graph
from pyfast.knowledge.extracts import BY_LLM, Extract
from pyfast.knowledge.support import Dropped, supported_mentions, supported_statements, themes_of
from pyfast.llm import FullLLM, Role
from pyfast.retrieval import Index
from pyfast.retrieval.index.index import KNOWLEDGE
from pyfast.utils.files import make_folder, write_atomically
from pyfast.utils.jsonl import read_lines

TOKENS = 1200
"""The default for the maximum size of a chunk in tokens, as in MTQA's paper"""
_CHARACTERS_PER_TOKEN = 4  # the average of English; the size of a chunk need not be exact
_TITLE = 4  # A title takes at most a quarter of its chunk, even if it is long.


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk: consecutive paragraphs of one text, which an LLM reads in one call."""

    title: str
    passages: tuple[tuple[int, str], ...]
    """For each paragraph: (id of its segment, text). A paragraph that is too long is divided into several
    such pairs with the same id"""

    @property
    def text(self) -> str:
        """The text of the chunk with its title, in the form in which the LLM reads it."""
        return "\n\n".join(filter(None, (self.title, *(text for _, text in self.passages))))

    @property
    def digest(self) -> str:
        """A checksum of the chunk's text and of its segment ids. It does not depend on the LLM, so a chunk that
        one LLM has read is not read again by another one."""
        made = blake2b(f"chunk\n{self.text}".encode(errors="replace"), digest_size=16)
        for segment, _ in self.passages:
            made.update(segment.to_bytes(8, "little"))
        return made.hexdigest()


def split_into_chunks(index: Index, tokens: int = TOKENS) -> Iterator[Chunk]:
    """Split the texts of an index into chunks of at most about `tokens` tokens, in the order of the corpus."""
    corpus, limit = index.corpus, tokens * _CHARACTERS_PER_TOKEN
    paragraphs = (place for place in index.passages.tolist() if corpus.level[place] == Level.PARAGRAPH)
    for source, places in groupby(paragraphs, key=lambda place: int(corpus.source[place])):
        title = fold(corpus.title(source))[: limit // _TITLE]
        run: list[tuple[int, str]] = []
        budget = limit - len(title)
        section = whole_title = fold(corpus.title(source))
        for place in places:
            above, is_heading = corpus.headline(place)
            above = fold(above)
            for text in [""] if is_heading else _fitting_texts(corpus, place, limit - len(title)):
                headed = f"{above}\n{text}".rstrip()
                shown = text if above == section else headed
                if run and len(shown) > budget:
                    yield Chunk(title, tuple(run))
                    run, budget = [], limit - len(title)
                    shown = text if above == whole_title else headed  # The LLM does not see the chunk before.
                section = above
                run.append((int(corpus.ids[place]), shown))
                budget -= len(shown)
        yield Chunk(title, tuple(run))


def pack(chunks: Iterable[Chunk], tokens: int) -> Iterator[tuple[Chunk, ...]]:
    """Group consecutive chunks that the LLM reads in one call. A group has at most about `tokens` tokens."""
    run: list[Chunk] = []
    for chunk in chunks:
        if run and sum(len(each.text) for each in (*run, chunk)) > tokens * _CHARACTERS_PER_TOKEN:
            yield tuple(run)
            run = []
        run.append(chunk)
    if run:
        yield tuple(run)


def _fitting_texts(corpus: Corpus, place: int, limit: int) -> Iterator[str]:
    """Divide a paragraph into texts of at most `limit` characters: groups of sentences, or parts of a sentence
    that is too long. `place` is the paragraph's position in the corpus."""
    text = corpus.content(place)
    if len(text) <= limit:
        yield corpus.without_marks(place, text)
        return
    sentences = range(place + 2, int(corpus.subtree_end[place]))
    ends = [int(corpus.start[i] - corpus.start[place]) for i in sentences] + [len(text)]
    begin = 0
    while begin < len(text):
        furthest = begin + max(limit, 1)
        end = max((end for end in ends if begin < end <= furthest), default=min(furthest, len(text)))
        yield corpus.without_marks(place, text[begin:end])
        begin = end


FOLDER, CHUNKS = "extraction", "chunks.jsonl"
_GRAPHS = TypeAdapter(list[GraphFields])


@dataclass(frozen=True, slots=True)
class Extraction:
    """An extraction by an LLM: its folder, its chunks and its settings."""

    folder: Path
    chunks: Questions
    chunk_tokens: int
    packed: bool = False
    """Whether a question of the run can contain several short chunks. False: each question contains one chunk"""
    passes: int = 1
    """How often the LLM reads each chunk"""


@dataclass(slots=True)
class ExtractionResults:
    """The results of an extraction so far."""

    extracts: list[Extract] = field(default_factory=list)
    """The extracts of the chunks that were read or failed, in the order of the chunks"""
    dropped: list[Dropped] = field(default_factory=list)
    waiting: int = 0
    """How many chunks still wait for an LLM"""


def extraction_folder(index: Path) -> Path:
    """Return the path of the extraction folder of an index, whose own folder is `index`. The extraction folder
    exists until all results are in the store."""
    return index / KNOWLEDGE / FOLDER


def is_begun(folder: Path) -> bool:
    """Return whether `folder` contains an unfinished extraction, whose results are not all in the store yet."""
    return (folder / CHUNKS).is_file() and recorded_value(folder, "questions", "digest") is not None


def plan_extraction(
    folder: Path, chunks: Iterable[Chunk], chunk_tokens: int, packed: bool = False, passes: int = 1
) -> Extraction | None:
    """Plan the rest of a stopped extraction. If there is none, plan an extraction of `chunks`.

    Returns None if there are no chunks. If `packed` is True, a question can contain several short chunks, which
    together are at most as long as one full chunk. `passes` is how often the LLM reads each chunk. A stopped
    extraction keeps its own `packed` and `passes`.
    """
    if not is_begun(folder):
        shutil.rmtree(folder, ignore_errors=True)  # The documents may have changed.
        new = {chunk.digest: chunk for chunk in chunks}.values()
        lines = list(map(_packed_line, pack(new, chunk_tokens)) if packed else map(_line, new))
        if not lines:
            return None
        make_folder(folder)
        write_atomically(folder / CHUNKS, b"\n".join(lines), durable=True)  # like run.toml, which depends on it
    else:
        packed = recorded_value(folder, "system", "set_packed")
        passes = recorded_value(folder, "system", "set_passes")
    return Extraction(folder, questions_in(folder / CHUNKS), chunk_tokens, packed, passes)


def _line(chunk: Chunk) -> bytes:
    text = "\n\n".join((chunk.title, *(text for _, text in chunk.passages)))  # There may be no title.
    return orjson.dumps({"id": chunk.digest, "question": text, **_part(chunk)})


def _packed_line(chunks: Sequence[Chunk]) -> bytes:
    digest = blake2b("\n".join(chunk.digest for chunk in chunks).encode(), digest_size=16).hexdigest()
    parts = [{"digest": chunk.digest, **_part(chunk)} for chunk in chunks]
    text = "\n\n".join(("", *(f"# {chunk.text}" if chunk.title else chunk.text for chunk in chunks)))
    return orjson.dumps({"id": digest, "question": text, "parts": parts})


def _part(chunk: Chunk) -> dict[str, Any]:
    return {"title": chunk.title, "passages": [(f"{segment:016x}", text) for segment, text in chunk.passages]}


def extraction_job(extraction: Extraction, llm: FullLLM | Mapping[Role, FullLLM]) -> Job:
    """Make the job (the description of a run) for an extraction, which asks the LLM for the graph of each
    chunk."""
    return Job(
        folder=extraction.folder,
        questions=extraction.chunks,
        system=EXTRACT_GRAPH.name,
        ask=partial(_answer, extraction.passes),
        settings={name: getattr(extraction, name) for name in ("chunk_tokens", "packed", "passes")},
        prompts=(EXTRACT_GRAPH, EXTRACT_MORE) if extraction.passes > 1 else (EXTRACT_GRAPH,),
        llm=llm,
    )


async def _answer(passes: int, question: Question, ctx: Context) -> Answer:
    title, _, text = question.text.partition("\n\n")
    return Answer(_GRAPHS.dump_json(await extract_graph(title, text, ctx, passes)).decode())


def why_all_failed(extraction: Extraction) -> tuple[str, int] | None:
    """If every chunk of a finished extraction failed, return (the most frequent reason, the number of chunks that
    failed for this reason). Otherwise return None."""
    if any(not record.get("reason") for _, record in read_lines(extraction.folder / ANSWERS)):
        return None
    extracts = extraction_results(extraction.folder).extracts
    return Counter(extract.failed or "" for extract in extracts).most_common(1)[0]


def extraction_results(folder: Path) -> ExtractionResults:
    """Read the results of an extraction so far. If `folder` has no extraction, the results are empty."""
    results = ExtractionResults()
    if not (folder / CHUNKS).is_file():
        return results
    records = {}
    if is_begun(folder):
        with contextlib.suppress(InputError):  # A kill may have cut off the last line.
            for _, record in read_lines(folder / ANSWERS):
                records[record["id"]] = record
    for _, asked in read_lines(folder / CHUNKS):
        if asked["id"] in records:
            _read(asked, records[asked["id"]], results)
        else:
            results.waiting += len(_parts(asked))
    return results


def _parts(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the chunks of a question, each with `digest`, `title` and `passages`. `asked` is the question's line
    in the chunk file."""
    return asked.get("parts") or [{"digest": asked["id"], **asked}]


def _read(asked: dict[str, Any], record: dict[str, Any], results: ExtractionResults) -> None:
    """Add an extract to `results` for each chunk of one extraction question. `asked` is the question's line in the
    chunk file, and `record` is its line in the answer file."""
    parts, graphs, failed = _parts(asked), [], None
    if record["state"] != "answered":
        failed = record.get("reason") or record["state"]
    else:
        try:
            graphs = _GRAPHS.validate_json(record["answer"])
        except ValidationError:  # Other code answered, or someone has edited the file.
            failed = "the LLM's reply is not usable"
    if failed is not None:
        results.extracts += [Extract(part["digest"], BY_LLM, failed=failed) for part in parts]
        return
    texts = [
        [(int(segment, 16), f"{part['title']} {text}") for segment, text in part["passages"]] for part in parts
    ]
    supported = supported_statements((relation for graph in graphs for relation in graph.relations), *texts)
    results.dropped += supported.dropped
    entities = [entity for graph in graphs for entity in graph.entities]
    keys = [key for graph in graphs for key in graph.themes]
    rest = supported.statements
    for part, segments in zip(parts, texts, strict=True):
        here = {segment for segment, _ in segments}
        statements = tuple(one for one in rest if one.segment in here)
        rest = [one for one in rest if one.segment not in here]
        mentions = tuple(supported_mentions(entities, segments))
        themes = tuple(themes_of(keys, segments, only=len(parts) == 1))
        results.extracts.append(Extract(part["digest"], BY_LLM, statements, mentions, themes))


HOME = "extractions"
_EXAMPLES = 3


def describe_extraction(folder: Path, results: ExtractionResults) -> dict[str, Any]:
    """Describe a finished extraction in JSON types, for a snapshot's manifest. `folder` is the folder of its
    run."""
    configuration, status = read_configuration(folder / CONFIGURATION), read_status(folder)
    reasons: dict[str, list[str]] = defaultdict(list)
    for one in results.dropped:
        reasons[one.reason].append(one.triple)
    llm, places = configuration.get("llm", {}), configuration.get("places", {})
    return {
        "questions": configuration["questions"]["digest"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": places.get("read_llm") or places.get("llm"),
        "fingerprint": llm.get("read_fingerprint") or llm.get("fingerprint"),
        "prompts": configuration.get("prompts", {}),
        "chunks": len(results.extracts),
        "failed": sum(extract.failed is not None for extract in results.extracts),
        "calls": status.llm_calls,
        "prompt_tokens": status.prompt_tokens,
        "completion_tokens": status.completion_tokens,
        "dropped": {
            reason: {"count": len(triples), "examples": triples[:_EXAMPLES]} for reason, triples in reasons.items()
        },
    }


def keep_extraction(folder: Path) -> None:
    """Move the folder of a finished extraction to its final place beside the snapshots: `extractions/1` for
    the first extraction, `extractions/2` for the second, and so on.
    """
    home = folder.parent / HOME
    home.mkdir(exist_ok=True)
    before = (int(path.name) for path in home.iterdir() if path.name.isdigit())
    folder.rename(home / str(1 + max(before, default=0)))


def in_words(extraction: dict[str, Any]) -> list[str]:
    """Describe an extraction in words, as lines of text. `extraction` comes from `describe_extraction`."""
    count = "{calls} calls, {prompt_tokens} tokens in, {completion_tokens} out".format_map(extraction)
    lines = [
        f"extracted by {extraction['model']} on {extraction['date']}: {extraction['chunks']} chunks,"
        f" {extraction['failed']} failed; {count}"
    ]
    for reason, dropped in extraction["dropped"].items():
        lines.append(f"  dropped, {reason}: {dropped['count']}, such as {'; '.join(dropped['examples'])}")
    return lines
