"""A client for servers with OpenAI's chat-completions API: vLLM, llama.cpp, SGLang, Ollama, hosted providers."""

from __future__ import annotations

import asyncio
import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import aiohttp
import orjson
import tenacity
from yarl import URL

import pyfast.llm.chat as chat
import pyfast.llm.redaction as redaction
import pyfast.llm.server_calls as http
from pyfast.errors import AnswerError, CallError, InputError, LLMUnavailableError, OutageError, RefusalError
from pyfast.llm.protocol import CONTEXT_WINDOW, LLM, PROBE, Completion, OnText, Request, take_options
from pyfast.llm.reply_cleaning import bounded, without_controls
from pyfast.llm.request_fallbacks import Fallbacks, LearnedFallbacks, apply_fallbacks, fallback_for, whole_format
from pyfast.utils.log import LOG
from pyfast.utils.text_forms import some

LONGEST_PAUSE = 60.0  # A call waits at most this many seconds itself when Retry-After asks for it.
LONGEST_REFUSAL = 15.0  # If the server refuses every call for this many seconds, that is an outage.
LONGEST_REST_S = 30.0  # the maximum number of seconds without a call for a server that failed
BYTES_PER_TOKEN = 4
LARGEST_HEADER = 1 << 16
LENGTHS = ("Content-Length", "Transfer-Encoding")
_LARGEST = 64 << 20  # the maximum number of bytes of a reply with vectors
PROBE_TIMEOUT_S = 10.0

_REFUSALS = {
    401: "the server rejects the API key; check OPENAI_API_KEY",
    402: "the account has no credit left",
    403: "this API key may not use the model; check OPENAI_API_KEY and the model's name",
    404: "the server does not know this model or this path; check both",
}
_OF_KEY = (401, 403)
_NO_SUCH_PAGE = 501
_TOO_LARGE = (413, 414, 431)
_PASSING = (408, 409, 424, 425, 429, 498, 499)  # 424: TGI, 498: Groq; both say that the call may be repeated
_NEVER_FITS = re.compile(r"request too large|must be reduced", re.IGNORECASE)
_NO_QUOTA = "insufficient_quota"
_UNFIT = re.compile(r"json_validate_failed|failed_generation")

_OWN_FIELDS = {"messages", "model", "prompt_embeds", "response_format", "stream"}
_OWN_FIELDS |= {"max_completion_tokens", "max_tokens", "seed", "temperature"}
T = TypeVar("T")


