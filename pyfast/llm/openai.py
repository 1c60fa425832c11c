"""A client for servers with OpenAI's chat-completions API: vLLM, llama.cpp, SGLang, Ollama, hosted providers."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
import tenacity
from yarl import URL

from pyfast.errors import AnswerError, CallError, InputError, LLMUnavailableError, OutageError
from pyfast.llm.chat import as_json, completion, embeds_fields, error_field, error_text, one_line, request_fields
from pyfast.llm.foreign import bounded, without_controls
from pyfast.llm.options import take_options
from pyfast.llm.protocol import LLM, Completion, Request
from pyfast.llm.rate_limit import RateLimit, limit_of
from pyfast.llm.redaction import HIDDEN, api_key, check_no_secret, hider, keys_in, proxy_passwords
from pyfast.llm.request_fallbacks import Fallbacks, apply_fallbacks, fallback_for, whole_format

LARGEST_ANSWER = 8 << 20  # the maximum number of bytes of a reply
LONGEST_PAUSE = 60.0  # A call waits at most this many seconds itself when Retry-After asks for it.
LONGEST_REFUSAL = 15.0  # If the server refuses every call for this many seconds, that is an outage.
LONGEST_RETRY_AFTER = 30 * 86400.0
BYTES_PER_TOKEN = 4
LONGEST_BACKOFF = 20.0  # the maximum number of seconds between two attempts
PROBE_TIMEOUT_S = 10.0

_REFUSALS = {
    401: "the server refuses the API key; check OPENAI_API_KEY",
    402: "the account has no credit left",
    403: "this API key may not use the model; check OPENAI_API_KEY and the model's name",
    404: "the server does not know this model or this path; check both",
}

_OWN_FIELDS = {"messages", "model", "prompt_embeds", "response_format", "stream"}
_OWN_FIELDS |= {"max_completion_tokens", "max_tokens", "seed", "temperature"}
_log = logging.getLogger("pyfast")


def parse_spec(spec: str) -> tuple[str, str]:
    """Split `openai:MODEL@URL` into the model's name and the base URL.

    pyfast adds `/chat/completions` to the base URL. If the URL has no path, its path becomes `/v1`. Raises
    `InputError` if the text has another form.
    """
    match = re.fullmatch(r"openai:(.+?)@(https?://\S+)", spec)
    unreadable = InputError(f"unreadable LLM {_shown(spec)!r}; expected openai:MODEL@http://HOST:PORT")
    if match is None or "://" in match[1]:
        raise unreadable
    if re.search(r"[@?#]", match[2]):
        raise InputError(
            "an LLM's URL must have no password, no query and no fragment; put the key into OPENAI_API_KEY"
        )
    try:
        parts = urlsplit(match[2])
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        base_url = f"{parts.scheme}://{parts.netloc}{path}"
        if not URL(base_url).host or parts.port == 0:
            raise unreadable
    except ValueError as error:  # The port is not a number, or the address in brackets is invalid.
        raise InputError(f"{unreadable} ({one_line(error)})") from None
    return match[1], base_url


def open_server(rest: str, **options: Any) -> LLM:
    """Open `openai:MODEL@URL` or `openai:MODEL@URL1,URL2`. Raises `InputError` if the text has another form."""
    spec, *others = re.split(r",(?=https?://)", f"openai:{rest}")
    if others:
        from pyfast.llm.openai_servers import OpenAIServers

        model, url = parse_spec(spec)
        urls = [url, *(parse_spec(f"openai:{model}@{other}")[1] for other in others)]
        specs = [(f"openai:{model}@{one}", one) for one in urls]
        return take_options("openai", OpenAIServers, model, specs, **options)
    return take_options("openai", OpenAI, spec, *parse_spec(spec), **options)


def _shown(url: str) -> str:
    """Return a URL without its passwords and keys, for messages. The URL may be malformed."""
    bare = re.sub(r"(?:(?<=://)|(?<=@)).*@(?!https?://)", f"{HIDDEN}@", url, flags=re.DOTALL)
    head, slashes, rest = re.split(r"[?#]", bare)[0].partition("://")
    host, *path = rest.split("/")
    keys = keys_in("/".join(path))
    return head + slashes + "/".join([host, *(HIDDEN if part in keys else part for part in path)])


def _proxy_for(base_url: URL) -> str | None:
    """Return the proxy for a URL, from the environment variables for proxies, which curl reads too. Return
    None if there is no proxy, or if the URL is on this machine."""
    host = base_url.host or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(f"{host}:{base_url.port}"):
        return None
    proxies = getproxies()
    url = proxies.get(base_url.scheme) or proxies.get("all") or ""
    proxy = url if "://" in url or not url else f"http://{url}"
    return proxy if proxy.startswith(("http://", "https://")) else None  # aiohttp has no SOCKS.


class Again(Exception):
    """Raised if an attempt failed, but another attempt may succeed. If the last attempt fails too, the caller
    gets `error`."""

    def __init__(self, error: OutageError) -> None:
        super().__init__(str(error))
        self.error = error


class Refused(Exception):
    """Raised if the server refuses a part of a request. `complaint` is the server's message.

    pyfast then looks for a change of the request that the server accepts. If there is none, pyfast raises the
    exception `error`.
    """

    def __init__(self, error: CallError, complaint: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.complaint = complaint


class OpenAI:
    """A model on one server. The environment variable `OPENAI_API_KEY` can have the API key.

    pyfast removes the key from every text that the server sends. The variables `HTTP_PROXY`, `HTTPS_PROXY`,
    `ALL_PROXY` and `NO_PROXY` apply to all servers except servers on this machine.

    - `concurrency`: how many requests run at the same time.
    - `timeout_s`: how many seconds all attempts of one request may take together. Waiting for a rate limit does
      not count.
    - `attempts`: how often pyfast sends a request if the server is busy or the connection fails. After the
      last attempt the request fails with `OutageError`. Before a further attempt, pyfast waits for a random
      time: at most `backoff_s` seconds after the first attempt. This maximum doubles after each further
      attempt, up to 20 seconds.
    - `requests_per_minute`, `tokens_per_minute`: rate limits. Tokens of prompts and tokens of completions
      count. pyfast spreads all attempts evenly over time. All models on the same server share the limits, if
      the same event loop calls them. If the server says when to try again, all calls wait until then. If this
      time is more than a minute away, the call fails with `OutageError`. If the server refuses a call because of a
      rate limit and says when to try again, the call does not count as an attempt.
    - `context_window`: the size of the model's context window in tokens. By default, pyfast asks the server.
    - `reasoning_tokens`: additional tokens for each answer, for a model that writes its reasoning first.
    - `extra`: fields for every request, such as `{"chat_template_kwargs": {"enable_thinking": False}}`.
    """

    def __init__(
        self,
        spec: str,
        model: str,
        base_url: str,
        *,
        concurrency: int = 64,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        context_window: int | None = None,
        timeout_s: float = 300.0,
        attempts: int = 5,
        backoff_s: float = 0.5,
        reasoning_tokens: int = 0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._key = api_key()
        check_no_secret(extra or {}, self._key)
        if own := sorted(_OWN_FIELDS & (extra or {}).keys()):
            raise InputError(
                f"extra: pyfast sets {', '.join(own)} itself; give temperature and seed as options of the run"
            )
        self._hidden = hider(self._key, *keys_in(base_url), *proxy_passwords())
        self.spec = self._hidden(_shown(spec))
        self.slots = concurrency
        self.context_window = context_window or 8192
        self._ask_context_window = context_window is None
        self._model = model
        self._base_url = self._hidden(_shown(base_url))  # the URL for messages, without secrets
        self._models_url = URL(base_url + "/models")
        self._chat_url = URL(base_url + "/chat/completions")
        # vLLM's endpoint that also accepts a prompt's embeddings
        self._embeds_url = URL(base_url + "/completions")
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._fields = {"model": model, **(extra or {})}
        self._reasoning_tokens = reasoning_tokens
        self._session: aiohttp.ClientSession | None = None
        self._free_slots = asyncio.Semaphore(concurrency)
        self._limits = requests_per_minute, tokens_per_minute
        self._rate = RateLimit()
        self._fallbacks: Fallbacks = frozenset()
        self._miscounted = False
        self._answered = -math.inf  # the event loop's time of the last completion
        self._proxy = _proxy_for(self._chat_url)

    @property
    def fingerprint(self) -> str:
        """A text that identifies the model: its name, the fields of `extra`, and `reasoning_tokens` if it is set.

        The text does not contain the host and port. So a run can resume with the same model on another
        server.
        """
        extra = {name: value for name, value in self._fields.items() if name != "model"}
        if self._reasoning_tokens:
            extra["reasoning_tokens"] = self._reasoning_tokens
        return f"openai:{self._model}" + (f":{as_json(extra).decode()}" if extra else "")

    async def start(self) -> None:
        """Check that the server answers, and ask it for the context window. Raises `LLMUnavailableError` if
        the server does not answer."""
        if self._session is not None:
            return
        self._rate = limit_of(str(self._chat_url))
        self._rate.limit(*self._limits)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # The slots limit the number of connections.
            # The time of a call covers all its attempts. aiohttp would measure each attempt alone.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PROBE_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )
        try:
            models = await asyncio.wait_for(self._models(self._session), PROBE_TIMEOUT_S)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self.close()
            reason = one_line(self._hidden(str(error))) or f"no answer within {PROBE_TIMEOUT_S:g} s"
            raise LLMUnavailableError(
                f"nothing answers at {self._base_url}: {reason}; is the server up?"
            ) from None
        if self._ask_context_window:
            self.context_window = _context_window(models, self._model) or self.context_window

    async def _models(self, session: aiohttp.ClientSession) -> object:
        """Return the server's reply to `GET /models`, or None if the reply is not JSON. Some servers have no
        such page."""
        async with session.get(self._models_url, proxy=self._proxy, allow_redirects=False) as response:
            try:
                return orjson.loads(await _read(response))
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
        if self._reasoning_tokens:
            request = replace(request, max_tokens=request.max_tokens + self._reasoning_tokens)
        async with self._free_slots:
            fallbacks = self._fallbacks
            while True:
                body = self._body(request, fallbacks)
                sent = as_json(body)
                try:
                    url = self._chat_url if request.embeds is None else self._embeds_url
                    answer = await self._persist(sent, url, request.max_tokens)
                    break
                except Refused as refused:
                    wish = fallback_for(refused.complaint, body, fallbacks)
                    if wish is None:
                        raise refused.error from None
                    fallbacks |= {wish}
        self._remember(fallbacks)
        return self._counted(answer, len(sent), request)

    def _body(self, request: Request, fallbacks: Fallbacks) -> dict[str, Any]:
        body = (request_fields if request.embeds is None else embeds_fields)(request, self._fields)
        if request.schema is not None:
            body["response_format"] = whole_format(request.schema)
        apply_fallbacks(body, request.schema, fallbacks)
        return body

    def _remember(self, fallbacks: Fallbacks) -> None:
        """Use these fallbacks (the changes that the server needs) for all later requests.

        The method is called only after the server answered a request with these fallbacks. Fallbacks that did
        not help are forgotten, because the fault may be in that one request.
        """
        for fallback in fallbacks - self._fallbacks:
            _log.warning("%s does not take whole requests; sent from now on: %s", self._base_url, fallback.sent)
        self._fallbacks |= fallbacks

    async def _persist(self, body: bytes, url: URL, max_tokens: int) -> Completion:
        """Send a request until an attempt succeeds, or until the attempts or the time are used up. Raises
        `Refused`, or the error for the call."""
        clock = asyncio.get_running_loop().time
        # The time starts with the slot: the server does not cause the wait for one.
        began = clock()
        deadline = began + self._timeout_s
        last: OutageError | None = None
        failures = 0
        # Servers estimate the tokens of a request in this way before they count them.
        tokens = len(body) // BYTES_PER_TOKEN + max_tokens

        async def attempt() -> Completion:
            nonlocal deadline, last, failures
            deadline += await self._rate.turn(tokens, self._running)
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await self._attempt(body, url)
            except Again as again:
                last = again.error
                failures += not (last.kind == "busy" and last.retry_after)
                nobody = clock() - max(began, self._answered) > LONGEST_REFUSAL
                if last.retry_after > LONGEST_PAUSE or (last.kind == "busy" and nobody):
                    raise last from None
                self._rate.pause(last.retry_after)
                raise
            self._answered = clock()
            completion = bounded(answer, len(body), max_tokens)
            self._rate.correct(completion.prompt_tokens + completion.completion_tokens - tokens)
            return answer

        def late(state: tenacity.RetryCallState) -> bool:
            return clock() + state.upcoming_sleep > deadline

        first: Again | None = None

        async def later_attempt() -> Completion:
            nonlocal first
            if first is not None:
                error, first = first, None
                raise error
            return await attempt()

        try:
            # The first attempt is made without the policy, whose bookkeeping costs about 80 µs a call. The policy
            # also refers to itself, so only the garbage collector can free it.
            try:
                return await attempt()
            except Again as error:
                first = error
            policy = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(Again),
                stop=lambda state: failures >= self._attempts or late(state),
                # Random waits, so that refused calls do not all return at the same moment.
                wait=tenacity.wait_random_exponential(multiplier=self._backoff_s, max=LONGEST_BACKOFF),
                reraise=True,
            )
            return await policy(later_attempt)
        except (Again, TimeoutError):
            if last is not None and failures >= self._attempts:
                raise last from None
            before = f"; before that, {last}" if last else ""
            kind = last.kind if last else "slow"
            raise OutageError(
                f"{self._base_url} gave no answer within {self._timeout_s:g} s{before}", kind
            ) from None

    def _running(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            raise LLMUnavailableError(f"{self.spec} is not running: it was closed or never started")
        return self._session

    async def _attempt(self, body: bytes, url: URL) -> Completion:
        return self._reply(await self._exchange("POST", url, data=body))

    def _reply(self, answer: bytes) -> Completion:
        """Read the completion in the body of a reply. Raises `CallError` if there is none."""
        try:
            data = orjson.loads(answer)
            return self._completion(data["choices"][0], data.get("usage"))
        except (ValueError, LookupError, TypeError, AttributeError):
            complaint = error_text(self._hidden(answer.decode(errors="replace")).encode())
            raise CallError(f"{self._base_url} answered with no chat completion: {complaint}") from None

    async def _exchange(self, method: str, url: URL, most: int = LARGEST_ANSWER, **sent: Any) -> bytes:
        """Make one HTTP request, and return the body of the reply. The status must be 200, and the body may
        have at most `most` bytes.

        Otherwise the method raises `Again`, `Refused`, or the error for the call.
        """
        try:
            async with self._running().request(
                method, url, proxy=self._proxy, allow_redirects=False, **sent
            ) as response:
                answer = await _read(response, most)
        except aiohttp.ClientConnectorError as error:
            reason = one_line(self._hidden(str(error)))
            raise Again(OutageError(f"nothing answers at {self._base_url} any more: {reason}")) from None
        except aiohttp.ServerTimeoutError:
            raise Again(OutageError(f"{self._base_url} takes no more connections")) from None
        except (aiohttp.ClientError, OSError) as error:
            if self._session is None:  # The session was closed during the call.
                raise LLMUnavailableError(f"the connection to {self._base_url} was closed") from None
            reason = one_line(self._hidden(str(error))) or type(error).__name__
            raise Again(OutageError(f"{self._base_url} cut the connection: {reason}")) from None
        if response.status != 200:
            raise self._refused(response.status, response.headers, answer)
        return answer

    def _completion(self, choice: Any, usage: object) -> Completion:
        """Read the completion in a server's reply, and remove the API key from its text."""
        if "message" not in choice:  # A prompt of embeddings has its text here.
            text, refusal, reasoning = choice["text"], None, None
        else:
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
            # vLLM's field, under its old and new names
            reasoning = message.get("reasoning_content") or message.get("reasoning")
        if text is None and isinstance(refusal, str):
            raise AnswerError(f"the LLM refuses: {one_line(self._hidden(refusal))}")
        text, reason = (
            self._hidden(without_controls(value)) if isinstance(value, str) else value
            for value in (text, choice.get("finish_reason"))
        )
        return completion(text, reason, usage, reasoning)

    def _counted(self, completion: Completion, sent: int, request: Request) -> Completion:
        """Correct impossible token counts of a completion (see `foreign.bounded`). The first correction is
        logged."""
        counted = bounded(completion, sent, request.max_tokens)
        if counted != completion and not self._miscounted:
            self._miscounted = True
            _log.warning(
                "%s counts %d tokens in and %d out where %d bytes were sent: not believed, counted as %d and %d at"
                " most; so is what it says from now on",
                self._base_url,
                completion.prompt_tokens,
                completion.completion_tokens,
                sent,
                counted.prompt_tokens,
                counted.completion_tokens,
            )
        return counted

    def _refused(self, status: int, headers: Mapping[str, str], answer: bytes) -> Exception:
        """Return the error for a reply whose status is not 200. The API key is removed from the message."""
        answer = self._hidden(answer.decode(errors="replace")).encode()
        if status == 429 and error_field(answer, "code") == "insufficient_quota":
            status = 402  # This is no rate limit, so waiting does not help.
        if status in _REFUSALS:
            # The server's own text may repeat the key, so it is left out.
            return LLMUnavailableError(f"{self._base_url} answered {status}: {_REFUSALS[status]} ({self._model})")
        complaint = error_text(answer)
        if status < 400:
            return LLMUnavailableError(f"{self._base_url} answered {status} with no completion; check the URL")
        message = f"{self._base_url} answered {status}: {complaint}"
        if status in (408, 425, 429) or status >= 500:
            pause = _seconds(headers.get("Retry-After"))
            return Again(OutageError(message, "busy" if status == 429 else "down", pause))
        error = CallError(message)
        return Refused(error, f"{error_field(answer, 'param')} {complaint}") if status in (400, 422) else error


