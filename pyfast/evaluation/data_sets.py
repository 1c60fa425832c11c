"""Convert published data sets into corpus.jsonl, questions.jsonl and gold.jsonl.

Sets whose questions come with their own paragraphs: HotpotQA, 2WikiMultihopQA and MuSiQue. HippoRAG's sets combine
questions from these with one corpus for all of them.

Conversations over Wikipedia and Wikidata: ConvMix. The published set has no corpus, but CONVINSE and EXPLAIGNN,
two programs by its authors, write a file dev_ers.jsonl with the conversations and, for each turn, the retrieved
evidence, which can serve as a corpus.

Questions over tables: HybridQA and OTT-QA (tables whose cells link to Wikipedia passages), and TAT-QA (tables and
paragraphs from financial reports). Questions over a knowledge graph: MetaQA (about films, with all answers).

Sets with a corpus: BEIR, with queries and relevance judgements (qrels), and FlashRAG, with questions and answers.
Sets of questions about all of Wikipedia, without a corpus: NQ-open, TriviaQA and PopQA.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, chain, groupby
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, BeforeValidator, Field

from pyfast.engine.question_files import texts_of
from pyfast.errors import InputError
from pyfast.evaluation.gold import checked
from pyfast.utils.files import built_aside
from pyfast.utils.jsonl import parse_json, read_lines

Kind = Literal["document", "question", "gold", "note"]
Piece = tuple[Kind, dict[str, Any]]
"""A line of corpus.jsonl, questions.jsonl or gold.jsonl with its kind, such as ("question", {"id": "q1", ...}), or
a note about what was left out, such as ("note", {"what": "queries are left out", "number": 2})"""
Pieces = Iterator[Piece]
R = TypeVar("R", bound=BaseModel)


def passage(uri: str, title: str | None, text: str) -> Piece:
    """Make the line of a text document."""
    return "document", {"id": uri, "kind": "text", "title": title, "text": text}


def question(id: str, text: str, **more: Any) -> Piece:
    """Make the line of a question."""
    return "question", {"id": id, "question": text, **more}


def gold(id: str, **more: Any) -> Piece:
    """Make the gold line of a question."""
    return "gold", {"id": id, **more}


def _text(value: Any) -> Any:
    if value is None:
        return ""
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A string in a published file. Null becomes an empty string, and a number becomes its digits"""
OrNull = BeforeValidator(lambda value: () if value is None else value)
"""For a list that may be null in a published file"""
Texts = Annotated[tuple[Text, ...], OrNull]
OrOne = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
"""For a list of which a single string may stand alone"""


def load(path: Path) -> Any:
    """Read a JSON file. Raises `InputError` if the file cannot be read."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def records(path: Path, kind: type[R], content: Any = None) -> Iterator[R]:
    """Read the records of a JSON list, which is `content` or, if that is None, the content of the file `path`.

    If the layout of a record is not that of `kind`, an `InputError` names the file and the record.
    """
    content = load(path) if content is None else content
    if not isinstance(content, list):
        raise InputError(f"{path}: expected a list of records, found {_described(content)}")
    for number, record in enumerate(content, start=1):
        yield _record(record, kind, f"{path}, record {number}")


def lines(path: Path, kind: type[R]) -> Iterator[R]:
    """Read the records of a JSONL file. If the layout of a line is not that of `kind`, an `InputError` names the
    line."""
    return (_record(line, kind, place) for place, line in read_lines(path))


def _record(record: Any, kind: type[R], place: str) -> R:
    """Convert a record as `checked` does. If it lacks keys, the error names those that it has."""
    try:
        return checked(record, kind, place)
    except InputError:
        keys = [field.alias or name for name, field in kind.model_fields.items() if field.is_required()]
        if isinstance(record, dict) and record.keys() >= {*keys}:
            raise
        found = _described(record)
        raise InputError(f"{place}: expected an object with the keys {', '.join(keys)}; found {found}") from None


def _described(value: Any) -> str:
    """Describe a JSON value that is not what was expected."""
    if isinstance(value, dict):
        return f"an object with the keys {shorten(', '.join(value), 200, placeholder=' ...') or '(none)'}"
    return "a list" if isinstance(value, list) else shorten(orjson.dumps(value).decode(), 40, placeholder="...")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for each line of a text file that is not blank. Raises `InputError` if the file cannot
    be read."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def one_file(source: Path, pattern: str, what: str) -> Path:
    """Return `source` if it is a file. If it is a folder, return the only file inside it, at any depth, that
    matches the pattern.

    Raises `InputError` if there is no such file, or more than one; `what` describes the file in the message.
    """
    if source.is_file():
        return source
    is_parent = source.resolve().name == Path(pattern).parent.name  # such as released_data itself
    paths = sorted(source.glob(Path(pattern).name) if is_parent else source.rglob(pattern))
    return _only(paths, source, f"one file of {what} ({pattern})")


def _only(paths: Sequence[Path], folder: Path, expected: str) -> Path:
    if len(paths) != 1:
        listed = ", ".join(path.name for path in paths[:5]) or "none"
        raise InputError(f"{folder}: expected {expected}, but found {listed}; pass the path of one")
    return paths[0]


def beside(path: Path, pattern: str, what: str) -> Path:
    """Search the three nearest parent folders of a file, the nearest first, for a file or folder that matches the
    pattern.

    Raises `InputError` if nothing matches; `what` describes in the message what is missing.
    """
    for folder in list(path.resolve().parents)[:3]:
        match = next(iter(sorted(folder.glob(pattern))), None)
        if match is not None:
            return match
    raise InputError(f"{path}: {pattern}, which contains {what}, must be in the same folder or in a folder above")


def named(text: str, *more: str) -> str:
    """Return a hash of one or more texts as 16 hexadecimal digits, for use in a uri."""
    return blake2b("\0".join((text, *more)).encode(), digest_size=8).hexdigest()


def title_of(uri: str) -> str:
    """Read the title of a Wikipedia page from its path, such as `/wiki/Titan_(moon)`."""
    return unquote(uri.rpartition("/wiki/")[2]).replace("_", " ")


class Documents:
    """Collects documents that several records share, so that each is written only once. If two documents with
    different contents have the same uri, the second gets another uri."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def passage(self, uri: str, title: str, text: str) -> tuple[str, list[Piece]]:
        """Return (the uri of a text, a list with its line). The list is empty if the text is not new. If `uri` is
        empty, the text's hash takes its place."""
        digest = named(text)
        uri, number = uri or digest, 1
        name = uri
        while self._known.get(name, digest) != digest:
            number += 1
            name = f"{uri} ({number})"
        is_new = name not in self._known
        self._known[name] = digest
        return name, [passage(name, title, text)] if is_new else []


