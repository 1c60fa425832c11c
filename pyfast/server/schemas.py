"""The types of requests and replies, from which the OpenAPI description is generated.

A request with an unknown field is refused, because the field might change the answer. OpenAI clients send some
fields on their own; those that cannot change an answer here are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from pyfast.errors import did_you_mean

T = TypeVar("T")


class FieldError(ValueError):
    """Raised for a field that a request may not have."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name}: {fault}")
        self.name = name


class _Reply(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    _IGNORED: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Ignored fields. If values are listed, only these are ignored"""
    _MEANT: ClassVar[Mapping[str, str]] = {}
    """For a field that does not exist: how to express the same in a request"""

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, given: Any) -> Any:
        """Drop ignored fields and fields that are null. Raise an error for other unknown fields."""
        if not isinstance(given, dict) or given.keys() <= cls.model_fields.keys():
            return given
        kept = {}
        for name, value in given.items():
            if name in cls.model_fields:
                kept[name] = value
            elif name in cls._IGNORED:
                if (values := cls._IGNORED[name]) and value is not None and value not in values:
                    what = "" if [] in values else "this value is "
                    raise FieldError(name, f"{what}not supported here")
            elif value is not None:
                accepted = [other for other, values in cls._IGNORED.items() if not values]
                near = cls._MEANT.get(name) or did_you_mean(name, [*cls.model_fields, *accepted])
                needed = (own for own, field in cls.model_fields.items() if field.is_required())
                more = next((f"; {own} is missing" for own in needed if own not in given), "")
                raise FieldError(name, f"there is no such field{near or more}")
        return kept


def fault_of(faults: Iterable[Mapping[str, Any]]) -> tuple[str, str, str]:
    """Return (place, fault, field) of the most informative fault among those that pydantic reports."""
    # Where several types are possible, pydantic puts the name of the type into the place.
    kinds = {"str", *(kind.__name__ for base in (_Request, _Search) for kind in base.__subclasses__())}
    found = []
    for fault in faults:
        places = [it for part in fault["loc"] if (it := str(part)) not in kinds and "[" not in it]
        if isinstance(cause := fault.get("ctx", {}).get("error"), FieldError):  # This says more than the others.
            return ".".join(places), str(cause), ".".join([*places, cause.name])
        # A fault within a type that fits says more than the faults of types that do not fit.
        found.append((len(places), not fault["type"].endswith("_type"), places, fault["msg"]))
    first = found[0][2]
    # A fault at a deeper place says more than one such as "not a string".
    *_, places, said = max((one for one in found if one[2][: len(first)] == first), key=itemgetter(0, 1))
    return ".".join(places), said, ".".join(places)


class TextPart(_Request):
    """A part of a message. Only text parts are supported."""

    _IGNORED = {"cache_control": (), "annotations": ()}
    type: Literal["text"]
    text: StrictStr

    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, given: Any) -> Any:
        """Raise an error for a part of another type, such as an image."""
        if isinstance(given, dict) and given.get("type") != "text":
            raise FieldError("type", "only parts of type text are accepted")
        return given


class ChatMessage(_Request):
    """A message of a conversation."""

    _IGNORED = {
        **dict.fromkeys(("name", "refusal", "annotations", "state"), ()),
        **dict.fromkeys(("tool_calls", "function_call", "audio"), ([],)),
    }

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[TextPart] | None = None

    def text(self) -> str:
        """Return the content as one string."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(_Request):
    """Options of a stream."""

    _IGNORED = {"include_obfuscation": (), "continuous_usage_stats": ()}

    include_usage: StrictBool | None = None
    """Whether the last chunk of a stream contains the token counts"""


class ResponseFormat(_Request):
    """The format of the answer. Only text is supported."""

    type: Literal["text"]


class _Search(_Request):
    filter: StrictStr | Annotated[list[StrictStr], Field(min_length=1)] | None = None
    """One or more conditions, such as source=reports/* or meta.year>=2020. Only documents that meet all of them
    are found. OpenAI's API has no such field"""
    documents: Annotated[list[StrictStr], Field(min_length=1)] | None = None
    """The uris of the documents to search. Default: all documents that meet the filter"""


class ChatRequest(_Search):
    """A question, with the earlier turns of the conversation.

    The last message is the question. Pairs of user and assistant messages before it are earlier turns. System
    messages are ignored, because each system has its own prompts.
    """

    _IGNORED = {
        # The system has its own sampling and limits, so these change nothing.
        **dict.fromkeys(("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"), ()),
        **dict.fromkeys(("frequency_penalty", "presence_penalty", "repetition_penalty", "reasoning_effort"), ()),
        "max_completion_tokens": (),
        **dict.fromkeys(("user", "metadata", "store", "service_tier", "safety_identifier", "verbosity"), ()),
        **dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls"), ()),
        # These would change the answer, except with the values given here.
        **dict.fromkeys(("stop", "functions", "tools"), ([],)),
        "logit_bias": ({},),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "tool_choice": ("none", "auto"),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
    }
    _MEANT = {"system": "; `model` names the system"}
    model: StrictStr
    """SYSTEM or SYSTEM@INDEX, as /v1/models lists them"""
    messages: list[ChatMessage] = Field(min_length=1)
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    trace: StrictBool = True
    """Whether a stream reports each step of the system. OpenAI's API has no such field"""
    n: Literal[1] | None = None
    response_format: ResponseFormat | None = None
    settings: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat] | None = None
    """Settings of the system, by name, if the server allows them. OpenAI's API has no such field"""


