"""The requests and replies in the OpenAPI description. The server ignores all other fields of a request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr


class _Request(BaseModel):
    model_config = ConfigDict(extra="allow")


class TextPart(_Request):
    """A part of a message. The server reads only text."""

    type: Literal["text"]
    text: StrictStr


class ChatMessage(_Request):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[TextPart] | None = None

    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(_Request):
    """Options of a stream."""

    include_usage: StrictBool | None = None


class ResponseFormat(_Request):
    """The form of the answer: text."""

    type: Literal["text"]


class ChatRequest(_Request):
    """A question, with the earlier turns of the conversation.

    The last message is the question. Pairs of user and assistant messages before it are earlier turns. System
    messages are ignored, because each system has its own prompts.
    """

    model: StrictStr = Field(description="SYSTEM or SYSTEM@INDEX, as /v1/models lists them")
    messages: list[ChatMessage] = Field(min_length=1)
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    trace: StrictBool = Field(default=True, description="Whether a stream reports each step (not OpenAI's)")
    n: Literal[1] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None


class UrlCitation(BaseModel):
    """Where a piece of evidence comes from."""

    start_index: int
    end_index: int
    title: str
    url: str = Field(description="The uri of the document")
    snippet: str
    offsets: tuple[int, int] = Field(description="Characters in the document; row and column of a table")
    segment: str
    score: float | None


class Annotation(BaseModel):
    """A piece of evidence for the whole text of the answer."""

    type: Literal["url_citation"]
    url_citation: UrlCitation


class AnswerMessage(BaseModel):
    """The answer."""

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
    """Tokens of prompts that the LLM had in its prefix cache."""

    cached_tokens: int


class Usage(BaseModel):
    """Tokens of all LLM calls of the question."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    llm_calls: int


class ChatCompletion(BaseModel):
    """The answer to a question. With `stream`, the answer comes in chunks, as server-sent events."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    state: Literal["answered", "abstained"] = Field(description="abstained: the evidence has no answer")


class Model(BaseModel):
    """A system, on an index."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All systems on all indexes."""

    object: Literal["list"]
    data: list[Model]


class RetrieveRequest(_Request):
    """A search."""

    query: StrictStr = Field(min_length=1)
    k: StrictInt = Field(default=20, ge=1)
    index: StrictStr | None = Field(default=None, description="The name of an index; the first one if left out")


class Passage(BaseModel):
    """A retrieved passage."""

    uri: str
    title: str
    snippet: str
    offsets: tuple[int, int]
    segment: str
    score: float | None


class RetrieveResponse(BaseModel):
    """Passages, best first."""

    object: Literal["list"]
    index: str
    results: list[Passage]


class TextDocument(_Request):
    """A document to rank."""

    text: StrictStr


class RerankRequest(_Request):
    """Documents to rank for a query, in any order."""

    query: StrictStr = Field(min_length=1)
    documents: list[StrictStr | TextDocument] = Field(min_length=1)
    top_n: StrictInt | None = Field(default=None, ge=1)
    return_documents: StrictBool = True


class RankedDocument(BaseModel):
    """A ranked document, with its position in the request."""

    index: int
    relevance_score: float
    document: TextDocument | None = None


class RerankResponse(BaseModel):
    """Documents, best first."""

    id: str
    model: Literal["bridge_rank"]
    results: list[RankedDocument]


class FileObject(BaseModel):
    """An uploaded file, or the result of a batch."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]


class FileDeleted(BaseModel):
    """A deleted file."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class _Page(BaseModel):
    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileList(_Page):
    """Files, the newest first."""

    data: list[FileObject]


class BatchRequest(_Request):
    """A batch: a file of questions. Each line has `custom_id`, `method`, `url` and `body` (a request to this
    url).
    """

    input_file_id: StrictStr
    endpoint: Literal["/v1/chat/completions"]
    completion_window: Literal["24h"] = Field(description="OpenAI's field; a batch takes as long as it takes")
    metadata: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None = Field(
        default=None, max_length=16
    )


class BatchFault(BaseModel):
    """An error in one line of a batch's file."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchFaults(BaseModel):
    """The errors in the lines of a batch's file."""

    object: Literal["list"]
    data: list[BatchFault]


class RequestCounts(BaseModel):
    """The progress of a batch."""

    total: int
    completed: int
    failed: int


class BatchObject(BaseModel):
    """A batch."""

    id: str
    object: Literal["batch"]
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    metadata: dict[str, str] | None
    status: Literal["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]
    model: str | None
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


class BatchList(_Page):
    """Batches, the newest first."""

    data: list[BatchObject]


class Status(BaseModel):
    """Whether the server is working."""

    status: Literal["ok", "ready", "stopping"]


class ErrorDetail(BaseModel):
    """The details of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error in the form that OpenAI's clients read."""

    error: ErrorDetail