_CORPUS = "_corpus.json"


class _Answered(BaseModel):
    question: Text
    answer: Text | None = None
    aliases: Texts = Field((), alias="answer_aliases")
    type: str | None = None


class _HotpotQA(_Answered):
    id: Text = Field(alias="_id")
    context: tuple[tuple[Text, Texts], ...]
    level: str | None = None
    supporting_facts: tuple[tuple[str, int], ...] | None = None
    evidences: tuple[tuple[str, ...], ...] | None = None


def hotpotqa(source: Path) -> Pieces:
    """Yield the converted lines of a HotpotQA or 2WikiMultihopQA file. Titles become uris. A test set without
    answers has no gold lines, so its questions keep what `pyfast export --format` needs.
    """
    documents = Documents()
    for record in records(one_file(source, "*.json", "questions"), _HotpotQA):
        uris: dict[str, str] = {}
        starts: dict[str, list[int]] = {}
        for title, sentences in record.context:
            joint = "" if any(sentence.startswith(" ") for sentence in sentences) else " "
            uri, new = documents.passage(title, title, joint.join(sentences))
            uris.setdefault(title, uri)  # A fact names a title, which means the first paragraph with this title.
            starts[uri] = [0, *accumulate(len(sentence) + len(joint) for sentence in sentences[:-1])]
            yield from new
        titles = {uri: title for title, uri in uris.items() if uri != title}
        places: dict[str, Any] = {"sentence_starts": starts, "published_as": titles or None}
        is_hidden = record.answer is None
        yield question(record.id, record.question, documents=list(starts), **(places if is_hidden else {}))
        if not is_hidden:
            facts = [(uris.get(title, title), sentence) for title, sentence in record.supporting_facts or ()]
            yield gold(
                record.id,
                answers=[record.answer, *record.aliases],
                type=record.type,
                level=record.level,
                supporting=[*dict.fromkeys(uri for uri, _ in facts)],
                supporting_facts=facts,
                **places,
                evidences=record.evidences,
                metrics=["hotpotqa" if record.evidences is None else "2wiki"],
            )


class _Paragraph(BaseModel):
    title: Text
    paragraph_text: Text
    is_supporting: bool = False


class _Numbered(_Paragraph):
    idx: int


class _Hop(BaseModel):
    question: Text
    answer: Text
    paragraph_support_idx: int | None = None


class _MuSiQue(BaseModel):
    id: Text
    question: Text
    paragraphs: Annotated[tuple[_Numbered, ...], OrNull] = ()
    answer: str | None = None
    answer_aliases: Texts = ()
    answerable: bool = True
    question_decomposition: Annotated[tuple[_Hop, ...], OrNull] = ()