class _Quotation(_Reply):
    title: str
    snippet: str
    offsets: tuple[int, int]
    """In a text: the position of the first character (from 0), and the position after the last character. In a
    table: row and column, where -1 stands for all. In a knowledge graph: (-1, -1)"""
    segment: str
    score: float | None
    section: str | None = None
    """In a table: the section of the page that it comes from"""
    header: list[str] | None = None
    """In a table: the names of the columns"""


class UrlCitation(_Quotation):
    """A piece of evidence, and the place it comes from."""

    start_index: int
    end_index: int
    url: str
    """The uri of the document"""


class Annotation(BaseModel):
    """A piece of evidence for the whole text of the answer."""

    type: Literal["url_citation"]
    url_citation: UrlCitation


class AnswerMessage(BaseModel):
    """The answer, with its evidence as annotations."""

    role: Literal["assistant"]
    content: str
    refusal: str | None
    annotations: list[Annotation]


class Choice(BaseModel):
    """The answer as the only item of `choices`."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop"]
    logprobs: None


class CachedTokens(BaseModel):
    """Prompt tokens that were in the LLM's prefix cache."""

    cached_tokens: int


class Usage(BaseModel):
    """How many tokens and LLM calls the question used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    llm_calls: int


class ChatCompletion(_Reply):
    """The answer to a question. If the request sets `stream`, the answer is sent in chunks, as server-sent
    events."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    state: Literal["answered", "abstained"]
    """abstained: the evidence does not contain the answer"""


class Model(BaseModel):
    """A name that requests can use as `model`: SYSTEM or SYSTEM@INDEX. SYSTEM alone uses the first index."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class _List(BaseModel, Generic[T]):
    object: Literal["list"]
    data: list[T]


class ModelList(_List[Model]):
    """All names that requests can use as `model`."""


class RetrieveRequest(_Search):
    """A search for passages."""

    _IGNORED = {"user": ()}
    query: StrictStr = Field(min_length=1)
    k: StrictInt = Field(default=20, ge=1)
    """The maximum number of passages"""
    index: StrictStr | None = None
    """The name of the index. Default: the first index"""


class Passage(_Quotation):
    """A retrieved passage."""

    uri: str


class RetrieveResponse(BaseModel):
    """Passages, best first."""

    object: Literal["list"]
    index: str
    results: list[Passage]


class TextDocument(_Request):
    """A document to rank."""

    text: StrictStr


class RerankRequest(_Request):
    """A query, and documents to rank by how well they match it."""

    _IGNORED = dict.fromkeys(("model", "user", "max_tokens_per_doc", "max_chunks_per_doc"), ())
    query: StrictStr = Field(min_length=1)
    documents: list[StrictStr | TextDocument] = Field(min_length=1)
    top_n: StrictInt | None = Field(default=None, ge=1)
    return_documents: StrictBool = True


class RankedDocument(_Reply):
    """A ranked document."""

    index: int
    """The position of the document in the request, from 0"""
    relevance_score: float
    document: TextDocument | None = None


class RerankResponse(BaseModel):
    """Documents, best first."""

    id: str
    model: Literal["bridge_rank"]
    results: list[RankedDocument]


Purpose = Literal["batch", "batch_output"]


class FileObject(BaseModel):
    """The metadata of a file: an upload, or the results of a batch."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    object: Literal["file"]
    status: Literal["processed"]


class FileDeleted(BaseModel):
    """The confirmation that a file was deleted."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class _Page(_List[T], Generic[T]):
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileList(_Page[FileObject]):
    """One page of the list of files, newest first."""


class BatchRequest(_Request):
    """A request to answer the questions in an uploaded file. Each line of the file is a JSON object with
    `custom_id`, `method`, `url` and `body` (the request to this url).
    """

    _IGNORED = {"output_expires_after": ()}
    input_file_id: StrictStr
    endpoint: Literal["/v1/chat/completions"]
    completion_window: Literal["24h"]
    """A field of OpenAI's API, which does not limit a batch's time here"""
    metadata: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None = Field(
        default=None, max_length=16
    )


class BatchFault(BaseModel):
    """An error in a batch, or in one line of its file."""

    line: int | None
    code: str
    message: str
    param: str | None


class BatchFaults(_List[BatchFault]):
    """The errors in a batch and in the lines of its file."""


class RequestCounts(BaseModel):
    """The progress of a batch, as numbers of questions."""

    total: int
    completed: int
    failed: int


State = Literal["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]


class BatchObject(_Reply):
    """A batch of questions, with its state and progress."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    metadata: dict[str, str] | None
    status: State
    model: str | None
    filter: list[str] | None = None
    """The `filter` of the lines of the file"""
    settings: dict[str, Any] | None = None
    """The `settings` of the lines of the file"""
    errors: BatchFaults | None
    output_file_id: str | None
    error_file_id: str | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    object: Literal["batch"]


class BatchList(_Page[BatchObject]):
    """One page of the list of batches, newest first."""


class Status(_Reply):
    """The state of the server."""

    status: Literal["ok", "ready", "waiting", "stopping"]
    """ok: the server is running. ready: it accepts questions. waiting: the LLM does not answer. stopping: it
    accepts no more questions"""


class ErrorDetail(BaseModel):
    """The details of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error, in the format that OpenAI clients expect."""

    error: ErrorDetail
