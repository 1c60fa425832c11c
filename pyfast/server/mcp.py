"""`serve_mcp`: give agents an index and a system as tools, through the Model Context Protocol (MCP)."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from pyfast.api.engine import Engine, View
from pyfast.api.index import open_index
from pyfast.api.models import GivenLLM, opened
from pyfast.corpus import Table
from pyfast.engine import Evidence
from pyfast.errors import InputError, LLMUnavailableError, PyfastError
from pyfast.retrieval import Index
from pyfast.server.errors import api_error
from pyfast.server.limits import is_local
from pyfast.systems import System, load_system
from pyfast.utils.log import LOG
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN
from pyfast.utils.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

_INSTRUCTIONS = (
    "Questions about one collection of texts, tables and facts. answer replies to a question with its evidence and"
    " calls a language model; search returns passages without one; read_source returns the text of a document."
)


class Passage(BaseModel):
    """A passage or a piece of evidence."""

    uri: str = Field(description="The uri of the document, as read_source expects it")
    title: str
    text: str
    score: float | None = None


class Passages(BaseModel):
    """Passages, best first."""

    passages: list[Passage]
    next: int | None = Field(description="The `start` of the next page. null: there are no more passages")


class Answered(BaseModel):
    """The answer to a question."""

    state: Literal["answered", "abstained", "failed"] = Field(
        description="abstained: the evidence does not contain the answer"
    )
    answer: str | None
    reason: str | None = Field(description="Why the question failed")
    evidence: list[Passage]
    llm_calls: int


class Source(BaseModel):
    """A part of a document's text."""

    uri: str
    title: str
    text: str
    characters: int = Field(description="The length of the whole text, in characters")


Filter = Annotated[
    list[str],
    Field(description="Conditions that all documents must meet, such as source=reports/* or meta.year>=2020"),
]
Documents = Annotated[list[str] | None, Field(description="The uris of the documents to search. null: all")]
MaxTokens = Annotated[
    int, Field(ge=50, description="The maximum length of the result, in tokens of about three characters")
]


def mcp_server(
    index: Index | str | Path,
    llm: GivenLLM = "embedded",
    *,
    llm_options: Mapping[str, Any] | None = None,
    system: str | System = "n2n",
    settings: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    outage: float = 0.0,
) -> MCPServer:
    """Create the MCP server that `serve_mcp` runs, with the tools `search`, `answer` and `read_source`.

    Args:
        index: An index, or its folder. If the index was opened with a filter, no tool shows other documents.
        llm: As in `pyfast.Engine`.
        llm_options: Options of a model given by name.
        system: The system that answers.
        settings: Settings of the system, by name.
        budget: Limits per question, by name.
        outage: How many minutes to wait if the model does not answer.

    Returns:
        The server. You can run it with your own transport. Its lifespan starts and stops the model.

    Raises:
        InputError: An argument is not valid.
        IndexFormatError: The folder contains no index, or its index is damaged.
    """
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    chosen = load_system(system) if isinstance(system, str) else system
    own = index if isinstance(index, Index) else open_index(index)
    engine = Engine(own, opened(llm, llm_options).by_role, budget=budget, outage=outage, follow=True)

    class Server(MCPServer):
        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:
                if not isinstance(cause := error.__cause__, ValidationError):
                    raise
                tool = self._tool_manager.get_tool(name)
                assert tool is not None
                said = _in_words(cause, tool.parameters["properties"])
                raise ToolError(f"Error executing tool {name}: {said}") from cause

    server = Server(
        "pyfast", instructions=_INSTRUCTIONS, version=__version__, lifespan=lambda _: engine, log_level="WARNING"
    )

    def shown(view: View, items: Iterable[Evidence], max_tokens: int) -> list[Passage]:
        """Return as many of the first passages as fit into the result together. The very first is cut if it is too
        long."""
        left = int(max_tokens * CHARACTERS_PER_TOKEN)
        passages: list[Passage] = []
        for item in items:
            title = item.heading or view.title(item.uri)
            passage = Passage(uri=item.uri, title=title, text=item.line, score=item.score)
            left -= len(passage.model_dump_json())
            if left < 0 and passages:
                break
            if left < 0:
                passage.text = passage.text[: max(len(passage.text) + left, 0)]
            passages.append(passage)
        return passages

    @contextlib.contextmanager
    def told() -> Iterator[None]:
        """Pass the messages of pyfast's own errors to the agent, which can then call differently. If the LLM does
        not answer, the reason names its address, and so goes only into the log."""
        try:
            yield
        except LLMUnavailableError as error:
            raise ToolError(str(api_error(error))) from error
        except PyfastError as error:
            raise ToolError(str(error)) from error

    @server.tool()
    async def search(
        query: Annotated[str, Field(description="Words or a question to search for")],
        k: Annotated[int, Field(ge=1, le=100, description="The maximum number of passages")] = 10,
        start: Annotated[int, Field(ge=0, le=10_000, description="The number of passages to skip")] = 0,
        max_tokens: MaxTokens = 8_000,
        filter: Filter = [],  # noqa: B006 pydantic copies it, and null would be redundant
        documents: Documents = None,
    ) -> Passages:
        """Find the best passages for a query. No language model is called."""
        with told():
            async with engine.view(filter) as view:
                found = await engine.retrieve(query, start + k + 1, filter=view, documents=documents)
                passages = shown(view, found[start : start + k], max_tokens)
        after = start + len(passages)
        return Passages(passages=passages, next=after if after < len(found) else None)

    @server.tool()
    async def answer(
        question: Annotated[str, Field(min_length=1, description="A self-contained question")],
        max_tokens: MaxTokens = 8_000,
        filter: Filter = [],  # noqa: B006 as in search
        documents: Documents = None,
    ) -> Answered:
        """Answer a question from the documents of the collection, and return the answer and its evidence."""
        with told():
            asked = {"id": "question", "question": question}
            async with engine.view(filter) as view:
                record = await engine.answer(
                    asked, system=chosen, settings=settings, filter=view, documents=documents
                )
                evidence = shown(view, record.evidence, max_tokens)
        return Answered(
            state=record.state,
            answer=record.answer,
            reason=record.reason,
            evidence=evidence,
            llm_calls=record.usage.llm_calls,
        )

    @server.tool()
    async def read_source(
        uri: Annotated[str, Field(description="The uri of a document, as search and answer return it")],
        start: Annotated[int, Field(ge=0, description="The position of the first character")] = 0,
        characters: Annotated[
            int, Field(ge=1, le=100_000, description="The maximum length, in characters")
        ] = 8_000,
    ) -> Source:
        """Read the text of a document, or part of it."""
        with told():
            async with engine.view() as view:
                assert view.index is not None
                text = await asyncio.to_thread(_text, view.index, uri)
                title = view.title(uri)
        return Source(uri=uri, title=title, text=text[start : start + characters], characters=len(text))

    for tool in server._tool_manager.list_tools():  # Unknown arguments would be dropped silently.
        taken = tool.fn_metadata.arg_model
        taken.model_config["extra"] = "forbid"
        taken.model_rebuild(force=True)
        tool.parameters = taken.model_json_schema()
    return server