def musique(source: Path) -> Pieces:
    """Yield the converted lines of a MuSiQue file. The uri of a paragraph is its hash, because several paragraphs
    can have the same title. In MuSiQue-Full, each id occurs twice, once with sufficient paragraphs and once
    without; `pair` in the gold keeps the two together. A test set without answers has no gold lines, so its
    questions keep what `pyfast export --format` needs.
    """
    documents = Documents()
    for record in lines(one_file(source, "*.jsonl", "questions"), _MuSiQue):
        uris: dict[int | None, str] = {}
        for one in record.paragraphs:
            name = named(one.title, one.paragraph_text)
            uris[one.idx], new = documents.passage(name, one.title, one.paragraph_text)
            yield from new
        places: dict[str, Any] = {"pair": record.id, "published_as": {uri: idx for idx, uri in uris.items()}}
        is_hidden = record.answer is None and record.answerable
        mine = [*dict.fromkeys(uris.values())]
        yield question(record.id, record.question, documents=mine, **(places if is_hidden else {}))
        if not is_hidden:
            yield gold(
                record.id,
                answers=[record.answer, *record.answer_aliases] if record.answerable else None,
                answerable=None if record.answerable else False,
                type=record.id.partition("__")[0],
                supporting=[uris[one.idx] for one in record.paragraphs if one.is_supporting],
                **places,
                decomposition=[
                    {"question": hop.question, "answer": hop.answer, "doc": uris.get(hop.paragraph_support_idx)}
                    for hop in record.question_decomposition
                ],
                metrics=["musique"],
            )


class _PassageOfHippoRAG(BaseModel):
    title: Text
    text: Text


class _OfHippoRAG(_Answered):
    """A question in the layout of 2Wiki, MuSiQue or HotpotQA."""

    id: Text = ""
    hotpot_id: Text = Field("", alias="_id")
    context: tuple[tuple[Text, Texts], ...] = ()
    supporting_facts: Annotated[tuple[tuple[Text, int], ...], OrNull] = ()
    paragraphs: tuple[_Paragraph, ...] = ()

    def supporting(self) -> list[tuple[str, str]]:
        """Return (title, text) of each gold passage."""
        if self.paragraphs:
            return [(one.title, one.paragraph_text) for one in self.paragraphs if one.is_supporting]
        titles = dict.fromkeys(title for title, _ in self.supporting_facts)
        texts = {title: " ".join(sentences) for title, sentences in self.context}
        return [(title, texts.get(title, "")) for title in titles]


def hipporag(source: Path) -> Pieces:
    """Yield the converted lines of `NAME_corpus.json`, a list of `{"title", "text"}`, and of `NAME.json` in the
    same folder. All questions share the corpus.
    """
    corpus = one_file(source, f"*{_CORPUS}", "a corpus")
    if not corpus.name.endswith(_CORPUS):
        raise InputError(f"{corpus}: expected a file NAME{_CORPUS}, with the questions in NAME.json next to it")
    questions = corpus.with_name(corpus.name.removesuffix(_CORPUS) + ".json")
    documents = Documents()
    by_title: dict[str, dict[str, str]] = defaultdict(dict)
    for each in records(corpus, _PassageOfHippoRAG):
        uri, new = documents.passage(each.title, each.title, each.text)
        if new:
            by_title[each.title][_letters(each.text)] = uri
        yield from new
    for number, one in enumerate(records(questions, _OfHippoRAG), start=1):
        place = f"{questions}, record {number}"
        name = one.id or one.hotpot_id
        if not name:
            raise InputError(f"{place}: expected an `id` or an `_id`")
        yield question(name, one.question)
        if one.answer is not None:
            supporting = dict.fromkeys(_uri(by_title, title, text, place) for title, text in one.supporting())
            yield gold(name, answers=[one.answer, *one.aliases], type=one.type, supporting=[*supporting])


def _uri(by_title: dict[str, dict[str, str]], title: str, text: str, place: str) -> str:
    """Return the uri of the passage with this title. If several passages have the title, prefer the one with this
    text (ignoring whitespace), and otherwise the first. Raises `InputError` if no passage has the title."""
    passages = by_title.get(title)
    if not passages:
        raise InputError(f"{place}: the gold evidence {title!r} is not a passage of the corpus")
    return passages.get(_letters(text)) or next(iter(passages.values()))


def _letters(text: str) -> str:
    return "".join(text.split())


class _Named(BaseModel):
    id: Text
    label: Text = ""


class _Evidence(BaseModel):
    evidence_text: Text
    retrieved_for_entity: _Named


class _Turn(BaseModel):
    question_id: Text
    question: Text
    answers: Annotated[tuple[_Named, ...], OrNull] = ()
    answer_text: str | None = None
    answer_src: str | None = None
    completed: str | None = None
    entities: Annotated[tuple[_Named, ...], OrNull] = ()
    top_evidences: Annotated[tuple[_Evidence, ...], OrNull] = ()


class _Record(BaseModel):
    conv_id: int | str
    domain: str | None = None
    questions: tuple[_Turn, ...]


