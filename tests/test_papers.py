"""The papers' tables in docs/papers: what they name is there, and each command runs, on two questions.

The LLM is the one that answers at once, and models that are trained are tiny and random: a command that runs says
nothing of how well it answers.
"""

import importlib
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny import tiny_model
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine import read_questions
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems import describe_system

DOCS = Path(__file__).resolve().parents[1] / "docs" / "papers"
PAGES = sorted(DOCS.glob("*.md"))
PLACE, VERDICT, COMMAND, RUN = "in the code", "as in the paper?", "command", "run here"
TALK = {"id": "t", "turns": [{"id": "t1", "question": "Who discovered Titan?", "answers": ["Huygens"]},
                             {"id": "t2", "question": "When?", "answers": ["1655"]}]}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of a table: its cells by their columns' names."""

    page: str
    cells: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page}: {next(iter(self.cells.values()))}"

    def quoted(self, column: str) -> list[str]:
        """What stands in backquotes in a cell."""
        return re.findall(r"`([^`]+)`", self.cells.get(column, ""))

    def commands(self) -> list[list[str]]:
        """The row's commands, in their order, as words."""
        return [shlex.split(said)[1:] for said in self.quoted(COMMAND)]


def rows() -> Iterator[Row]:
    for path in PAGES:
        header: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("|"):
                header = []
                continue
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not header:
                header = cells
            elif not set(line) <= set("|- "):
                assert len(cells) == len(header), f"{path.name}: {line}"
                yield Row(path.stem, dict(zip(header, cells, strict=True)))


ROWS = list(rows())
ELEMENTS = [row for row in ROWS if PLACE in row.cells]
RESULTS = [row for row in ROWS if COMMAND in row.cells]
NEEDS_MODEL = ("train", "vllm:")


def needs_model(row: Row) -> bool:
    return any(need in word for words in row.commands() for word in words for need in NEEDS_MODEL)


def test_every_paper_has_its_tables() -> None:
    assert [path.stem for path in PAGES] == ["graph_convqa", "hseq", "mtqa", "n2n", "subqrag"]
    for page in PAGES:
        assert sum(row.page == page.stem for row in ELEMENTS) > 20, page.name
        assert sum(row.page == page.stem and bool(row.commands()) for row in RESULTS) > 3, page.name
        assert describe_system(page.stem).paper in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ELEMENTS, ids=str)
def test_every_element_has_its_place_and_verdict(row: Row) -> None:
    assert row.cells[VERDICT].startswith(("yes", "departs", "the paper does not specify", "not implemented")), row
    assert row.quoted(PLACE) or row.cells[VERDICT].startswith("not implemented"), row
    assert not re.fullmatch(r"(departs|not implemented):?", row.cells[VERDICT]), "it says why"
    if row.cells[VERDICT].startswith("departs"):
        assert re.search(r"`|\d", row.cells[VERDICT]), "it names a setting, or says what the departure costs"


def test_what_the_tables_name_can_be_imported() -> None:
    named = sorted({name for row in ELEMENTS for name in row.quoted(PLACE) if name.startswith("pyfast.")})
    assert len(named) > 100 and [name for name in named if not found(name)] == []


def found(name: str) -> bool:
    """Whether the name is that of a module, or of what one holds."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            it: object = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError as error:
            if error.name and not error.name.startswith("pyfast"):
                pytest.skip(f"not installed: {error.name}")
            continue
        for part in parts[size:]:
            it = getattr(it, part, None)
        return it is not None
    return False


def test_no_name_is_found_that_is_not_there() -> None:
    assert found("pyfast.ops.graph_rank") and found("pyfast.engine.Context.retrieve_all")
    assert not found("pyfast.ops.no_rank") and not found("pyfast.nowhere.graph_rank")


@pytest.mark.parametrize("row", RESULTS, ids=str)
def test_every_result_has_a_command_or_says_why_not(row: Row) -> None:
    why = re.search(r"\bnot run: \w+|\]\(", row.cells[RUN])
    assert why and (row.commands() or "not run: " in row.cells[RUN]), row
    for words in row.commands():
        assert words[0] in ("answer", "train"), row


@pytest.fixture(scope="module")
def place(small: Index, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the commands name: DATA, and an index for each of its sets; the examples, in fact."""
    folder = tmp_path_factory.mktemp("papers")
    index = pyfast.open_index(shutil.copytree(small.folder, folder / "examples.idx"))
    pyfast.build_knowledge(index)  # else each run that needs it makes it in its own folder
    for words in (words for row in RESULTS for words in row.commands()):
        for name in re.findall(r"DATA/[\w/.-]+\.jsonl", " ".join(words)):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            talks = path.name == "conversations.jsonl"
            path.write_text(json.dumps(TALK) + "\n" if talks else (examples / "questions.jsonl").read_text())
        for name in re.findall(r"\w+\.idx", " ".join(words)):
            if not (folder / name).exists():
                (folder / name).symlink_to(index.folder)
    return folder


