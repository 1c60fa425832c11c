"""Old names of options and commands are understood, each with one line of warning."""

import re

import pytest
import typer
from typer.main import get_command

from pyfast.cli import app
from pyfast.commands.deprecated import COMMANDS, OPTIONS, renamed_arguments

CASES = {
    "train graph-convqa t.jsonl --units 3 --room=200 --rank 8 --alpha=16 --k 5": (
        "train graph-convqa t.jsonl --passages 3 --max-prompt-tokens=200 --lora-rank 8 --lora-alpha=16 --k 5",
        ["--units", "--room", "--rank", "--alpha"],
    ),
    "train hseq-iterator q=i --enough=2 --lexical 0.5 --balance 2 --rank 4 --alpha 4": (
        "train hseq-iterator q=i --max-positives=2 --lexical-weight 0.5 --verdict-weight 2 --lora-rank 4"
        " --lora-alpha 4",
        ["--enough", "--lexical", "--balance", "--rank", "--alpha"],
    ),
    "knowledge unite a b": ("knowledge merge a b", ["knowledge unite"]),
    "knowledge merge unite unite": ("knowledge merge unite unite", []),
    "train hseq-iterator --units 3 --rank-of 2": ("train hseq-iterator --units 3 --rank-of 2", []),
    "train graph-convqa -- --units": ("train graph-convqa -- --units", []),
    "answer q --set rank=graph_rank --units 3": ("answer q --set rank=graph_rank --units 3", []),
    "train graph-convqa --set --units==": ("train graph-convqa --set --passages==", ["--units"]),
    "answer q --reuse=plans": ("answer q --response-cache=plans", ["--reuse"]),
    "--version": ("--version", []),
    "train": ("train", []),
    "": ("", []),
}


@pytest.mark.parametrize(("given", "expected"), CASES.items(), ids=CASES)
def test_old_names_become_the_new(
    given: str, expected: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, warned = expected
    assert renamed_arguments(given.split()) == wanted.split()
    told = capsys.readouterr()
    assert told.out == ""
    assert re.findall(r"^pyfast: `(.+?)` is now `.+?`; .+$", told.err, re.MULTILINE) == warned
    assert told.err.count("\n") == len(warned)


def options(*path: str) -> set[str]:
    command = get_command(app)
    for name in path:
        assert isinstance(command, typer.core.TyperGroup)
        command = command.commands[name]
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("command", OPTIONS, ids=" ".join)
def test_the_new_names_are_there_and_the_old_ones_free(command: tuple[str, str]) -> None:
    assert set(OPTIONS[command].values()) <= options(*command)
    assert not set(OPTIONS[command]) & options(*command)


def test_the_new_commands_are_there() -> None:
    for before, now in COMMANDS.items():
        assert options(*now)
        with pytest.raises(KeyError):
            options(*before)
