"""An OpenAI-compatible server that does the odd things that servers and gateways of the world do.

    python tests/odd_server.py --port 0

It prints its port once it answers. The name of the model says what it does: `firewall` and `firewall,fenced` are
odd to one question in four, `storm` does everything to one call in ten, and `clean` does nothing odd. What follows
a hyphen makes another model of the same kind. With `--always wrong_key --allow 20`, the server says the same to
every call after the twentieth, until GET /allow/N allows more.

A question has its number in its text, as in "no. 17", and its answer is "Titan 17". What happens to a call follows
from this number, from how many replies were refused before (`Call.attempt`), and from how often the call came. An
oddity comes each time that the call comes, or only the first time (`once`), so that runs can be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import formatdate
from random import Random
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import Any, NamedTuple

import orjson
from hostile_server import Server, fault, reply, served

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
GONE = object()  # in place of a field that a reply lacks
PAGE = b"<!DOCTYPE html><html><head><title>%s</title></head><body><h1>%s</h1><hr>nginx</body></html>"


@dataclass(frozen=True)
class Call:
    """What a client asks: the number of the question, and how many replies were refused before."""

    number: int
    attempt: int
    asked: dict[str, Any]

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Call:
        found = re.search(r"no\. ([0-9]+)", " ".join(said["content"] for said in asked["messages"]))
        attempt = sum(said["role"] == "assistant" for said in asked["messages"])
        return cls(int(found[1]) if found else -1, attempt, asked)

    @property
    def text(self) -> str:
        return f'{{"answer": "Titan {self.number}"}}'

    def whole(self, content: Any = None, choice: Any = None, message: Any = None, **fields: Any) -> dict[str, Any]:
        """A completion, with changes to its parts."""
        said = {"role": "assistant", "content": self.text if content is None else content, **(message or {})}
        one = {"index": 0, "message": said, "finish_reason": "stop", **(choice or {})}
        made = {"id": "c1", "object": "chat.completion", "created": 0, "model": "odd", "choices": [one]}
        return present({**made, "usage": USAGE, **fields})

    def says(self, content: Any) -> bytes:
        return reply(self.whole(content))

    def ends(self, reason: Any) -> bytes:
        return reply(self.whole(choice={"finish_reason": reason}))

    def counts(self, usage: Any) -> bytes:
        return reply(self.whole(usage=usage))

    def encoded(self) -> bytes:
        return orjson.dumps(self.whole())

    def events(self, *, end: str = "\n", last: str = "data: [DONE]", space: str = " ") -> bytes:
        """An event stream, whose last event has the tokens."""
        deltas = [{"role": "assistant", "content": ""}, {"content": self.text[:9]}, {"content": self.text[9:]}]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({"choices": [], "usage": USAGE})
        lines = [f"data:{space}{orjson.dumps(chunk).decode()}" for chunk in chunks]
        return "".join(line + 2 * end for line in (*lines, last)).encode()


def present(value: Any) -> Any:
    """The same without the fields that are GONE."""
    if isinstance(value, dict):
        return {name: present(part) for name, part in value.items() if part is not GONE}
    return [present(part) for part in value] if isinstance(value, list) else value


def raw(body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> bytes:
    """A reply of these bytes. Headers that begin with a length or an encoding replace the right one."""
    given = any(
        header.startswith(("Content-Length", "Transfer-Encoding", "Connection: close")) for header in headers
    )
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers)
    lines = lines if given else (*lines, f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def page(status: str, title: bytes = b"") -> bytes:
    title = title or status.encode()
    return raw(PAGE % (title, title), status, kind="text/html")


def error(status: str, message: str, **fields: Any) -> bytes:
    return reply({"error": {"message": message, **fields}}, status)


def told(code: object, message: str = "Provider returned error", **fields: Any) -> bytes:
    """An error at 200."""
    return reply({"error": {"message": message, "code": code, **fields}, "user_id": "u1"})


class Oddity(NamedTuple):
    """One odd thing: what goes over the wire, and what must become of the question."""

    does: Callable[[Call], bytes]
    fails: str = ""
    """Words of the reason for which the question fails. Empty: it is answered"""
    more: int = 0
    """How many calls such a question may cost beyond one"""
    once: bool = False
    """Only the first time that the call comes; else each time"""
    hangs_up: bool = False
    resets: bool = False
    waits_s: float = 0.0
    refuses: str = ""
    """A field of the request, or a role: only a request with it meets the oddity"""

    def meets(self, asked: dict[str, Any]) -> bool:
        roles = [said["role"] for said in asked["messages"]]
        return not self.refuses or self.refuses in asked or self.refuses in roles

    def as_line(self, call: Call) -> dict[str, Any] | None:
        """The same as the response in a line of a batch. None: a line cannot say it."""
        head, _, body = self.does(call).partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1.1 ([245][0-9][0-9]) ", head)
        if status is None or self.hangs_up or self.resets or b"-Encoding:" in head:
            return None
        try:
            said = orjson.loads(body)
        except ValueError:
            said = body.decode(errors="replace")
        code = int(status[1])
        return {"status_code": code, "body": said} if code >= 400 or isinstance(said, dict) else None


def for_good(does: bytes, fails: str, more: int = 1) -> Oddity:
    """A refusal of this prompt. Besides, a probe goes out."""
    return Oddity(lambda _: does, fails, more)


def at_first(does: Callable[[Call], bytes] | bytes, **fields: Any) -> Oddity:
    """A fault that has passed when the client tries again."""
    return Oddity((lambda _: does) if isinstance(does, bytes) else does, more=1, once=True, **fields)


def read(does: Callable[[Call], bytes], more: int = 0, **fields: Any) -> Oddity:
    """A reply that can be read, and is an answer."""
    return Oddity(does, more=more, **fields)


def not_taken(field: str, message: str, more: int = 1, **fields: Any) -> Oddity:
    """A request with this field is refused, and taken without it."""
    return Oddity(lambda _: error("400 Bad Request", message, **fields), more=more, refuses=field)


MODERATED = {"reasons": ["violence"], "flagged_input": "Which moon", "provider_name": "OpenAI"}
VALIDATE = {"type": "invalid_request_error", "code": "json_validate_failed"}
LATER = formatdate(0, usegmt=True)  # a date that has passed asks for no pause
PARTIAL = {"role": "assistant", "content": '{"ans'}
THOUGHT = 'Perhaps {"answer": "Rhea"}? No.'

REFUSALS = {
    "firewall": for_good(page("403 Forbidden", b"Attention Required! | Cloudflare"), "Attention Required"),
    "late_firewall": for_good(page("403 Forbidden", b"Blocked"), "Blocked")._replace(waits_s=0.3),
    "moderated": for_good(error("403 Forbidden", "Input was flagged", code=403, metadata=MODERATED), "flagged"),
    "credit": for_good(error("402 Payment Required", "can only afford 900 tokens", code=402), "only afford 900"),
    "no_endpoint": for_good(error("404 Not Found", "No endpoints found that can handle this"), "No endpoints"),
    "legal": for_good(page("451 Unavailable For Legal Reasons"), "Legal Reasons"),
    "not_acceptable": for_good(page("406 Not Acceptable", b"Mod_Security"), "Mod_Security"),
    "azure_filter": for_good(
        error("400 Bad Request", "The prompt triggers a content management policy", code="content_filter"),
        "management policy",
    ),
    "too_long": for_good(
        error("400 Bad Request", "maximum context length is 64 tokens", code="context_length_exceeded"),
        "maximum context length",
    ),
    "too_large": for_good(page("413 Request Entity Too Large"), "answered 413", 0),
    "moderated_at_200": for_good(told(403, "Input was flagged"), "Input was flagged"),
    "invalid_at_200": for_good(told("invalid_prompt", "Invalid prompt", type="invalid_request_error"), "Invalid"),
    "bad_at_200": for_good(told(400, "Provider does not take this"), "does not take this"),
    "unauthorized": for_good(error("401 Unauthorized", "No"), "answered 401"),
    "beyond_the_minute": for_good(
        error("429 Too Many Requests", "Request too large: Limit 30, Requested 40", code="rate_limit_exceeded"),
        "too large",
        0,
    ),
    "login_302": for_good(raw(b"", "302 Found", "Location: https://login.example.com/"), "answered 302"),
    "redirect": for_good(raw(b"", "307 Temporary Redirect", "Location: /v1/chat/completions"), "answered 307"),
    "refusal": Oddity(
        lambda call: reply(call.whole(message={"content": None, "refusal": "I will not"})), "will not"
    ),
    "content_filter": Oddity(lambda call: call.ends("content_filter"), "content_filter"),
    "filtered_without_message": Oddity(
        lambda call: reply(call.whole(choice={"message": GONE, "finish_reason": "content_filter"})),
        "content_filter",
    ),
    "filtered_by_gemini": Oddity(lambda call: call.ends("content_filter: RECITATION"), "content_filter"),
    "endless": Oddity(lambda call: reply(call.whole("x" * (9 << 20))), "larger than 8 MB"),
    "blocked_at_200": for_good(page("200 OK", b"Incapsula incident"), "Incapsula", 18),
    "drops": Oddity(lambda _: b"", "closed the connection", 18, resets=True),
    "crashes": for_good(error("500 Internal Server Error", "CUDA error"), "CUDA error", 18),
}

FAULTS = {
    "error_503_at_200": at_first(told(503)),
    "error_429_at_200": at_first(told(429)),
    "error_text_at_200": at_first(told("server_error", "The server had an error")),
    "rate_limit_at_200": at_first(told("rate_limit_exceeded", "Too fast", type="rate_limit_error")),
    "error_is_text_at_200": at_first(reply({"error": "upstream timed out"})),
    "choices_null": at_first(lambda call: reply(call.whole(choices=None))),
    "choices_empty": at_first(lambda call: reply(call.whole(choices=[]))),
    "choices_missing": at_first(reply({})),
    "page_at_200": at_first(page("200 OK", b"Just a moment...")),
    "words_at_200": at_first(raw(b"upstream connect error or disconnect/reset before headers")),
    "nothing_at_200": at_first(raw(b"")),
    "null_at_200": at_first(raw(b"null")),
    "list_at_200": at_first(raw(b"[]")),
    "half_at_200": at_first(lambda call: raw(call.encoded()[:90])),
    "no_content_204": at_first(raw(b"", "204 No Content")),
    "error_in_choice": at_first(
        lambda call: reply(call.whole(choice={"error": {"code": 502, "message": "gone"}, "message": PARTIAL}))
    ),
    "ends_by_error": at_first(lambda call: reply(call.whole('{"ans', {"finish_reason": "error"}))),
    "busy": at_first(reply(fault("slow down"), "429 Too Many Requests", "Retry-After: 0.05")),
    "busy_by_date": at_first(reply(fault("slow down"), "429 Too Many Requests", f"Retry-After: {LATER}")),
    "busy_by_ms": at_first(reply(fault("slow down"), "429 Too Many Requests", "Retry-After-Ms: 40")),
    "busy_for_a_day": read(
        lambda _: reply(fault("slow down"), "429 Too Many Requests", "Retry-After: 86400"), 2, once=True
    ),
    "busy_by_nonsense": at_first(reply(fault("slow down"), "429 Too Many Requests", "Retry-After: soon")),
    "busy_without_time": at_first(page("429 Too Many Requests")),
    "overloaded_529": at_first(error("529 Overloaded", "Overloaded", type="overloaded_error")),
    "page_500": at_first(page("500 Internal Server Error")),
    "empty_502": at_first(raw(b"", "502 Bad Gateway")),
    "page_503": at_first(page("503 Service Unavailable")),
    "page_504": at_first(page("504 Gateway Time-out")),
    "cloudflare_524": at_first(page("524 A Timeout Occurred")),
    "timeout_408": at_first(error("408 Request Timeout", "Your request timed out")),
    "conflict_409": at_first(error("409 Conflict", "lock timeout")),
    "failed_424": at_first(error("424 Failed Dependency", "Request failed during generation")),
    "full_498": at_first(error("498 Flex Tier Capacity Exceeded", "try again later")),
    "early_425": at_first(raw(b"", "425 Too Early")),
    "hangs_up_before": at_first(b"", hangs_up=True),
    "hangs_up_in_head": at_first(b"HTTP/1.1 200 OK\r\nContent-Ty", hangs_up=True),
    "hangs_up_in_body": at_first(lambda call: reply(call.whole())[:-40], hangs_up=True),
    "resets_before": at_first(b"", resets=True),
    "resets_in_body": at_first(lambda call: reply(call.whole())[:-40], resets=True),
    "no_http": at_first(b"\x15\x03\x03\x00\x02\x02\x28", hangs_up=True),
    "chunks_cut": at_first(
        lambda call: raw(b"40\r\n" + call.encoded()[:64], "200 OK", "Transfer-Encoding: chunked"), hangs_up=True
    ),
    "length_too_long": at_first(lambda call: raw(call.encoded(), "200 OK", "Content-Length: 9999"), hangs_up=True),
    "stream_cut": at_first(lambda call: raw(call.events()[:230], kind="text/event-stream")),
    "stream_with_error": at_first(
        lambda call: raw(
            call.events(last='data: {"error": {"code": 502, "message": "gone"}}'), kind="text/event-stream"
        )
    ),
}

READ = {
    **{
        f"ends_by_{reason or 'nothing'}": read(lambda call, reason=reason: call.ends(reason))
        for reason in ("eos", "eos_token", "", "STOP", "end_turn", "stop_sequence", "tool_calls", "weather")
    },
    "ends_by_number": read(lambda call: call.ends(2)),
    "ends_by_null": read(lambda call: call.ends(None)),
    "ends_by_no_field": read(lambda call: call.ends(GONE)),
    "fenced": read(lambda call: call.says(f"```json\n{call.text}\n```")),
    "commented_on": read(lambda call: call.says(f"Sure! Here {{it}} is:\n\n{call.text}\n\nAnything else? :-}}")),
    "comma_too_many": read(lambda call: call.says(f"{call.text[:-1]},}}")),
    "single_quotes": read(lambda call: call.says(call.text.replace('"', "'"))),
    "comments": read(lambda call: call.says(f"{{ // the answer\n{call.text[1:]}")),
    "bare_names": read(lambda call: call.says(call.text.replace('"answer"', "answer"))),
    "json_in_json": read(lambda call: call.says(orjson.dumps(call.text).decode())),
    "in_a_list": read(lambda call: call.says(f"[{call.text}]")),
    "parts": read(lambda call: call.says([{"type": "text", "text": call.text}])),
    "texts": read(lambda call: call.says([call.text])),
    "thinking_parts": read(
        lambda call: call.says(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                {"type": "text", "text": call.text},
            ]
        )
    ),
    "an_object": read(lambda call: call.says(orjson.loads(call.text))),
    "tool_calls": read(
        lambda call: reply(
            call.whole(
                message={
                    "content": None,
                    "tool_calls": [{"function": {"name": "answer", "arguments": call.text}}],
                },
                choice={"finish_reason": "tool_calls"},
            )
        )
    ),
    "tool_call_of_an_object": read(
        lambda call: reply(
            call.whole(
                message={"content": "", "tool_calls": [{"function": {"arguments": orjson.loads(call.text)}}]},
            )
        )
    ),
    "delta": read(lambda call: reply(call.whole(choice={"delta": {"content": call.text}, "message": GONE}))),
    "text": read(lambda call: reply(call.whole(choice={"text": call.text, "message": GONE}))),
    "harmony": read(lambda call: call.says(f"<|channel|>final<|message|>{call.text}<|return|>")),
    "function_call": read(
        lambda call: reply(call.whole(message={"content": "", "function_call": {"arguments": call.text}}))
    ),
    "stream": read(lambda call: raw(call.events(), kind="text/event-stream")),
    "stream_crlf": read(lambda call: raw(call.events(end="\r\n", space=""), kind="text/event-stream")),
    "stream_without_end": read(lambda call: raw(call.events(last=": bye"), kind="application/json")),
    "stream_of_one": read(lambda call: raw(b"data: " + call.encoded() + b"\n\ndata: [DONE]\n\n")),
    "heartbeat": read(lambda call: raw(b": PROCESSING\n\n: PROCESSING\n\n" + call.encoded())),
    "blank_lines": read(lambda call: raw(b"\n" * 20 + call.encoded())),
    "heartbeat_stream": read(lambda call: raw(b": PROCESSING\n\n" + call.events())),
    "byte_order_mark": read(lambda call: raw(b"\xef\xbb\xbf" + call.encoded())),
    "nul": read(lambda call: raw(call.encoded() + b"\0\0")),
    "not_utf8": read(lambda call: raw(call.encoded().replace(b'"odd"', b'"odd \xff\xc3 \xed\xa0\x80"'))),
    "half_a_character": read(lambda call: raw(call.encoded().replace(b'"odd"', b'"\\ud83d"'))),
    "not_a_number": read(
        lambda call: raw(call.encoded().replace(b'"odd"', b'"odd", "logprob": [NaN, -Infinity]'))
    ),
    "raw_line_breaks": read(lambda call: raw(call.encoded().replace(b'"odd"', b'"odd\n\tmodel"'))),
    "think": read(lambda call: call.says(f"<think>\n{THOUGHT}\n</think>\n\n{call.text}")),
    "think_unbegun": read(lambda call: call.says(f"{THOUGHT}\n</think>\n\n{call.text}")),
    "thought_beside": read(lambda call: reply(call.whole(message={"reasoning_content": THOUGHT}))),
    "thought_alone": read(lambda call: reply(call.whole("", message={"reasoning_content": call.text}))),
    "usage_null": read(lambda call: call.counts(None)),
    "usage_gone": read(lambda call: call.counts(GONE)),
    "usage_texts": read(lambda call: call.counts({"prompt_tokens": "100", "completion_tokens": "ten"})),
    "usage_negative": read(lambda call: call.counts({"prompt_tokens": -1, "completion_tokens": -5})),
    "usage_vast": read(lambda call: call.counts({"prompt_tokens": 10**18, "completion_tokens": 1.5})),
    "more_fields": read(
        lambda call: reply(
            call.whole(
                choice={"logprobs": None, "matched_stop": 151645, "native_finish_reason": "stop", "error": None},
                message={
                    "annotations": [],
                    "audio": None,
                    "tool_calls": [],
                    "refusal": None,
                    "function_call": None,
                },
                error=None,
                service_tier="default",
                x_groq={"id": "r1"},
                prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}],
            )
        )
    ),
    "second_choice": read(
        lambda call: reply(call.whole(choices=[*call.whole()["choices"], *call.whole("no")["choices"]]))
    ),
    "compressed": read(lambda call: raw(gzip.compress(call.encoded()), "200 OK", "Content-Encoding: gzip")),
    "long_header": read(lambda call: raw(call.encoded(), "200 OK", f"Content-Security-Policy: {'x' * 20_000}")),
    "cookies": read(
        lambda call: raw(call.encoded(), "200 OK", 'Set-Cookie: a,b;="; c d=\x80; path', "Set-Cookie: =")
    ),
    "bare_line_feeds": read(lambda call: reply(call.whole()).replace(b"\r\n", b"\n")),
    "no_reason": read(lambda call: reply(call.whole()).replace(b"200 OK", b"200")),
    "chunks": read(
        lambda call: raw(
            b"9;name=x\r\n%b\r\n%x\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n"
            % (call.encoded()[:9], len(call.encoded()) - 9, call.encoded()[9:]),
            "200 OK",
            "Transfer-Encoding: chunked",
        )
    ),
    "http_1_0": read(
        lambda call: b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + call.encoded(), hangs_up=True
    ),
    "closes": read(lambda call: raw(call.encoded(), "200 OK", "Connection: close"), hangs_up=True),
    "continue_100": read(lambda call: b"HTTP/1.1 100 Continue\r\n\r\n" + reply(call.whole())),
    "said_twice": read(lambda call: 2 * reply(call.whole())),
    "more_than_length": read(lambda call: reply(call.whole()) + b"\r\n\r\n"),
    "created_201": read(lambda call: reply(call.whole(), "201 Created")),
    "body_twice": read(lambda call: raw(2 * call.encoded())),
    "text_plain": read(lambda call: raw(call.encoded(), kind="text/plain; charset=iso-8859-1")),
    "late": read(lambda call: reply(call.whole()), waits_s=0.5),
    "padded": read(lambda call: raw(call.encoded() + b" " * (3 << 20))),
}

FIELDS = {
    "no_system": not_taken("system", "System role not supported"),
    "roles_alternate": not_taken("system", "Conversation roles must alternate user/assistant/user/assistant/..."),
    "no_max_tokens": not_taken(
        "max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'", param="max_tokens"
    ),
    "no_temperature": not_taken("temperature", "Unsupported value: 'temperature' does not support 0.0"),
    "no_seed": not_taken("seed", "property 'seed' is unsupported"),
    "no_response_format": not_taken("response_format", "response_format is not supported by this model", 3),
}

ANEW = {
    "other_schema": read(lambda call: call.says('{"sorry": ["I", "made", 3]}'), 1),
    "breaks_off": read(lambda call: call.says(call.text[:-4]), 1),
    "says_nothing": read(lambda call: call.says(""), 1),
    "content_null": read(lambda call: reply(call.whole(message={"content": None})), 1),
    "stream_of_nothing": read(lambda _: raw(b"data: [DONE]\n\n", kind="text/event-stream"), 1),
    "stream_ends_early": read(lambda call: raw(call.events().partition(b': \\"T')[0] + b'"}}]}\n\n'), 1),
    "words": read(lambda call: call.says("It is Titan."), 1),
    "length": read(lambda call: reply(call.whole(call.text[:-4], {"finish_reason": "length"})), 1),
    "validate_failed": read(lambda call: error("400 Bad Request", "Failed to generate JSON.", **VALIDATE), 1),
    "validate_failed_shown": read(
        lambda call: error("400 Bad Request", "See 'failed_generation'.", **VALIDATE, failed_generation="It is"), 1
    ),
}

ODDITIES = {**REFUSALS, **FAULTS, **READ, **FIELDS, **ANEW}

ALWAYS = {
    "wrong_key": error("401 Unauthorized", "Incorrect API key provided"),
    "wrong_country": error("403 Forbidden", "Country, region, or territory not supported"),
    "unknown_model": error("404 Not Found", "The model `odd` does not exist", code="model_not_found"),
    "moved": raw(b"", "307 Temporary Redirect", "Location: https://login.example.com/"),
    "quota_by_code": error("429 Too Many Requests", "You exceeded your quota", code="insufficient_quota"),
    "quota_by_type": error("429 Too Many Requests", "You exceeded your quota", type="insufficient_quota"),
}


class Model:
    """What one model does, what it was asked, and which questions met which oddities."""

    def __init__(self, name: str) -> None:
        kind = name.partition("-")[0]
        names = {"storm": [*ODDITIES], "clean": []}.get(kind, kind.split(","))
        self.one_in = 10 if kind == "storm" else 4
        self.slots: list[str | None] = [*names, *[None] * max(len(names) * (self.one_in - 1), 1)]
        if len(names) > 1:
            Random(kind).shuffle(self.slots)
        self.once = [name for name in names if ODDITIES[name].once]
        self.calls = self.answers = 0
        self.met: dict[int, list[str]] = {}
        self.asked: Counter[tuple[int, int]] = Counter()

    def state(self) -> list[Any]:
        return [self.calls, self.answers, [*self.met.items()]]

    def drawn(self, call: Call) -> Oddity | None:
        """The oddity of a call, if there is one."""
        before = self.asked[call.number, call.attempt]
        self.asked[call.number, call.attempt] += 1
        at = call.number + 101 * call.attempt
        if call.number < 0:  # a probe
            chance = Random(f"{before}")
            names = [name for name in self.slots if name is not None]
            return ODDITIES[chance.choice(names)] if self.one_in == 10 and chance.random() < 0.1 else None
        name = self.slots[at % len(self.slots)]
        if before and (name is None or ODDITIES[name].once):
            # Tried again, a call may meet another fault that passes, and none that lasts.
            chance = Random(f"{at} {before}")
            name = chance.choice(self.once) if self.one_in == 10 and chance.random() < 0.1 else None
        if name is None or not ODDITIES[name].meets(call.asked):
            return None
        self.met.setdefault(call.number, []).append(name)
        return ODDITIES[name]


class OddServer(Server):
    """The models by their names."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.models: dict[str, Model] = {}

    def state(self) -> dict[str, Any]:
        return {name: model.state() for name, model in self.models.items()}

    async def chat(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        asked = orjson.loads(body)
        name = asked["model"]
        model = self.models[name] = self.models.get(name) or Model(name)
        model.calls += 1
        self.counts["requests"] += 1
        if self.options.always and self.counts["requests"] > self.options.allow:
            writer.write(ALWAYS[self.options.always])
            return
        call = Call.of(asked)
        if call.number == self.options.dies_at:
            os._exit(1)
        oddity = model.drawn(call)
        if oddity is None:
            await asyncio.sleep(self.options.delay_s)
            model.answers += call.number >= 0
            writer.write(reply(call.whole()))
            return
        await asyncio.sleep(oddity.waits_s)
        writer.write(oddity.does(call))
        if oddity.hangs_up:
            writer.close()
        if oddity.resets:  # Nothing of a linger: the other side gets a reset.
            await writer.drain()
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
            writer.transport.abort()


def odd(*given: object) -> AbstractContextManager[str]:
    """Such a server in a process of its own, by its URL."""
    return served(__file__, *given)


class Seen(NamedTuple):
    """What a model was asked."""

    calls: int
    answers: int
    """Those that are not odd, without the probes"""
    met: dict[int, list[str]]
    """The oddities that each question met"""


def seen(url: str, model: str) -> Seen:
    with urllib.request.urlopen(f"{url}/counts", timeout=30) as answer:
        calls, answers, met = orjson.loads(answer.read()).get(model, [0, 0, []])
    return Seen(calls, answers, dict(met))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--delay-s", type=float, default=0, help="before each good reply")
    parser.add_argument("--always", choices=ALWAYS, help="say this to every call beyond --allow")
    parser.add_argument("--allow", type=int, default=0)
    parser.add_argument("--dies-at", type=int, help="the question at which the process ends")
    parser.set_defaults(weights=[("good", 1.0)], log=None)
    server = OddServer(parser.parse_args())
    await server.listen(server.options.port)
    print(server.server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