def serve_mcp(
    index: Index | str | Path,
    llm: GivenLLM = "embedded",
    *,
    llm_options: Mapping[str, Any] | None = None,
    system: str | System = "n2n",
    settings: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    outage: float = 0.0,
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: int = 8001,
) -> None:
    """Offer an index and a system to agents as tools, through the Model Context Protocol (MCP).

    With `stdio`, the function returns when the client closes the standard input. With `http`, the server runs
    until the process receives SIGINT or SIGTERM.

    Args:
        index: An index, or its folder.
        llm: As in `pyfast.Engine`.
        llm_options: Options of a model given by name.
        system: The system that answers.
        settings: Settings of the system, by name.
        budget: Limits per question, by name.
        outage: How many minutes to wait if the model does not answer.
        transport: `stdio`: the client starts this process and uses its standard input and output. `http`: MCP's
            streamable HTTP, at the path `/mcp`.
        host: The address for `http`. The server has no keys, so `host` must be an address that only this
            machine can reach.
        port: The port for `http`.

    Raises:
        InputError: An argument is not valid, or other machines can reach `host`.
        IndexFormatError: The folder contains no index, or its index is damaged.
        LLMUnavailableError: The model cannot be started.

    Example:
        >>> import pyfast
        >>> pyfast.serve_mcp("IDX", "openai:qwen3-8b@http://127.0.0.1:8000", transport="http", host="192.0.2.1")
        Traceback (most recent call last):
        pyfast.errors.InputError: 192.0.2.1: MCP over HTTP has no API keys, so only a local address is allowed
    """
    if transport == "http" and not is_local(host):
        raise InputError(f"{host}: MCP over HTTP has no API keys, so only a local address is allowed")
    server = mcp_server(
        index, llm, llm_options=llm_options, system=system, settings=settings, budget=budget, outage=outage
    )
    if transport == "stdio":
        asyncio.run(server.run_stdio_async())
    else:
        LOG.info("serving MCP at http://%s:%d/mcp", host, port)
        asyncio.run(server.run_streamable_http_async(host=host, port=port))


def _in_words(error: ValidationError, arguments: Iterable[str]) -> str:
    """Say what is wrong with the arguments of a call. `arguments` are the names of those that the tool has."""
    said = []
    for fault in error.errors(include_url=False):
        name, what = ".".join(map(str, fault["loc"])), re.sub(r"^\w+ should", "should", fault["msg"])
        if fault["type"] == "missing":
            what = "is missing"
        elif fault["type"] == "extra_forbidden":
            what = f"is not an argument of this tool, which has {', '.join(arguments)}"
        said.append(f"{name} {what}")
    return "; ".join(said)


def _text(index: Index, uri: str) -> str:
    """Return the text of a document (for a table, starting with the header). Raises `InputError` if the document
    is not in the index."""
    source = index.corpus.find(uri)
    if source is None:
        raise InputError(f"uri: there is no document {uri!r}")
    document = index.corpus.document(source)
    if isinstance(document, Table):  # A line break within a cell would seem to end the row.
        rows = [document.header, *document.rows] if any(document.header) else document.rows
        return "\n".join("\t".join(" ".join(cell.split()) for cell in row) for row in rows)
    return index.corpus.content(int(index.corpus.roots[source]))