async def _read(response: aiohttp.ClientResponse, most: int = LARGEST_ANSWER) -> bytes:
    """Read the body of a reply. Raises `CallError` if it has more than `most` bytes. The body is read piece
    by piece, so that an endless body cannot fill the memory."""
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            response.close()  # The rest of the body is unread, so the connection cannot be used again.
            raise CallError(f"the LLM's answer is larger than {most >> 20} MB")
    return b"".join(pieces)


def _seconds(retry_after: str | None) -> float:
    """Return how many seconds a Retry-After header asks the client to wait. The header has a number of
    seconds or a date. Without a usable header, the result is 0."""
    if retry_after is None:
        return 0.0
    try:
        return min(max(0.0, float(retry_after)), LONGEST_RETRY_AFTER)
    except ValueError:
        pass
    try:
        return min(max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time()), LONGEST_RETRY_AFTER)
    except (ValueError, OverflowError):
        return 0.0


def _context_window(models: object, model: str) -> int | None:
    """Find the context window in the reply to `GET /models`, in tokens. The model's entry has it as vLLM's
    `max_model_len`, or as llama.cpp's `n_ctx` or `n_ctx_train`. Returns None if it is missing."""
    entries = models.get("data") if isinstance(models, dict) else None
    known = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    # A server with one model often accepts any name.
    entry = next((entry for entry in known if entry.get("id") == model), known[0] if len(known) == 1 else {})
    meta = entry.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    sizes = [entry.get("max_model_len"), meta.get("n_ctx"), meta.get("n_ctx_train")]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)
