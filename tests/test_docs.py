"""The documentation: every code block runs, and the notebook too.

A block runs as it stands, in its page's order, in a folder with the example corpus and its index. Only the
server's address, the embedded model (by `instant`) and the length of a measurement are replaced. A block that
cannot run says why in a comment above it: `<!-- not run: it installs packages -->`. The file of a block is named
in a comment too: `<!-- file: NAME -->`.
"""

import ast
import asyncio
import importlib
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from hostile_server import hostile
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SERVER = "http://127.0.0.1:8000"
_BLOCK = re.compile(
    r"(?:<!-- (not run|file): ([^\n]*?) -->\n)?^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


_MEMBERS = re.compile(r"members: \[([^\]]+)\]")


class Block(NamedTuple):
    """A block of commands or code, and what stands above it."""

    mark: str
    """`not run`, `file`, or empty"""
    why: str
    """The reason, or the file's name"""
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*(part or "" for part in match)) for match in _BLOCK.findall(page.read_text(encoding="utf-8"))]


RUN = [page for page in PAGES if any(block.mark != "not run" for block in blocks(page))]


def test_most_pages_have_blocks_that_run() -> None:
    assert len(RUN) > 12
    left_out = {f"{page.name}: {block.why}" for page in PAGES for block in blocks(page) if block.mark == "not run"}
    assert all(len(reason) > 20 for reason in left_out), "each says why"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that answers at once, with the right form and no meaning."""
    with hostile("--weights", "good=1") as url:
        yield url


@pytest.fixture
def place(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the pages speak of, with `corpus` and `questions.jsonl`."""
    shutil.copytree(examples / "corpus", tmp_path / "corpus")
    lines = (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "questions.jsonl").write_text("".join(lines[:12]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:  # what the page has as files of its own
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_blocks_run(
    page: Path, place: Path, small: pyfast.Index, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    monkeypatch.setattr(importlib.import_module("pyfast.evaluation.evaluate"), "DRAWS", 100)
    if "--out IDX" not in page.read_text(encoding="utf-8"):
        shutil.copytree(small.folder, place / "IDX")
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        text = block.text.replace(SERVER, server).replace('"embedded"', '"instant"')
        text = text.replace("--count 100", "--count 20").replace("count=50", "count=20")
        if block.mark == "file":
            (place / block.why).write_text(text)
            importlib.invalidate_caches()
        elif block.mark == "not run":
            continue
        elif block.language == "sh":
            run_commands(text)
        else:
            run_python(text, f"{page.name}", names)


def test_the_printed_output_is_what_the_commands_print(place: Path, model_installed: None) -> None:
    """What follows `$ pyfast ...` in a block of output, by processes of their own with the embedded model."""
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "quickstart.md", ROOT / "README.md")]
    of_pages = [re.findall(r"^```text\n(\$ pyfast .*?)^```$", page, re.DOTALL | re.MULTILINE) for page in pages]
    assert all(of_pages)
    for block in dict.fromkeys(chain.from_iterable(of_pages)):
        command, _, output = block.partition("\n")
        words = [sys.executable, "-m", *shlex.split(command)[1:]]
        printed = subprocess.run(words, capture_output=True, check=True, text=True).stdout
        start, more, _ = output.partition("...\n")
        assert printed.startswith(start) and (more or printed == output)


def run_commands(text: str) -> None:
    """Each `pyfast` command in this process; `export` sets a variable; nothing else stands in such a block."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] == "export":
            continue
        assert words[0] == "pyfast", line
        asks = words[1] in ("ask", "answer", "judge") and "--llm" not in words
        done = CliRunner().invoke(app, [*words[1:], *(["--llm", "instant"] if asks else [])])
        if done.exit_code and isinstance(done.exception, Exception):
            raise done.exception
        assert not done.exit_code, f"{line}\n{done.output}"


def run_python(text: str, name: str, names: dict[str, object]) -> None:
    """As a script's next lines, or a notebook's next cell: `await` may stand at the top."""
    code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))  # noqa: S307  (our own documentation)
    else:
        exec(code, names)  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        made = {"tutorial.md": "tutorial.ipynb", "contributing.md": "../CONTRIBUTING.md"}
        made |= {"changes.md": "../CHANGELOG.md", "command-line.md": "../hooks.py"}
        if not link.startswith("http"):
            target = page.parent / link
            assert target.exists() or (target.parent / made.get(target.name, "no such")).exists(), link


def test_every_public_name_has_its_reference() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    listed = {name.strip() for names in _MEMBERS.findall(pages) for name in names.split(",")}
    listed |= {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    ops = {name for name in pyfast.ops.__all__ if name.islower()}
    public = {name for name in pyfast.__all__ if not inspect.ismodule(getattr(pyfast, name))}
    assert (public | ops) - listed == set()


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_its_first_line_says_for_whom_it_is(page: Path) -> None:
    first = page.read_text(encoding="utf-8").split("\n\n")[1]
    assert re.match(r"\*For |This page is for |\*\*pyfast answers", first), first


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 140


def test_the_notebooks_code_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells one after another, with `instant`. What no model answers prints what is stored in the notebook."""
    cells = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        with redirect_stdout(StringIO()) as out:
            run_python("".join(cell["source"]).replace('"embedded"', '"instant"'), "tutorial.ipynb", names)
        assert out.getvalue().strip(), cell["source"]
        if '"embedded"' not in "".join(cell["source"]):
            assert out.getvalue().splitlines() == printed(cell), cell["source"]


@pytest.mark.slow(suite="models")
def test_the_notebook_runs(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of Jupyter, with the embedded model; its cells print as many lines as are stored in it.

    The words of the model can differ with the machine. Without it, see the test above.
    """
    from nbclient import NotebookClient
    from nbformat import read

    shutil.copytree(examples, tmp_path / "examples")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored = read(DOCS / "tutorial.ipynb", 4)
    book = read(DOCS / "tutorial.ipynb", 4)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path / "examples")}}).execute()
    for cell, before in zip(book.cells, stored.cells, strict=True):
        if cell.cell_type == "code":
            assert printed(cell) and len(printed(cell)) == len(printed(before)), cell.source


def printed(cell: dict[str, list[dict[str, str]]]) -> list[str]:
    out = [output for output in cell["outputs"] if output.get("name") == "stdout"]
    return "".join(chain.from_iterable(output["text"] for output in out)).splitlines()