def convmix(source: Path) -> Pieces:
    """Yield the converted lines of dev_set.json or dev_ers.jsonl. Only dev_ers.jsonl contains evidence, and so
    only it has a corpus: each piece of evidence becomes a document, titled with the entity for which it was
    retrieved. The first accepted answer of a turn is the text that a crowd worker wrote.
    """
    documents = Documents()
    path = one_file(source, "*.json*", "conversations")
    for record in (lines if path.suffix == ".jsonl" else records)(path, _Record):
        for evidence in (one for turn in record.questions for one in turn.top_evidences):
            about, text = evidence.retrieved_for_entity, evidence.evidence_text
            yield from documents.passage(f"{about.id}/{named(text)}", about.label, text)[1]
        asked, right = list[dict[str, Any]](), list[dict[str, Any]]()
        for turn in record.questions:
            answers = [*dict.fromkeys(filter(None, [turn.answer_text, *(one.label for one in turn.answers)]))]
            asked.append({"id": turn.question_id, "question": turn.question, "answers": answers})
            right.append(
                {
                    "id": turn.question_id,
                    "answers": answers,
                    "answer_src": turn.answer_src,
                    "answer_ids": [one.id for one in turn.answers],
                    "completed": turn.completed or turn.question,
                    "entities": [one.model_dump() for one in turn.entities],
                }
            )
        conversation = {"id": str(record.conv_id), "domain": record.domain}
        yield "question", {**conversation, "turns": asked}
        yield "gold", {**conversation, "turns": right}


_Cell = tuple[Text, Annotated[tuple[str, ...], OrNull]]


class _LinkedTable(BaseModel):
    uid: str | None = None
    title: Text = ""
    section_title: Text = ""
    header: tuple[_Cell | Text, ...]
    data: tuple[tuple[_Cell | Text, ...], ...]


class _OfTable(BaseModel):
    id: Text = Field(alias="question_id")
    question: Text
    table_id: str | None = None
    answer: Text | None = Field(None, alias="answer-text")
    nodes: Annotated[tuple[tuple[Any, ...], ...], OrNull] = Field((), alias="answer-node")

    def rows(self) -> list[tuple[str, int]] | None:
        """Return (table, row) of each cell with the answer, or None if the file does not name these cells. Only
        the traced files of HybridQA do."""
        places = [node[1] for node in self.nodes if len(node) > 1 and isinstance(node[1], list) and node[1]]
        return [(self.table_id, row) for row, *_ in places] if places and self.table_id else None


def hybridqa(source: Path) -> Pieces:
    """Yield the converted lines of released_data/*.json, and of the folder WikiTables-WithLinks beside
    released_data.

    A question's documents are its table and the passages to which the table links.
    """
    path = one_file(source, "released_data/*.json", "questions")
    folder = beside(path, "WikiTables-WithLinks", "the tables and passages")
    tables = ((file.stem, load(file), str(file)) for file in sorted((folder / "tables_tok").glob("*.json")))
    passages = (load(file) for file in sorted((folder / "request_tok").glob("*.json")))
    links = yield from _corpus(tables, passages)
    yield from _questions(path, links)


def ottqa(source: Path) -> Pieces:
    """Yield the converted lines of OTT-QA, in which one file contains all tables, and another all passages. The
    questions are about the whole corpus."""
    path = one_file(source, "released_data/*.json", "questions")
    tables = _object(beside(path, "*/*tables*.json", "the tables"))
    passages = _object(beside(path, "*/*request_tok*.json", "the passages"))
    yield from _corpus(((uid, table, f"table {uid}") for uid, table in tables.items()), iter([passages]))
    yield from _questions(path, None)


