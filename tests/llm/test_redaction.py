"""The API key is in nothing that is kept or shown, however a server says it."""

import asyncio
import base64
import html
import json
import os
import random
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from processes import pyfast
from servers import ASK, body, http, serving, speaking

from pyfast.errors import InputError, LLMUnavailableError, PyfastError
from pyfast.llm import open_llm
from pyfast.llm.redaction import check_no_secret, hider

KEY = "sk-Proj/47+11=abcXYZ-0815"


def each(form: str, key: str = KEY) -> str:
    return "".join(form.format(ord(letter)) for letter in key)


FORMS = {
    "plain": KEY,
    "percent": quote(KEY, safe=""),
    "percent, small digits": quote(KEY, safe="").lower(),
    "percent, every letter": each("%{:02X}"),
    "percent, twice": each("%25{:02x}"),
    "JSON": each("\\u{:04x}"),
    "JSON in JSON": each("\\\\u{:04X}"),
    "JSON, with a slash": KEY.replace("/", "\\/"),
    "Python": each("\\x{:02x}"),
    "octal": each("\\{:03o}"),
    "HTML, decimal": each("&#{};"),
    "HTML, hexadecimal": each("&#x{:X};"),
    "HTML in percent": quote(each("&#{};"), safe=""),
    "mail": each("={:02X}"),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of a header": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of a login": base64.b64encode(f"me:{KEY}".encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(f"{KEY}>?".encode()).decode(),
    "base64, percent": quote(base64.b64encode(KEY.encode()).decode(), safe=""),
    "hexadecimal": KEY.encode().hex(),
    "capitals": KEY.upper(),
    "small letters": KEY.lower(),
    "on several lines": "\n".join((KEY[:7], KEY[7:15], KEY[15:])),
    "with colours": KEY[:9] + "\x1b[31m" + KEY[9:],
    "with colours, in JSON": KEY[:9] + "\\u001b[31m" + KEY[9:],
    "with invisible characters": "\u200b".join(KEY),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_encoding_is_hidden(form: str) -> None:
    said = hider(KEY)(f"The key {form} is wrong.")
    assert "***" in said and said.startswith("The key ") and said.endswith(" is wrong.") and len(said) < 40


@given(st.text(), st.sampled_from(sorted(FORMS.values())), st.text())
def test_what_stands_around_it_does_not_save_it(before: str, form: str, after: str) -> None:
    assert form not in hider(KEY)(f"{before} {form} {after}")


@given(st.text(alphabet=st.characters(min_codepoint=9, max_codepoint=0x2FF)))
def test_other_text_stays_as_it_is(text: str) -> None:
    assert hider(KEY)(text) == text


def test_keys_that_are_none_are_left_in_texts() -> None:
    assert hider("EMPTY", "", "none")("an EMPTY line, none") == "an EMPTY line, none"
    assert hider()("text") == "text"


# --- a run against a server that repeats the key wherever it can


class Echo(BaseHTTPRequestHandler):
    """Says the key in the form, and at the place, that the question's number names."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.say(404, b"{}")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        if "Echo number " not in asked:  # the small call that finds out whether the server answers others
            return self.place(0, "well")
        number = int(asked.split("Echo number ")[1].split(".")[0])
        form, place = list(FORMS.values())[number % len(FORMS)], number // len(FORMS)
        return self.place(place, form)

    def place(self, place: int, form: str) -> None:
        choice = {"message": {"content": json.dumps({"answer": f"It is {form}"})}, "finish_reason": "stop"}
        if place == 0:
            self.say(200, json.dumps({"choices": [choice]}).encode())
        elif place == 1:
            refusal = {"message": {"content": None, "refusal": f"I will not tell {form}"}}
            self.say(200, json.dumps({"choices": [refusal]}).encode())
        elif place == 2:
            self.say(200, json.dumps({"choices": [{**choice, "finish_reason": form}]}).encode())
        elif place == 3:
            self.say(422, f"<html>{form}".encode())
        elif place == 4:  # across every cut that there could be
            text = "x" * random.Random(form).choice([285, 1980, 4980]) + form
            self.say(413, json.dumps({"error": {"message": text, "param": form}}).encode())

    def say(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class EchoServer(ThreadingHTTPServer):
    """Takes as many connections as come at once."""

    request_queue_size = 1024


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = EchoServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


PLACES = 5


def test_a_key_that_a_server_repeats_is_in_no_file_and_no_output(echo: str, tmp_path: Path) -> None:
    count = PLACES * len(FORMS)
    questions = [{"id": str(i), "question": f"Echo number {i}."} for i in range(count)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    command = ["answer", "q.jsonl", "--system", "direct", "--run", "run", "--llm", f"openai:m@{echo}"]
    options = [f"--llm-option={option}" for option in ("attempts=2", "backoff_s=0.001")]
    told = ""
    for given_ in ([*command, *options, "--max-failures", "100%"], ["status", "run"]):
        done = pyfast(*given_, cwd=tmp_path, environment={"OPENAI_API_KEY": KEY})
        told += done.stdout + done.stderr
    records = [json.loads(line) for line in (tmp_path / "run/answers.jsonl").read_text().splitlines()]
    assert [record["id"] for record in records] == [str(i) for i in range(count)], told
    assert all("***" in record["answer"] for record in records[: len(FORMS)])
    assert all("***" in record["reason"] for record in records[len(FORMS) : 2 * len(FORMS)])
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"run.toml", "answers.jsonl", "journal.sqlite"} <= kept.keys()
    bare = {"".join(form.split()) for form in FORMS.values()} | {KEY[:14], KEY[-14:]}
    for name, content in {**kept, "output": told.encode()}.items():
        text = "".join(content.decode(errors="replace").split())
        for said in (text, text.replace("\\\\", "\\"), html.unescape(text)):
            assert [form for form in bare if form in said] == [], name


# --- where a key may not be given


@pytest.mark.parametrize(
    "extra",
    [
        {"api_key": "x1"},
        {"extra_headers": {"Authorization": "Bearer x"}},
        {"a": [{"x-api-key": "y"}]},
        {"client_secret": "z"},
        {"user": f"me {KEY}"},
        {"b": {"c": quote(KEY, safe="")}},
        {"password": 1234},
    ],
)
def test_extra_fields_hold_no_secret(extra: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(InputError, match=r"OPENAI_API_KEY") as error:
        open_llm("openai:m@http://h", extra=extra)
    assert KEY not in str(error.value)


def test_ordinary_extra_fields_are_taken() -> None:
    fields = {"top_k": 1, "stop_token_ids": [2], "prompt_cache_key": "a", "chat_template_kwargs": {"x": True}}
    check_no_secret(fields, KEY)
    open_llm("openai:m@http://h", extra=fields)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2/slash@h/v1",
        "http://me:hunter2#x@h/v1",
        "http://me:hunter2?x@h/v1",
        "http://h/v1#key=hunter2",
        "http://h/v1#hunter2",
        "me:hunter2@h/v1",
        "htp://me:hunter2@h",
        "http://a:hunter2@http://h",
    ],
)
@pytest.mark.parametrize("kind", ["openai", "opena"])
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str, kind: str) -> None:
    with pytest.raises(InputError) as error:
        open_llm(f"{kind}:m@{url}")
    if kind == "openai" or "://" in url:
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "part", ["sk-or-v1-0815", "550e8400-e29b-41d4-a716-446655440000", "a8f5f167f44f4964e6c998dee827110c", KEY[8:]]
)
async def test_a_key_in_a_path_is_hidden(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=400, text=f"no such page: {request.path}")

    async with serving(handler) as backend:
        place = backend.spec.removeprefix("openai:m@")
    llm = open_llm(f"openai:m@{place}/{part}/v1", attempts=1)
    assert llm.spec == f"openai:m@{place}/***/v1" or part == KEY[8:]
    with pytest.raises(LLMUnavailableError) as error:
        await llm.start()
    assert part not in f"{error.value}" or part == KEY[8:]


@pytest.mark.parametrize("key", ["sk-test\nX-Other: 1", "sk-\x00test", "sk-tést", "sk-\x7ftest"])
def test_a_key_that_no_header_can_hold_is_one_line(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "\0" in key:
        monkeypatch.setattr(os, "environ", {**os.environ, "OPENAI_API_KEY": key})
    else:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="OPENAI_API_KEY contains a character") as error:
        open_llm("openai:m@http://h")
    assert "test" not in str(error.value) and "\n" not in str(error.value)


# --- proxies


async def test_a_proxy_of_the_environment_is_used_and_its_password_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(f"{request.method} {request.url.host} {request.headers.get('Proxy-Authorization', '')}")
        return web.json_response(body("through a proxy; password-4711"))

    from aiohttp.test_utils import TestServer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy)
    async with TestServer(app) as server:
        monkeypatch.setenv("http_proxy", f"http://me:password-4711@127.0.0.1:{server.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        llm = open_llm("openai:m@http://llm.invalid:8000")
        await llm.start()
        assert (await llm.complete(ASK)).text == "through a proxy; ***"
        await llm.close()
        login = base64.b64encode(b"me:password-4711").decode()
        assert seen == [f"GET llm.invalid Basic {login}", f"POST llm.invalid Basic {login}"]
        monkeypatch.setenv("no_proxy", "llm.invalid")
        direct = open_llm("openai:m@http://llm.invalid:8000")
        with pytest.raises(LLMUnavailableError, match=r"llm\.invalid"):
            await direct.start()
        await direct.close()

        async def own(request: web.Request) -> web.Response:
            return web.json_response(body("direct"))

        async with serving(own) as here:  # on this machine: never through a proxy
            assert (await here.complete(ASK)).text == "direct"
        assert len(seen) == 2


# --- who may read a run


def test_a_run_is_its_owners_alone(echo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyfast

    def modes() -> set[int]:
        return {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir()}

    before = os.umask(0o022)
    try:
        for _ in range(2):
            pyfast.answer([pyfast.Question("a", "Who?")], llm="instant", system="direct", run=tmp_path / "run")
            assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
            assert modes() == {0o600}
    finally:
        os.umask(before)
    (tmp_path / "run").chmod(0o750)  # a user who opens it to a group finds it open
    pyfast.answer([pyfast.Question("a", "Who?")], llm="instant", system="direct", run=tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o750


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_what_the_client_quotes_of_a_server_names_no_key(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    replies = [
        http(f"failed: {form}".encode(), status="500 Oops"),
        f"HTTP/1.1 200 OK\r\nAuthorization {form}\r\n\r\n".encode(),  # aiohttp's own error quotes it
        f"HTTP/1.1 {form}\r\n\r\n".encode(),
    ]

    async def speak(writer: asyncio.StreamWriter, asked: int) -> None:
        writer.write(replies[asked - 1])
        writer.close()

    async with speaking(speak, attempts=1) as backend:
        for _ in replies:
            with pytest.raises(PyfastError) as error:
                await backend.complete(ASK)
            assert form not in str(error.value) and KEY[:8].lower() not in str(error.value).lower()


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize(
    "form", [KEY, KEY.upper(), base64.b64encode(KEY.encode()).decode().rstrip("="), KEY.encode().hex()]
)
async def test_a_key_that_comes_in_pieces_is_told_to_nobody(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    text = f"The key is {form}, so."
    events = [{"choices": [{"index": 0, "delta": {"content": letter}}]} for letter in text]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0.001)
        return response

    heard: list[str] = []
    async with serving(handler) as backend:
        done = await backend.complete(replace(ASK, on_text=heard.append))
    assert "***" in done.text and form not in done.text
    assert len(set(heard)) > 3 and max(map(len, heard)) < len("The key is ") + 6