Go = Callable[[Row], None]


@pytest.fixture
def go(place: Path, ran: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Runs the commands of a row, one after the other, as a user would who stands in a folder of theirs."""
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)

    def run(row: Row) -> None:
        if (said := same_here(row)) in ran:
            return
        for words in row.commands():
            result = CliRunner().invoke(app, [*here(words)], catch_exceptions=False)
            assert result.exit_code == 0, result.output
            if words[0] == "answer":
                assert result.stdout.startswith("2 questions: "), result.output
                assert " failed" not in result.stdout and "no usable answer" not in result.stdout, result.output
        ran.add(said)

    return run


@pytest.fixture(scope="module")
def ran() -> set[str]:
    """What the rows before have run."""
    return set()


def same_here(row: Row) -> str:
    """The commands of a row. All sets of questions are one here, and all indexes: their names are left out."""
    said = str([here(words) for words in row.commands()])
    return re.sub(r"'--run', '[^']*'", "", re.sub(r"DATA/\w+/|\w+(?=\.idx)", "", said))


def here(words: list[str]) -> list[str]:
    """The command with models that are at hand, on two questions or no step of training."""
    at_hand = [re.sub(r"^((?:\w+=)?)openai:.*", r"\1instant", word) for word in words]
    at_hand = [re.sub(r"^((?:\w+=)?)vllm:", r"\1transformers:", word) for word in at_hand]
    if words[0] == "answer":
        return [*at_hand, "--limit", "2"]
    return [*at_hand, "--minutes", "0", *(["--size", "2"] if "hseq-iterator" in words else [])]


@pytest.mark.parametrize("row", [row for row in RESULTS if row.commands() and not needs_model(row)], ids=str)
def test_its_command_runs(row: Row, go: Go) -> None:
    go(row)


@pytest.mark.parametrize("wrong", ["--set preset=none", "--system none", "--set alpha=0.5 --set graph=off"])
def test_a_command_that_would_not_run_is_noticed(wrong: str, go: Go) -> None:
    begun = "pyfast answer DATA/hybridqa/questions.jsonl --index hybridqa.idx --system n2n --llm openai:M@URL"
    go(Row("n2n", {COMMAND: f"`{begun} --run RIGHT`"}))
    with pytest.raises(InputError):
        go(Row("n2n", {COMMAND: f"`{begun} --run WRONG {wrong}`"}))


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    """A tiny model under the name that the commands give it."""
    pytest.importorskip("peft")
    return tiny_model(place / "MODEL")


@pytest.mark.parametrize("row", [row for row in RESULTS if needs_model(row)], ids=str)
def test_its_training_and_its_answers_run(row: Row, model: Path, go: Go) -> None:
    if row.page == "graph_convqa" and not any("memory=" in word for word in row.commands()[-1]):
        pytest.importorskip("sentence_transformers")  # what ranks the memory
    go(row)


def test_the_real_files_are_read(data: Path) -> None:
    """The files of questions that the commands name."""
    named = {name for row in RESULTS for name in re.findall(r"DATA/([\w/.-]+\.jsonl)", row.cells[COMMAND])}
    assert named
    for name in sorted(named):
        assert len(list(read_questions(data / name, 2))) == 2, name