def _object(path: Path) -> Mapping[str, Any]:
    content = load(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected an object")
    return content


def _corpus(tables: Iterator[tuple[str, Any, str]], passages: Iterator[Any]) -> Any:
    """Yield the documents. At the end, return a mapping from each table's uri to a list of uris: its own, and
    those of the passages to which it links.

    `tables` yields (name, table, place for error messages), and `passages` yields mappings from uris to texts.
    """
    known: dict[str, list[str]] = {}
    linked: dict[str, None] = {}
    for name, record, place in tables:
        table = checked(record, _LinkedTable, place)
        uri = table.uid or name
        links: dict[str, list[str]] = {}
        for r, row in enumerate(table.data):
            for c, cell in enumerate(row):
                if isinstance(cell, tuple) and cell[1]:
                    links[f"{r},{c}"] = [*dict.fromkeys(cell[1])]
        of_header = (cell[1] for cell in table.header if isinstance(cell, tuple))
        known[uri] = [uri, *dict.fromkeys(to for some in chain(links.values(), of_header) for to in some)]
        linked |= dict.fromkeys(known[uri])
        header, rows = _texts_of(table.header), [_texts_of(row) for row in table.data]
        columns = {"header": header, "rows": rows, "links": links}
        titles = {"title": table.title, "section": table.section_title}
        yield "document", {"id": uri, "kind": "table", **titles, **columns}
    written: set[str] = set()
    for some in passages:
        if not isinstance(some, dict):
            raise InputError("request_tok: expected objects that map uris to texts")
        for uri, text in some.items():
            if uri not in written and isinstance(text, str):
                written.add(uri)
                yield passage(uri, title_of(uri), text)
    return {table: [uri for uri in uris if uri in written or uri == table] for table, uris in known.items()}


def _texts_of(cells: Iterable[_Cell | str]) -> list[str]:
    return [cell if isinstance(cell, str) else cell[0] for cell in cells]


def _questions(path: Path, links: Mapping[str, list[str]] | None) -> Pieces:
    for one in records(path, _OfTable):
        table = [] if one.table_id is None else [one.table_id]
        yield question(one.id, one.question, documents=next(((links or {}).get(uri) for uri in table), None))
        if one.answer is not None:
            evidence = {"supporting": table or None, "supporting_facts": one.rows()}
            yield gold(one.id, answers=[one.answer], **evidence, metrics=["hybridqa", "evidence"])


class _Table(BaseModel):
    uid: str
    table: tuple[tuple[Text, ...], ...]


class _ParagraphOfReport(BaseModel):
    uid: str
    order: int
    text: Text


class _QuestionOfReport(BaseModel):
    uid: str
    question: Text
    answer: Any = None
    answer_type: str | None = None
    answer_from: str | None = None
    scale: Text = ""
    derivation: Text = ""
    rel_paragraphs: Texts = ()


class _Report(BaseModel):
    table: _Table
    paragraphs: tuple[_ParagraphOfReport, ...]
    questions: tuple[_QuestionOfReport, ...]


def tatqa(source: Path) -> Pieces:
    """Yield the converted lines of a TAT-QA file. All questions about a report share its documents."""
    for record in records(one_file(source, "*.json", "questions"), _Report):
        header, *rows = record.table.table or ((),)
        yield "document", {"id": record.table.uid, "kind": "table", "header": header, "rows": rows}
        yield from (passage(one.uid, None, one.text) for one in record.paragraphs)
        places = {str(one.order): one.uid for one in record.paragraphs}
        documents = [record.table.uid, *(one.uid for one in record.paragraphs)]
        for asked in record.questions:
            yield question(asked.uid, asked.question, documents=documents)
            if asked.answer_type is None:
                continue
            answers = asked.answer if isinstance(asked.answer, list) else [asked.answer]
            supporting = [places[order] for order in asked.rel_paragraphs if order in places]
            if "table" in (asked.answer_from or ""):
                supporting.insert(0, record.table.uid)
            yield gold(
                asked.uid,
                answers=[str(answer) for answer in answers if answer is not None],
                answer_mode="all" if asked.answer_type == "multi-span" else "",
                type=asked.answer_type,
                answer_from=asked.answer_from,
                scale=asked.scale,
                derivation=asked.derivation,
                supporting=supporting,
                metrics=["tatqa", "evidence"],
            )


_TOPIC = re.compile(r"\[([^\]]*)\]")
_HOPS = re.compile(r"([123])-?hop")


def metaqa(source: Path) -> Pieces:
    """Yield the converted lines of one question file, such as qa_test.txt, or of all files `*qa*.txt` in a folder.

    kb.txt must be in the folder of the first file, or in one of the two folders above this folder.
    """
    files = [source] if source.is_file() else sorted(source.rglob("*qa*.txt"))
    if not files:
        raise InputError(f"{source}: expected question files (*qa*.txt)")
    yield from _graph(beside(files[0], "kb.txt", "the knowledge graph"))
    for path in files:
        hops = _HOPS.search(str(path))
        kind = f"{hops[1]}-hop" if hops else None
        for number, line in text_lines(path):
            marked, tab, answers = line.partition("\t")
            topic = _TOPIC.search(marked)
            if not tab or topic is None:
                raise InputError(
                    f"{path}, line {number}: expected a question with a [topic], a tab, and its answers"
                )
            id = f"{kind or 'metaqa'}-{path.stem}-{number}"
            yield question(id, marked.replace("[", "").replace("]", ""))
            right = answers.split("|")
            yield gold(id, answers=right, answer_mode="all", type=kind, topic_entity=topic[1], metrics=["metaqa"])


def _graph(path: Path) -> Pieces:
    """Yield a document for each head in kb.txt: a knowledge graph with all its triples."""
    triples = []
    for number, line in text_lines(path):
        triple = line.split("|")
        if len(triple) != 3:
            raise InputError(f"{path}, line {number}: expected head|relation|tail")
        triples.append(triple)
    triples.sort(key=lambda triple: triple[0])  # The sort is stable, so the triples of a head keep their order.
    for head, some in groupby(triples, key=lambda triple: triple[0]):
        yield "document", {"id": f"kb/{head}", "kind": "kg", "title": head, "triples": list(some)}


class _PassageOfBEIR(BaseModel):
    id: Text = Field(alias="_id")
    title: Text = ""
    text: Text = ""


class _Query(BaseModel):
    id: Text = Field(alias="_id")
    text: Text


def beir(source: Path) -> Pieces:
    """Yield the converted lines of a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

    `source` is the folder, or a split's file inside qrels. For a folder, the split is `test` or, if there is no
    such split, the only one. Queries that the split does not judge are left out. A judgement of 0 is not gold.
    """
    qrels = _qrels(source)
    folder = qrels.parent.parent
    judged = _judgements(qrels)
    for each in lines(folder / "corpus.jsonl", _PassageOfBEIR):
        yield passage(each.id, each.title, each.text)
    asked = set[str]()
    for query in lines(folder / "queries.jsonl", _Query):
        if query.id not in judged:
            yield "note", {"what": f"queries left out because {qrels.name} does not judge them", "number": 1}
            continue
        asked.add(query.id)
        yield question(query.id, query.text)
        yield gold(query.id, supporting=judged[query.id], metrics=["evidence"])
    unknown = f"queries of {qrels.name} left out because they are not in queries.jsonl"
    yield "note", {"what": unknown, "number": len(judged.keys() - asked)}


def _qrels(source: Path) -> Path:
    if source.is_file() and source.parent.name == "qrels":
        return source
    folder = (source if source.is_dir() else source.parent) / "qrels"
    splits = sorted(folder.glob("*.tsv"))
    chosen = [path for path in splits if path.stem == "test"] or splits
    return _only(chosen, folder, "the judgements of one split")


def _judgements(path: Path) -> dict[str, list[str]]:
    """Return the relevant documents of each judged query. A line is `query document score` or, as in TREC, `query
    0 document score`."""
    judged: dict[str, list[str]] = defaultdict(list)
    for number, line in text_lines(path):
        cells = line.split("\t")
        if number == 1 and "score" in cells[-1].lower():
            continue
        try:
            query, document, score = cells[0], cells[-2], float(cells[-1])
            if len(cells) not in (3, 4):
                raise ValueError
        except (ValueError, IndexError):
            raise InputError(
                f"{path}, line {number}: expected query, document and score, separated by tabs"
            ) from None
        relevant = judged[query]
        if score > 0 and document not in relevant:
            relevant.append(document)
    return judged


class _Contents(BaseModel):
    id: Text
    contents: Text = ""
    title: Text = ""
    text: Text = ""


class _QuestionOfFlashRAG(BaseModel):
    id: Text
    question: Text
    golden_answers: Annotated[tuple[Any, ...], OrNull, OrOne] = ()


def flashrag(source: Path) -> Pieces:
    """Yield the converted lines of a question file, such as test.jsonl, and of the corpus in the same folder: the
    file whose lines have `id` and `contents`. A set without this file has no corpus.

    If the first line of `contents` is in quotes, it is the title of the passage.
    """
    folder = source if source.is_dir() else source.parent
    kinds: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        first = next(iter(read_lines(path)), ("", {}))[1]
        kinds["question" if "question" in first else "contents" if "contents" in first else "other"].append(path)
    questions = source if source.is_file() else _only(kinds["question"], folder, "one file of questions")
    if kinds["contents"]:
        for each in lines(_only(kinds["contents"], folder, "one file of a corpus"), _Contents):
            yield passage(each.id, *_divided(each))
    for asked in lines(questions, _QuestionOfFlashRAG):
        yield question(asked.id, asked.question)
        if asked.golden_answers:
            yield gold(asked.id, answers=list(asked.golden_answers))


def _divided(given: _Contents) -> tuple[str, str]:
    first, line_end, rest = given.contents.partition("\n")
    quoted = first.strip()
    if line_end and len(quoted) > 1 and quoted[0] == quoted[-1] == '"':
        return quoted[1:-1], rest
    return given.title, given.contents or given.text


class _NQ(BaseModel):
    question: Text
    answer: Annotated[Texts, OrOne] = ()


def nq(source: Path) -> Pieces:
    """Yield the converted lines of NQ-open.*.jsonl. Each question's id ends in its line number."""
    path = one_file(source, "*.jsonl", "questions")
    for number, record in enumerate(lines(path, _NQ), start=1):
        yield from _pieces(f"nq-{path.stem}-{number}", record.question, record.answer)


class _TriviaAnswer(BaseModel):
    value: Text = Field("", alias="Value")
    aliases: Texts = Field((), alias="Aliases")


class _Trivia(BaseModel):
    id: Text = Field(alias="QuestionId")
    question: Text = Field(alias="Question")
    answer: _TriviaAnswer | None = Field(None, alias="Answer")


def triviaqa(source: Path) -> Pieces:
    """Yield the converted lines of a TriviaQA file, such as unfiltered-web-dev.json."""
    path = one_file(source, "*.json", "questions")
    content = load(path)
    for record in records(path, _Trivia, content.get("Data", content) if isinstance(content, dict) else content):
        answers = () if record.answer is None else (record.answer.value, *record.answer.aliases)
        yield from _pieces(record.id, record.question, answers)


def popqa(source: Path) -> Pieces:
    """Yield the converted lines of PopQA's test.tsv."""
    path = one_file(source, "*.tsv", "questions")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, dialect=csv.excel_tab)
            if not {"id", "question", "possible_answers"} <= {*(names := rows.fieldnames or ())}:
                found = shorten(", ".join(names), 200, placeholder=" ...") or "an empty file"
                raise InputError(f"{path}: expected the columns id, question and possible_answers; found {found}")
            for row in rows:
                answers = [str(answer) for answer in orjson.loads(row["possible_answers"]) if answer is not None]
                yield from _pieces(f"popqa-{row['id']}", row["question"], answers, row.get("prop"))
    except (OSError, UnicodeDecodeError, KeyError, TypeError, csv.Error, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: not a PopQA file: {error!r}") from None


def _pieces(id: str, text: str, answers: Sequence[str], kind: str | None = None) -> Pieces:
    yield question(id, text)
    right = [answer for answer in dict.fromkeys(answers) if answer.strip()]
    if right:
        yield gold(id, answers=right, type=kind, metrics=["squad"])


_OTHERS = (musique, hybridqa, metaqa, tatqa, convmix, ottqa, nq, triviaqa, popqa, hipporag, beir, flashrag)
CONVERTERS: dict[str, Callable[[Path], Pieces]] = {"hotpotqa": hotpotqa, "2wiki": hotpotqa}
CONVERTERS |= {one.__name__: one for one in _OTHERS}
"""The converter of each set, which yields the converted lines of a published file"""

_SOURCES = {
    "hotpotqa": "hotpot_dev_distractor_v1.json",
    "2wiki": "dev.json of 2WikiMultihopQA",
    "musique": "musique_ans_v1.0_dev.jsonl",
    "hybridqa": "released_data/dev.json with WikiTables-WithLinks in the same folder or above",
    "metaqa": "qa_test.txt with kb.txt in the same folder or above",
    "tatqa": "tatqa_dataset_dev.json",
    "convmix": "dev_set.json or dev_ers.jsonl",
    "ottqa": "released_data/dev.json with data/traindev_tables.json and data/traindev_request_tok.json",
    "nq": "NQ-open.dev.jsonl",
    "triviaqa": "unfiltered-web-dev.json",
    "popqa": "test.tsv of PopQA",
    "hipporag": "NAME_corpus.json with NAME.json in the same folder",
    "beir": "a folder with corpus.jsonl, queries.jsonl and qrels",
    "flashrag": "test.jsonl of a data set of FlashRAG",
}
"""An example of the source of each set, as docs/data.md lists them"""

CORPUS, QUESTIONS, GOLD = "corpus.jsonl", "questions.jsonl", "gold.jsonl"
_FILES: dict[Kind, str] = {"document": CORPUS, "question": QUESTIONS, "gold": GOLD}
_NO_CORPUS = {
    "convmix": "this file cannot become a corpus: it has no texts, and its entities and answers are gold; index"
    " your own documents, or convert dev_ers.jsonl of CONVINSE or EXPLAIGNN, which has evidence",
}

# In these sets, judgements and questions also refer to documents that have only a title.
_TITLES_SUFFICE = {"beir", "flashrag", "hipporag"}


@dataclass(frozen=True, slots=True)
class Converted:
    """The files that `pyfast.convert` made, with the numbers of documents and questions."""

    corpus: Path | None
    """The corpus file. None if the set has no corpus"""
    questions: Path
    gold: Path | None
    """The gold file. None if the source has no answers, as in test sets"""
    documents: int
    count: int
    """The number of questions. Each turn of a conversation counts as a question"""
    no_corpus: str | None = None
    """Why there is no corpus, and what to index instead"""
    notes: tuple[str, ...] = ()
    """What differs from the published files, with counts, such as changed ids and parts that were left out"""


def names() -> list[str]:
    """Return the names of the data sets that can be converted."""
    return list(CONVERTERS)


def convert(name: str, source: Path, out: Path) -> Converted:
    """Convert a published data set into the new folder `out`. If the conversion raises `InputError`, no folder is
    created."""
    converter = CONVERTERS.get(name)
    if converter is None:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(names())}")
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    if out.exists():
        raise InputError(f"{out} already exists; choose another folder")
    counts: Counter[Kind] = Counter()
    told: Counter[str] = Counter()
    with built_aside(out) as aside, ExitStack() as opened:
        files = {kind: opened.enter_context((aside / file).open("wb")) for kind, file in _FILES.items()}
        try:
            for kind, line in _takeable(converter(source), told, name in _TITLES_SUFFICE):
                kept = {key: value for key, value in line.items() if value is not None}
                files[kind].write(orjson.dumps(kept, option=orjson.OPT_APPEND_NEWLINE))
                counts[kind] += len(kept.get("turns", (None,)))
            if not counts["question"]:
                raise InputError(f"{source} contains no questions")
        except InputError as error:
            raise InputError(f"{error}; for {name}, pass a source such as {_SOURCES[name]}") from None
        opened.close()
        for kind in ("document", "gold"):
            if not counts[kind]:
                (aside / _FILES[kind]).unlink()
    why = _NO_CORPUS.get(name, "the data set has no corpus: index your own documents")
    return Converted(
        corpus=out / CORPUS if counts["document"] else None,
        questions=out / QUESTIONS,
        gold=out / GOLD if counts["gold"] else None,
        documents=counts["document"],
        count=counts["question"],
        no_corpus=None if counts["document"] else why,
        notes=tuple(f"{what}: {number}" for what, number in told.items()),
    )


