"""The blocks of docs/howto/integrations.md, and the examples of pyfast/integrations, as they stand."""

import doctest
import importlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pyfast

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/integrations.md").read_text()
BLOCKS = dict(re.findall(r"^## (\w+)\n.*?^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


class Chat(BaseHTTPRequestHandler):
    """Answers in the form that DSPy asks for."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "[[ ## answer ## ]]\nHuygens\n\n[[ ## completed ## ]]"}
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
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def place(small: pyfast.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(small.folder, tmp_path / "IDX")
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_the_page_has_a_block_for_each() -> None:
    assert set(BLOCKS) == {"LangChain", "LlamaIndex", "Haystack", "DSPy"}


@pytest.mark.parametrize("framework", BLOCKS)
def test_its_block_runs(framework: str, place: Path, llm: str) -> None:
    text = BLOCKS[framework].replace("http://127.0.0.1:8000", llm)
    exec(compile(text, framework, "exec"), {"__name__": framework})  # noqa: S102


@pytest.mark.parametrize("module", ["langchain", "llamaindex"])
def test_its_examples_run(module: str, place: Path) -> None:
    for found in doctest.DocTestFinder().find(importlib.import_module(f"pyfast.integrations.{module}")):
        code = "".join(example.source for example in found.examples)
        exec(compile(code, found.name, "exec"), {})  # noqa: S102