def _leave(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections of an object that has been garbage-collected, maybe in another thread."""
    if not session.closed and loop.is_running():
        asyncio.run_coroutine_threadsafe(session.close(), loop)


class OpenAI:
    """A model on one server. The environment variable `OPENAI_API_KEY` can hold the API key.

    pyfast removes the key from every text that the server sends. The variables `HTTP_PROXY`, `HTTPS_PROXY`,
    `ALL_PROXY` and `NO_PROXY` apply to all servers except those on this machine.

    - `concurrency`: how many requests run at the same time.
    - `timeout_s`: how many seconds all attempts at one request may take together. Waiting for a rate limit does
      not count.
    - `attempts`: how often pyfast sends a request while the server is busy or the connection fails, before the
      request fails with `OutageError`. Between attempts, pyfast waits for a random time, of at most `backoff_s`
      seconds after the first attempt; this maximum doubles after each further attempt, up to 20 seconds. A refusal
      because of a rate limit counts as an attempt only if the server has answered no call since pyfast first sent
      this one.
    - `requests_per_minute`, `tokens_per_minute`: rate limits, where tokens are those of prompts and completions.
      pyfast spreads all attempts evenly over time. All models on the same server that the same event loop calls
      share the limits. If the server says when to try again, all calls wait until then. If this is more than a
      minute away, the call fails with `OutageError`. After a test call, no call is sent, and all fail, until then.
    - `context_window`: the size of the model's context window in tokens. By default, pyfast asks the server.
    - `reasoning_tokens`: additional tokens for each answer, for a model that writes its reasoning first.
    - `query`, `headers`: the query parameters and HTTP headers of every request, such as
      `{"api-version": "2024-10-21"}` and `{"api-key": "$AZURE_KEY"}`. A value `$NAME` is that of the environment
      variable NAME. pyfast hides it as it hides the API key. Neither is part of the fingerprint.
    - `extra`: fields for every request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`.
    """

    def __init__(self, spec: str, model: str, base_url: str, options: http.ServerOptions) -> None:
        extra = dict(options.extra or {})
        self._key = redaction.api_key()
        redaction.check_no_secret(extra, self._key)
        if own := sorted(_OWN_FIELDS & extra.keys()):
            raise InputError(
                f"extra: pyfast sets {', '.join(own)} itself; set temperature and seed as options of the run"
            )
        self._query, secrets = redaction.from_environment("query", options.query, self._key)
        self._headers, others = redaction.from_environment("headers", options.headers, self._key)
        hidden = self._key, *secrets, *others, *redaction.keys_in(base_url), *redaction.proxy_passwords()
        self._hidden, self._revealed = redaction.hider(*hidden), redaction.revealed(*hidden)
        self._options = options
        self.spec = self._hidden(http.shown_url(spec))
        self.slots = options.concurrency
        self.context_window = options.context_window or CONTEXT_WINDOW
        self._base_url = self._hidden(http.shown_url(base_url))  # the URL for messages, without secrets
        self._url = base_url
        self._chat_url = URL(base_url + "/chat/completions")
        self._model = model
        self._fields = {"model": model, **extra}
        self._session: aiohttp.ClientSession | None = None
        self._free_slots = asyncio.Semaphore(options.concurrency)
        self._rate = http.RateLimit()
        self._fallbacks = LearnedFallbacks()
        self._miscounted = False
        self._answered = -math.inf  # the event loop's time of the last completion
        self.fault: OutageError | None = None
        """Why the last attempt at a call failed. None: the server has replied since, or nothing has failed"""
        self._proxy = http.proxy_for(self._chat_url)

    @property
    def fingerprint(self) -> str:
        """A string that identifies the model: its name, the fields of `extra`, and `reasoning_tokens` if it is
        set.

        The text does not contain the host and port, so that a run can resume with the same model on another
        server.
        """
        extra = {name: value for name, value in self._fields.items() if name != "model"}
        if self._options.reasoning_tokens:
            extra["reasoning_tokens"] = self._options.reasoning_tokens
        return f"openai:{self._model}" + (f":{chat.as_json(extra).decode()}" if extra else "")

    async def start(self) -> None:
        """Check that the server answers, and ask it for the context window. Raises `OutageError` if the server
        does not answer, or fails to say it."""
        if self._session is not None:
            return
        self._rate = http.limit_of(str(self._chat_url))
        self._rate.limit(self._options.requests_per_minute, self._options.tokens_per_minute)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        headers |= self._headers
        self._session = aiohttp.ClientSession(
            connector=http.connector(),
            max_field_size=LARGEST_HEADER,  # Policies and cookies of gateways can be long.
            # The time of a call covers all its attempts. aiohttp would time each attempt separately.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PROBE_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )
        # If a caller drops this object without closing it, the connections end too. At exit, `started` closes it.
        weakref.finalize(self, _leave, self._session, asyncio.get_running_loop()).atexit = False
        ask = partial(self._models, self._session)
        try:
            models = await self._options.persist(
                ask, http.Again, tenacity.stop_after_attempt(self._options.attempts)
            )
        except http.Again as again:
            # The default window cannot replace the server's answer: another window would lead to other prompts.
            if self._options.context_window is None:
                await self.close()
                hint = "; if it never lists its models, set the option context_window"
                raise OutageError(f"{again}{hint}", again.error.kind, again.error.retry_after) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self.close()
            reason = chat.one_line(self._hidden(str(error))) or f"no answer within {PROBE_TIMEOUT_S:g} s"
            raise OutageError(f"nothing answers at {self._base_url}: {reason}; is the server up?") from None
        except RefusalError:
            await self._try_key()
        else:
            if self._options.context_window is None:
                self.context_window = http.context_window_in(models, self._model) or self.context_window
            if others := http.others_in(models, self._model):
                shown = self._hidden(chat.one_line(some(others)))
                LOG.warning("%s does not list the model %r; it lists %s", self._base_url, self._model, shown)

    async def _try_key(self) -> None:
        """Make a small call to find out whether the server rejects the API key or merely lists no models for
        it."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self.complete(PROBE)
        except RefusalError as error:
            if error.status in _OF_KEY:
                LOG.warning("%s", error)
                self.fault = OutageError(str(error))
        except (CallError, LLMUnavailableError, TimeoutError) as error:
            LOG.debug("a test call failed: %s", error)  # The first question shows what it means.

    async def _models(self, session: aiohttp.ClientSession) -> object:
        """Return the server's reply to `GET /models`, or None if the reply is not JSON. Some servers have no
        such page. Raises `Again` if the server is overloaded or has an internal error, and `RefusalError` if it
        rejects the API key."""
        url = URL(self._url + "/models").update_query(self._query)
        async with (
            asyncio.timeout(PROBE_TIMEOUT_S),
            session.get(url, proxy=self._proxy, allow_redirects=False) as response,
        ):
            try:
                answer = await http.read_body(response)
                if response.status >= 400 and response.status != _NO_SUCH_PAGE:
                    fault = self._refused(response.status, response.headers, answer)
                    if isinstance(fault, http.Again) or response.status in _OF_KEY:
                        raise fault
                return orjson.loads(answer)
            except (ValueError, CallError):
                return None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        is_probe = request == PROBE
        request = replace(request, max_tokens=request.max_tokens + self._options.reasoning_tokens)
        # Hanging calls hold all slots, and the probe must find out whether the server answers others.
        async with nullcontext() if is_probe else self._free_slots:
            fallbacks = kept = self._fallbacks.kept
            while True:
                body = self._body(request, fallbacks)
                try:
                    # vLLM's endpoint for plain completions also accepts a prompt's embeddings.
                    url = self._chat_url if request.embeds is None else URL(self._url + "/completions")
                    sent = chat.as_json(body)
                    # Servers estimate the tokens of a request in this way before they count them.
                    tokens = len(sent) // BYTES_PER_TOKEN + request.max_tokens
                    answer = await self._persist(
                        sent, url, tokens, self._reply, is_probe=is_probe, on_text=request.on_text
                    )
                    break
                except http.Unfit as unfit:
                    answer = unfit.completion
                    break
                except http.Refused as refused:
                    fallbacks = with_next(fallbacks, refused, body)
        counted = self._counted(answer, len(sent), request.max_tokens)
        self._rate.correct(counted.prompt_tokens + counted.completion_tokens - tokens)
        self._fallbacks.learn(body, fallbacks, fallbacks - kept, self._base_url)
        return counted

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Send a request other than a chat completion, such as one for embeddings, and return what `read` makes of
        the reply's JSON.

        `path` is added to the base URL. The request gets the model's name and the fields of `extra`, and is
        repeated like a chat completion. Call `start` first.

        Raises:
            Refused: The server refuses a part of the request.
            CallError: Only this call failed, or `read` raised the error.
            LLMUnavailableError: The server no longer answers, or refuses every call.
        """
        # Some servers have one model, which needs no name.
        sent = chat.as_json({**{name: value for name, value in self._fields.items() if value != ""}, **body})

        def result(answer: bytes) -> T:
            try:
                data = orjson.loads(answer) if answer.lstrip()[:1] == b"[" else chat.reply_of(answer)
                if isinstance(data, dict) and data.get("error"):
                    raise ValueError("an error")
            except chat.FAULTS_OF_JSON:
                raise self._refused(chat.status_in(answer) or 503, {}, answer, "with no result") from None
            return read(data)

        async with self._free_slots:
            return await self._persist(sent, URL(self._url + path), len(sent) // BYTES_PER_TOKEN, result, _LARGEST)

    def _body(self, request: Request, fallbacks: Fallbacks) -> dict[str, Any]:
        body = chat.request_fields(request, self._fields)
        if request.schema is not None:
            body["response_format"] = whole_format(request.schema)
        if request.on_text is not None:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        apply_fallbacks(body, request.schema, fallbacks)
        return body

    async def _persist(
        self,
        body: bytes,
        url: URL,
        tokens: int,
        read: Callable[[bytes], T],
        most: int = http.LARGEST_ANSWER,
        on_text: OnText | None = None,
        is_probe: bool = False,
    ) -> T:
        """Send a request of about `tokens` tokens until an attempt succeeds, or until the attempts or the time are
        used up. Return what `read` makes of the body of the reply, which has at most `most` bytes. Raises
        `Unfit`, `Refused`, or the error for the call. A probe that meets a rate limit has served its purpose, and
        is not sent again."""
        clock = asyncio.get_running_loop().time
        # The time starts with the slot: the server does not cause the wait for one.
        began = clock()
        deadline = began + self._options.timeout_s
        last: OutageError | None = None
        failures = 0

        async def attempt() -> T:
            nonlocal deadline, last, failures
            deadline += await self._rate.turn(tokens, self._running)
            reader = None if on_text is None else chat.text_reader(lambda text: on_text(self._revealed(text)))
            try:
                async with asyncio.timeout_at(deadline):
                    answer = read(await self._exchange("POST", url, most, reader, data=body))
            except http.Again as again:
                self.fault = last = again.error
                is_limited = last.kind == "busy" and last.retry_after > 0
                # If other calls get replies, this is a rate limit; otherwise, the server may refuse all calls.
                failures += not (is_limited and self._answered > began)
                nobody = clock() - max(began, self._answered) > LONGEST_REFUSAL
                if is_probe and last.retry_after > LONGEST_PAUSE:  # Otherwise, this may concern only one call.
                    self._rate.close(last)
                if last.retry_after > LONGEST_PAUSE or (last.kind == "busy" and nobody):
                    raise last from None
                self._rate.pause(last.retry_after)
                if failures >= self._options.attempts or (is_limited and is_probe):
                    raise last from None
                raise
            except (http.Refused, CallError):
                self.fault = None
                raise
            except http.Unfit:
                self._answered, self.fault = clock(), None
                raise
            self._answered, self.fault = clock(), None
            return answer

        try:
            return await self._options.persist(
                attempt, http.Again, lambda state: clock() + state.upcoming_sleep > deadline
            )
        except (http.Again, TimeoutError):
            before = f"; before that, {last}" if last else ""
            message = f"{self._base_url} did not answer within {self._options.timeout_s:g} s{before}"
            raise OutageError(message, last.kind if last else "slow") from None

    def _running(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            raise LLMUnavailableError(f"{self.spec} is not running: it was closed or never started")
        return self._session

    def _reply(self, answer: bytes) -> Completion:
        """Read the completion in a reply's body. Without one, the status that the body names applies, or else 503:
        a server that names none has failed."""
        try:
            data = chat.reply_of(answer)
            choice = chat.choice_of(data)
        except chat.FAULTS_OF_JSON:
            raise self._refused(chat.status_in(answer) or 503, {}, answer, "with no chat completion") from None
        return self._completion(choice, data.get("usage"))

    async def _exchange(
        self,
        method: str,
        url: URL,
        most: int = http.LARGEST_ANSWER,
        on_piece: Callable[[bytes], None] | None = None,
        **sent: Any,
    ) -> bytes:
        """Make one HTTP request, and return the reply's body, which may have at most `most` bytes. `on_piece` is
        called with each piece of the body.

        If the status is not 2xx, the body is too large or the connection fails, the method raises `Again`,
        `Refused`, or the error for the call.
        """
        url = url.update_query(self._query) if self._query else url
        try:
            async with self._running().request(
                method, url, proxy=self._proxy, allow_redirects=False, **sent
            ) as response:
                answer = await http.read_body(response, most, on_piece)
                # A body without a length ends where the connection is closed, even if that is too early.
                if chat.breaks_off(answer) and response.headers.keys().isdisjoint(LENGTHS):
                    raise aiohttp.ClientPayloadError("the stream breaks off")
        except aiohttp.ClientConnectorError as error:
            reason = chat.one_line(self._hidden(str(error)))
            self._fallbacks.forget()  # Another server may answer here next.
            raise http.Again(OutageError(f"nothing answers any longer at {self._base_url}: {reason}")) from None
        except aiohttp.ServerTimeoutError:
            raise http.Again(OutageError(f"{self._base_url} no longer accepts connections")) from None
        except (aiohttp.ClientError, OSError) as error:
            if self._session is None:  # The session was closed during the call.
                raise LLMUnavailableError(f"the connection to {self._base_url} was closed") from None
            reason = chat.one_line(self._hidden(str(error))) or type(error).__name__
            raise http.Again(OutageError(f"{self._base_url} closed the connection: {reason}")) from None
        if not 200 <= response.status < 300:  # Some gateways answer 201.
            raise self._refused(response.status, response.headers, answer)
        return answer

    def _completion(self, choice: Mapping[str, Any], usage: object) -> Completion:
        """Read the completion in a server's reply, and remove the API key from its text."""
        text, reasoning = chat.texts_of(choice)
        message = choice.get("message")
        refusal = message.get("refusal") if isinstance(message, dict) else None
        if not text and isinstance(refusal, str) and refusal:
            raise AnswerError(f"the LLM refused: {chat.one_line(self._hidden(refusal))}")
        text, reason = (
            self._hidden(without_controls(value)) if isinstance(value, str) else value
            for value in (text, choice.get("finish_reason"))
        )
        return chat.completion(text, reason, usage, reasoning)

    def _counted(self, completion: Completion, sent: int, max_tokens: int) -> Completion:
        """Correct impossible token counts of a completion (see `reply_cleaning.bounded`). The first correction is
        logged."""
        counted = bounded(completion, sent, max_tokens)
        if counted != completion and not self._miscounted:
            self._miscounted = True
            said, believed = ((one.prompt_tokens, one.completion_tokens) for one in (completion, counted))
            LOG.warning(
                "%s reports %d tokens in and %d out for %d bytes, which is impossible; pyfast uses %d in and %d"
                " out instead, and will correct later counts without a warning",
                *(self._base_url, *said, sent, *believed),
            )
        return counted

    def _refused(self, status: int, headers: Mapping[str, str], answer: bytes, how: str = "") -> Exception:
        """Return the error for a reply whose status or body reports one. `how` tells what the body lacks. The API
        key is removed from the message."""
        answer = self._hidden(answer.decode(errors="replace")).encode()
        said = chat.error_text(answer)
        if status == 429 and _NO_QUOTA in (chat.error_field(answer, "code"), chat.error_field(answer, "type")):
            # This is no rate limit, so waiting does not help.
            return LLMUnavailableError(f"{self._base_url} answered 429: {_REFUSALS[402]} ({self._model}): {said}")
        if status < 400:
            message = f"{self._base_url} answered {status} with no completion"
            return RefusalError(f"{message}; check the URL", message)
        message = f"{self._base_url} answered {how or status}: {said}"
        if status == 429 and _NEVER_FITS.search(said):  # The limit of a minute is smaller than the request.
            return CallError(message)
        if status in _PASSING or status >= 500:
            pause = http.pause_asked(headers.get("Retry-After"))
            return http.Again(OutageError(message, "busy" if status == 429 else "down", pause))
        if status in (400, 422):
            if _UNFIT.search(f"{chat.error_field(answer, 'code')} {said}"):
                return http.Unfit(Completion(chat.error_field(answer, "failed_generation"), "stop"))
            # A server that has answered nothing yet may refuse every call, as Gemini does for a wrong key.
            is_first = self._answered == -math.inf
            error = RefusalError(message) if is_first else CallError(message)
            return http.Refused(error, f"{chat.error_field(answer, 'param')} {said}")
        if status in _TOO_LARGE:
            return http.Refused(CallError(message), said)
        if status == 401:  # Such a text often repeats a part of the key.
            message = f"{self._base_url} answered 401: {_REFUSALS[401]} ({self._model})"
            return RefusalError(message, status=status)
        hint = _REFUSALS.get(status, "the server does not accept such calls; check the URL")
        refused = f"{self._base_url} answered {status}: {hint} ({self._model}): {said}"
        return RefusalError(refused, message, status)


def with_next(fallbacks: Fallbacks, refused: http.Refused, body: dict[str, Any]) -> Fallbacks:
    """Add the next fallback to try to those that were tried before. Raises the error for the call if there is
    none."""
    wish = fallback_for(refused.complaint, body, fallbacks)
    if wish is None:
        raise refused.error from None
    return fallbacks | {wish}


@dataclass(slots=True, eq=False)
class _Server:
    """One of the servers and its state."""

    llm: OpenAI
    weight: float
    running: int = 0
    failures: int = 0
    """How often the server has failed since its last answer. Calls that fail together count once"""
    rests_until: float = 0.0
    """Until this time, on the event loop's clock, a call goes to this server only if no other server is left"""
    has_answered: bool = False

    def may_take_one(self, now: float) -> bool:
        """Return whether the server is ready for a call at the time `now`. A server that has failed is not ready
        before `rests_until`. Then it is ready for one call, and for more calls after it has answered."""
        return not self.failures or (now >= self.rests_until and not self.running)


class OpenAIServers:
    """A model on several servers. Each call goes to the server with the fewest running calls relative to its
    weight.

    If a call fails on one server, it goes to another. After a failure, a server gets no calls for some time
    (longer after each failure), unless no other server is left. Then pyfast tries it with one call. If no server
    answers a call, pyfast waits and tries all servers again, up to `attempts` times in total, before the call
    fails. Each server has the same options as an `OpenAI` model. In addition, `weights` is a list with one number
    for each server: a server with twice the weight gets twice as many calls.
    """

    def __init__(
        self, model: str, urls: Sequence[str], weights: Sequence[float] | None, options: http.ServerOptions
    ):
        numbers = [1.0] * len(urls) if weights is None else weights
        is_for_each = isinstance(numbers, list | tuple) and len(numbers) == len(urls)
        if not is_for_each or not all(isinstance(one, int | float) and 0 < one < math.inf for one in numbers):
            raise InputError(f"weights: expected {len(urls)} numbers above 0, one for each server")
        if len(set(urls)) < len(urls):
            raise InputError("the same server is given twice")
        once = replace(options, attempts=1)  # The next attempt goes to another server.
        llms = [OpenAI(f"openai:{model}@{url}", model, url, once) for url in urls]
        self._servers = list(map(_Server, llms, numbers))
        self._options = options
        self.spec = ",".join([llms[0].spec, *(llm.spec.removeprefix(f"openai:{model}@") for llm in llms[1:])])
        self.slots = sum(llm.slots for llm in llms)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model. It does not depend on the servers."""
        return self._servers[0].llm.fingerprint

    @property
    def context_window(self) -> int:
        """The smallest context window of the servers that have not failed since their last answer, in tokens.
        If all servers have failed, the smallest context window of all."""
        reached = [server for server in self._servers if not server.failures]
        return min(server.llm.context_window for server in reached or self._servers)

    @property
    def fault(self) -> OutageError | None:
        """Why the last attempts failed, if they failed on all servers. Otherwise None."""
        faults = [server.llm.fault for server in self._servers]
        return faults[0] if all(faults) else None

    async def start(self) -> None:
        """Check which servers answer. Raises `LLMUnavailableError` if no server answers."""
        starting = (server.llm.start() for server in self._servers)
        results = await asyncio.gather(*starting, return_exceptions=True)
        for server, error in zip(self._servers, results, strict=True):
            if isinstance(error, LLMUnavailableError):
                self._failed(server)
            elif isinstance(error, BaseException):
                raise error
        if all(server.failures for server in self._servers):
            assert isinstance(results[0], LLMUnavailableError)
            raise results[0]

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(server.llm.close() for server in self._servers))

    async def complete(self, request: Request) -> Completion:
        """Answer one request. Raises `CallError` if only this call failed, and `LLMUnavailableError` if the model
        no longer answers.
        """
        stop = tenacity.stop_after_attempt(self._options.attempts)
        return await self._options.persist(partial(self._ask_all, request), OutageError, stop)

    async def _ask_all(self, request: Request) -> Completion:
        """Ask one server after the other, until one answers."""
        untried, failures = list(self._servers), list[LLMUnavailableError]()
        while untried:
            server = self._chosen(untried)
            untried.remove(server)
            try:
                return await self._ask(server, request)
            except LLMUnavailableError as error:
                failures.append(error)
        # A server in an outage may come back, and then take the call.
        raise next((error for error in failures if isinstance(error, OutageError)), failures[-1])

    def _chosen(self, untried: Sequence[_Server]) -> _Server:
        """Choose a server for a call: of the servers that are ready (`may_take_one`), one that has failed, because
        no other call shows whether it works again, or else the one with the fewest running calls relative to its
        weight. If no server is ready, the one with the earliest `rests_until`."""
        now = asyncio.get_running_loop().time()
        ready = [server for server in untried if server.may_take_one(now)]
        if ready:
            return min(ready, key=lambda server: (not server.failures, (server.running + 1) / server.weight))
        return min(untried, key=lambda server: server.rests_until)

    async def _ask(self, server: _Server, request: Request) -> Completion:
        server.running += 1
        try:
            await server.llm.start()  # A server that was reached before is not asked again.
            completion = await server.llm.complete(request)
        except LLMUnavailableError as error:
            # A server that has answered may refuse only this call.
            if not (isinstance(error, RefusalError) and server.has_answered):
                self._failed(server)
            raise
        except asyncio.CancelledError:
            if server.failures:  # It may hang, so the next call goes elsewhere.
                self._failed(server)
            raise
        finally:
            server.running -= 1
        server.failures, server.has_answered = 0, True
        return completion

    def _failed(self, server: _Server) -> None:
        now = asyncio.get_running_loop().time()
        if now >= server.rests_until:  # Calls that fail together count as one failure.
            server.failures += 1
            server.rests_until = now + min(self._options.backoff_s * 2**server.failures, LONGEST_REST_S)


def open_server(rest: str, **options: Any) -> LLM:
    """Open `openai:MODEL@URL` or `openai:MODEL@URL1,URL2`. Raises `InputError` if the text has another form."""
    spec, *others = re.split(r",(?=https?://)", f"openai:{rest}")
    model, url = http.parse_spec(spec)
    if not others:
        return OpenAI(spec, model, url, take_options("openai", http.ServerOptions, **options))
    urls = [url, *(http.parse_spec(f"openai:{model}@{other}")[1] for other in others)]
    weights = options.pop("weights", None)
    return OpenAIServers(model, urls, weights, take_options("openai", http.ServerOptions, **options))