def _takeable(pieces: Pieces, told: Counter[str], titles_suffice: bool) -> Pieces:
    """Change the converted lines so that `pyfast index` and `pyfast answer` accept them, and count each change in
    `told`.

    A question with a repeated id gets a new one. Documents and questions without text are left out, and so are
    documents with the id of an earlier one, and items of a question's `documents` that are not in the corpus. The
    gold of a question must follow the question, with the same id.
    """
    contents: dict[str, bytes] = {}
    ids: Counter[str] = Counter()
    taken: set[str] = set()
    # the new ids of the latest question or its turns, by their old ids
    now: dict[str, list[str | None]] = defaultdict(list)

    def document(line: dict[str, Any]) -> bool:
        digest = blake2b(orjson.dumps(line), digest_size=8).digest()
        title = (line.get("title") or "") if titles_suffice else ""
        if line["kind"] == "text" and not (line["text"] + title).strip():
            told["documents left out because they have no text"] += 1
        elif line["id"] not in contents:
            contents[line["id"]] = digest
            return True
        elif contents[line["id"]] != digest:
            told["documents left out because an earlier document has the same id"] += 1
        return False

    def own_id(given: str, turn: bool) -> str:
        kind = "turns" if turn else "questions"
        name = base = given if given.strip() else str(len(taken) + 1)
        if base != given:
            told[f"{kind} without an id, which got a number as their id"] += 1
        while name in taken:
            ids[base] += 1
            name = f"{base} ({ids[base] + 1})"
        if name != base:
            told[f"{kind} with a repeated id, which got a new id of the form `ID (2)`"] += 1
        taken.add(name)
        return name

    def asked(line: dict[str, Any], turn: bool = False) -> dict[str, Any] | None:
        if not line["question"].strip():
            told["questions left out because they have no text"] += 1
            now[line["id"]].append(None)
            return None
        name = own_id(line["id"], turn)
        now[line["id"]].append(name)
        if line.get("documents") is None:
            return {**line, "id": name}
        documents = [uri for uri in line["documents"] if uri in contents]
        if not documents:
            told["questions that search the whole corpus, because it has none of their own documents"] += 1
        return {**line, "id": name, "documents": documents or None}

    def gold(line: dict[str, Any]) -> dict[str, Any] | None:
        name = now[line["id"]].pop(0)
        missing = [uri for uri in line.get("supporting") or () if contents and uri not in contents]
        told["questions with gold evidence that is missing from the corpus"] += bool(missing)
        answers = None if line.get("answers") is None else texts_of(line["answers"])
        return None if name is None else {**line, "id": name, "answers": answers}

    conversations: set[str] = set()
    conversation = ""
    for kind, line in pieces:
        if kind == "question":
            now.clear()
        if kind == "note":
            told[line["what"]] += line["number"]
        elif kind == "document":
            if document(line):
                yield kind, line
        elif "turns" in line:
            if kind == "question":
                conversation = line["id"]
                while conversation in conversations:
                    conversation += " (2)"
                conversations.add(conversation)
            each = [gold(turn) if kind == "gold" else asked(turn, turn=True) for turn in line["turns"]]
            if turns := [turn for turn in each if turn is not None]:
                yield kind, {**line, "id": conversation, "turns": turns}
        elif (kept := gold(line) if kind == "gold" else asked(line)) is not None:
            yield kind, kept
    told += Counter()  # only counts that are not 0
