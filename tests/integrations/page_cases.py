"""The blocks of docs/howto/integrations.md, and the examples of pyfast/integrations, as they stand."""

import doctest
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyfast

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/integrations.md").read_text()
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
BLOCKS = {
    f"{name} {number}": text
    for name, section in SECTIONS.items()
    for number, text in enumerate(
        re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE), start=1
    )
}


class Chat(BaseHTTPRequestHandler):
    """Answers in the form that DSPy asks for, or in JSON; where it is asked to be slow, after four seconds."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        content = "[[ ## answer ## ]]\nHuygens\n\n[[ ## completed ## ]]"
        if b"[[ ##" not in asked:
            content = '{"answer": "Huygens"}'
        if b"slowly" in asked:
            time.sleep(4)
        if b"without the model" in asked or (self.server.out and b"Reply with OK." in asked):  # type: ignore[attr-defined]
            self.server.out = True  # type: ignore[attr-defined]
            self.send_error(500)
            return
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def llm() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        server.out = False  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def place(small: pyfast.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(small.folder, tmp_path / "IDX")
    monkeypatch.chdir(tmp_path)
    pyfast.answer(ROOT / "examples/questions.jsonl", index="IDX", run="RUN", llm="instant", system="rag")
    yield tmp_path


def test_the_page_has_a_block_for_each() -> None:
    names = {"LangChain", "LlamaIndex", "Haystack", "DSPy", "Ray Data", "FastAPI", "RAGAS", "DeepEval"}
    assert {name.rpartition(" ")[0] for name in BLOCKS} == names
    assert all(len([line for line in text.splitlines() if line.strip()]) < 40 for text in BLOCKS.values())


def run_block(name: str, llm: str) -> dict[str, Any]:
    """A module of its own: classes of Ray and pydantic look for theirs."""
    module = ModuleType("block")
    sys.modules["block"] = module
    text = BLOCKS[name].replace("http://127.0.0.1:8000", llm)
    exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102
    return module.__dict__


@pytest.mark.parametrize("block", sorted(set(BLOCKS) - {"FastAPI 1", "Ray Data 1"}))
def test_its_block_runs(block: str, place: Path, llm: str) -> None:
    run_block(block, llm)


def test_its_block_for_ray_runs(place: Path) -> None:
    """As a script, because Ray sends the class to another process. The index has a place there, too."""
    text = BLOCKS["Ray Data 1"].replace('"IDX"', repr(str(place / "IDX")))
    (place / "table.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "table.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_its_block_for_fastapi_serves(place: Path, llm: str, capfd: pytest.CaptureFixture[str]) -> None:
    import httpx
    import uvicorn

    app = run_block("FastAPI 1", llm)["app"]
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/answer"
        found = httpx.get(url, params={"question": "Who discovered Titan?"}, timeout=60)
        assert found.status_code == 200 and found.json()["answer"] == "Huygens" and found.json()["sources"]
        assert httpx.get(url, params={"question": "Who?", "system": "none"}, timeout=60).status_code == 400
        with pytest.raises(httpx.ReadTimeout):  # The client goes: its place is free before the LLM has answered.
            httpx.get(url, params={"question": "Who, slowly?"}, timeout=1)
        gone = time.monotonic()
        while app.state.free._value < 64 and time.monotonic() - gone < 2.5:
            time.sleep(0.05)
        assert app.state.free._value == 64
        app.state.free._value = 0  # all places are taken
        busy = httpx.get(url, params={"question": "Who?"}, timeout=60)
        assert busy.status_code == 503 and busy.headers["Retry-After"] == "1"
        app.state.free._value = 64
        gone_llm = httpx.get(url, params={"question": "Who, without the model?"}, timeout=60)
        assert gone_llm.status_code == 503 and gone_llm.headers["Retry-After"] == "5"
    finally:
        server.should_exit = True
        thread.join()
    assert "Exception in ASGI application" not in capfd.readouterr().err


@pytest.mark.parametrize("module", ["langchain", "llamaindex"])
def test_its_examples_run(module: str, place: Path) -> None:
    for found in doctest.DocTestFinder().find(importlib.import_module(f"pyfast.integrations.{module}")):
        code = "".join(example.source for example in found.examples)
        exec(compile(code, found.name, "exec"), {})  # noqa: S102
