"""Tables in a real terminal of 80 columns: every number is whole, no line is too long, no column too narrow."""

import json
import re
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from processes import at_terminal
from processes import pyfast as command

import pyfast
from pyfast.commands.cli import app

RUNS = [f"all-the-runs-of-a-project/of-{system}" for system in ("rag", "n2n", "direct")]
NAMED = " ".join(RUNS)
BENCH = "bench questions.jsonl --index IDX --llm instant --clients 1 --clients 4 --count 6 --repeats 1 --warm-up 0"
PLAN = """
sets = ["a-set-of-questions"]
columns = ["em", "f1", "evidence_recall"]
[models.instant]
llm = "instant"
[[rows]]
name = "RAG with a long name"
system = "rag"
paper.a-set-of-questions = { em = 0.5 }
[[rows]]
name = "LLM alone"
system = "direct"
"""
COMMANDS = [
    f"status {RUNS[1]}",
    f"evaluate {RUNS[0]}",
    f"evaluate {NAMED}",
    f"evaluate {NAMED} --metric em_f1 --metric hotpotqa --metric abstention",
    f"compare {NAMED} --prices prices.toml",
    f"compare {NAMED} --figure evidence_precision",
    f"judge {RUNS[0]} {RUNS[2]} --run judged --llm instant",
    f"distill {NAMED} --out DISTILLED --right all",
    f"estimate --questions 1e8 --from {RUNS[1]} --llm instant --prices prices.toml",
    "experiment plan.toml --data DATA --out EXPERIMENT --compare --limit 4 --latency 2",
    "experiment --list",
    "evaluate-retrieval IDX questions.jsonl --setting ranking=graph_rank --setting ranking=bridge_rank",
    "systems",
    "systems n2n",
    "doctor",
    f"{BENCH} --system rag --system n2n --objective 1",
    f"{BENCH} --system rag --out BENCH",
    f"{BENCH} --system rag --compare BENCH/bench.json",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, examples: Path, small: pyfast.Index) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "IDX").symlink_to(small.folder)
    lines = (examples / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "questions.jsonl").write_text("".join(lines[:12]), encoding="utf-8")
    for run in RUNS:
        system = run.rpartition("-")[2]
        pyfast.answer(folder / "questions.jsonl", index=small, llm="instant", system=system, run=folder / run)
    (folder / "prices.toml").write_text('[models."instant"]\ninput = 0.1\noutput = 1234.5\n')
    (folder / "plan.toml").write_text(PLAN)
    data = folder / "DATA" / "a-set-of-questions"
    data.mkdir(parents=True)
    (data / "questions.jsonl").write_text("".join(lines[:12]), encoding="utf-8")
    text = {"kind": "text", "id": "titan", "title": "Titan", "text": "Titan is a moon of Saturn."}
    (data / "corpus.jsonl").write_text(json.dumps(text) + "\n")
    return folder


def shown(command: str, place: Path, width: int) -> list[str]:
    """The lines that a command prints on a terminal of so many columns."""
    status, told, errors = at_terminal(width, *command.split(), cwd=place)
    assert status == 0, errors
    return [line.rstrip() for line in told.splitlines()]


@cache
def in_both(command: str, place: Path) -> tuple[list[str], list[str]]:
    return shown(command, place, 80), shown(command, place, 400)


def narrow_columns(lines: list[str]) -> list[str]:
    """The cells of columns of less than four characters. Below a table's rule, blank places divide its columns."""
    cells = []
    for _, group in groupby(lines, key=bool):
        block = list(group)
        rules = [number for number, line in enumerate(block) if set(line.strip()) == {"─"}]
        for number in rules:
            below = [line.ljust(80) for line in block[number + 1 :]]
            used = "".join(" " if all(line[k] == " " for line in below) else "x" for k in range(80))
            for found in re.finditer("x{1,3}(?!x)(?<!xxxx)", used):
                if used[found.start() - 1 : found.start()] != "x":
                    cells += [line[found.start() : found.end()].strip() for line in below]
    return [cell for cell in cells if cell]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_of_80_columns(command: str, place: Path) -> None:
    lines, wide = in_both(command, place)
    assert lines and [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if re.search(r"\d(…|\.\.)|…\d", line)] == []
    if not command.startswith("bench"):  # Its numbers differ from call to call.
        numbers = [
            {word for line in some for word in line.split() if re.fullmatch(r"[-+]?\d[\d.,]*%?", word)}
            for some in (lines, wide)
        ]
        assert numbers[1] <= numbers[0]
        words = {word for line in wide for word in line.split()}
        assert [cell for cell in narrow_columns(lines) if cell not in words] == []


def test_the_check_of_narrow_columns_sees_them() -> None:
    table = [" run    em", " ──────────", " a   0.000", " b   1.000", "", "nothing"]
    assert narrow_columns(table) == ["a", "b"]


def test_no_other_command_prints_a_table() -> None:
    """A command that makes a table stands in the list above."""
    tested = {command.split()[0] for command in COMMANDS}
    commands = Path(pyfast.__file__).parent / "commands"
    for one in app.registered_commands:
        assert one.callback is not None
        file = commands / f"{one.callback.__module__.rpartition('.')[2]}.py"
        text = file.read_text(encoding="utf-8")
        body = text[text.index(f"def {one.callback.__name__}(") :].partition("\n\n\n")[0]
        if "show_table(" in body or "Table(" in body:
            assert one.callback.__name__.replace("_", "-") in tested


def test_nothing_wraps_in_a_pipe(place: Path) -> None:
    uri = "/".join(f"a-folder-with-a-long-name-{k}" for k in range(8)) + "/report 2024.txt"
    pyfast.build_index([{"id": uri, "title": "A long title " * 9, "text": "Rain fell."}], place / "LONG")
    listed = command("corpus", "list", place / "LONG").stdout.splitlines()
    assert [line.split() for line in listed if uri in line] == [
        [*uri.split(), *["A", "long", "title"] * 9, "text", "1"]
    ]
    rows = command("evaluate", *RUNS, cwd=place).stdout.splitlines()
    heads = [line for line in rows if "evidence recall" in line]
    assert len(heads) == 2 and all(f" {run} " in "\n".join(rows) for run in RUNS)
