"""Options: from a TOML file, on the command line, and refused where they have no effect."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.api.judgement import judge_runs
from pyfast.commands.cli import app
from pyfast.errors import InputError

FILE = """
strict = true
outage = 2
max_failures = "5%"

[sampling]
temperature = 0.5
seed = 7
"""


def test_a_file_has_the_options_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text(FILE)
    assert pyfast.read_options(tmp_path / "o.toml") == {
        "options": pyfast.RunOptions(strict=True, outage=2, max_failures="5%"),
        "sampling": pyfast.Sampling(0.5, 7),
        "cluster": None,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outag = 3", "o.toml: outag: there is no such option; did you mean outage"),
        ("xyzzy = 3", "xyzzy: there is no such option; known: prompts, follow_ups"),
        ("[sampling]\nsede = 1", r"sampling\.sede: there is no such option; did you mean seed"),
        ("sampling = 1", "sampling: expected a table"),
        ("strict = 1", "strict: expected true or false, got 1"),
        ("sample = true", "sample: expected a number, got True"),
        ("sync = 'half'", "sync: expected normal or full, got 'half'"),
        ("sample = 0", "sample: expected a number of at least 1, got 0"),
        ("[cluster]\nworkers = 2", "workers and worker_resources need ray"),
        ("strict =", "Invalid value"),
    ],
)
def test_a_file_with_a_fault_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        pyfast.read_options(tmp_path / "o.toml")
    assert "\n" not in str(raised.value)


def test_the_command_line_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "o.toml").write_text(FILE)
    heard: list[dict[str, Any]] = []

    def answer(questions: object, **given: Any) -> None:
        heard.append(given)
        raise InputError("enough")

    monkeypatch.setattr(importlib.import_module("pyfast.api.answer"), "answer", answer)
    (tmp_path / "q.jsonl").write_text("")
    line = ["answer", str(tmp_path / "q.jsonl"), "--run", str(tmp_path / "run"), "--llm", "instant"]
    CliRunner().invoke(app, [*line, "--options", str(tmp_path / "o.toml"), "--outage", "30", "--seed", "0"])
    assert heard[0]["options"] == pyfast.RunOptions(strict=True, outage=30.0, max_failures="5%")
    assert heard[0]["sampling"] == pyfast.Sampling(0.5, 0) and heard[0]["cluster"] is None


def test_a_command_refuses_what_it_does_not_take(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text("sample = 3")
    line = ["judge", "A", "B", "--run", str(tmp_path / "run"), "--options", str(tmp_path / "o.toml")]
    done = CliRunner().invoke(app, line)
    assert "sample: there is no such option; known: outage, sync, keep_prompts, restart, retry_failed" in str(
        done.exception
    )


def test_a_function_refuses_what_has_no_effect_there() -> None:
    with pytest.raises(InputError, match="sample: judge_runs does not have this option, only outage, sync"):
        judge_runs("A", "B", run="RUN", options=pyfast.RunOptions(sample=3))


def test_a_cluster_needs_an_address() -> None:
    done = CliRunner().invoke(app, ["answer", "q", "--run", "RUN", "--workers", "2"])
    assert "workers and worker_resources need ray" in str(done.exception)


def test_options_load_neither_pydantic_nor_numpy() -> None:
    code = "import sys, pyfast.utils.options; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "numpy", "torch", "ray"} & set(done.stdout.split())
