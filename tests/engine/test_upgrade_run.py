"""A run of the format before is read as it is, and can be made one of today's."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from runs import DESCRIBED, Watched, answers, ask_about, direct, go

from pyfast import evaluate
from pyfast.api.upgrading import upgrade
from pyfast.engine import RunFolder, check_run, read_status
from pyfast.engine.configuration import (
    check_format,
    differences,
    read_configuration,
    read_with_format,
    write_configuration,
)
from pyfast.engine.run_folder import locked
from pyfast.engine.upgrade import upgrade_run
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems import load_system

OLD: dict[str, dict[str, Any]] = {
    "n2n": {
        "rank": "graph_rank", "alpha": 0.5, "hop_k": 20, "hop_least": 2, "hop_most": 3,
        "final_least": 4, "final_most": 5,
    },
    "hseq": {"least_steps": 2, "steps": 4},
    "graph_convqa": {"units": 7, "k": 3},
    "mtqa": {"units": 7, "rows": 3},
}  # fmt: skip
NEW: dict[str, dict[str, Any]] = {
    "n2n": {
        "ranking": "graph_rank", "alpha": 0.5, "hop_k": 20, "hop_min": 2, "hop_max": 3,
        "final_min": 4, "final_max": 5,
    },
    "hseq": {"min_steps": 2, "steps": 4},
    "graph_convqa": {"passages": 7, "k": 3},
    "mtqa": {"units": 7, "rows": 3},
}  # fmt: skip


def system(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, **{f"set_{setting}": value for setting, value in settings.items()}}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A finished run, as the first format had it."""
    folder = tmp_path / "run"
    go(folder, direct, Watched(), ask_about(9))
    (folder / "run.toml").write_text(tomli_w.dumps({**DESCRIBED, "system": system("n2n", OLD["n2n"])}))
    return folder


@pytest.mark.parametrize("name", OLD)
def test_the_settings_have_todays_names(old: Path, name: str) -> None:
    described = {
        "questions": {"count": 9}, "system": system(name, OLD[name]), "places": {"index": "units"},
        "index": {"corpus": "00", "parameters": '{"forward": {"tf": "1"}, "lexical": {"b": 0.75}}'},
    }  # fmt: skip
    (old / "run.toml").write_text(tomli_w.dumps(described))
    before = answers(old)
    assert upgrade_run(old)
    told = tomllib.loads((old / "run.toml").read_text())
    assert told == {
        **described,
        "format": {"version": 2},
        "system": system(name, NEW[name]),
        "index": {"corpus": "00", "parameters": '{"bm25": {"b": 0.75}, "forward": {"tf": "1"}}'},
    }
    assert set(NEW[name]) <= set(load_system(name).settings.model_fields)
    assert answers(old) == before
    assert not upgrade_run(old)
    assert tomllib.loads((old / "run.toml").read_text()) == told


@pytest.mark.parametrize("described", [{}, {"index": {"parameters": "["}}, {"index": {"parameters": 3}}])
def test_a_run_that_tells_little_is_upgraded_too(old: Path, described: dict[str, Any]) -> None:
    (old / "run.toml").write_text(tomli_w.dumps(described))
    assert upgrade_run(old)
    assert read_with_format(old / "run.toml") == (2, described)


def test_both_formats_are_read(old: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text("".join(f'{{"id": "q{i}", "answers": ["a"]}}\n' for i in range(9)))
    found = [(read_status(old), evaluate(old, gold))]
    assert upgrade_run(old)
    found.append((read_status(old), evaluate(old, gold)))
    assert found[0] == found[1] and found[0][0].ended == 9


def test_the_format_is_none_of_the_differences(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    write_configuration(path, DESCRIBED)
    assert tomllib.loads(path.read_text()) == {"format": {"version": 2}, **DESCRIBED}
    assert read_configuration(path) == DESCRIBED and differences(read_configuration(path), DESCRIBED) == []
    path.write_text(tomli_w.dumps(DESCRIBED))
    assert read_with_format(path) == (1, DESCRIBED)


def test_a_newer_format_is_refused_in_one_line(old: Path, tmp_path: Path) -> None:
    (old / "run.toml").write_text(tomli_w.dumps({"format": {"version": 3}, **DESCRIBED}))
    (tmp_path / "gold.jsonl").write_text('{"id": "q0", "answers": ["a"]}\n')
    for does in (
        lambda: read_status(old),
        lambda: evaluate(old, tmp_path / "gold.jsonl"),
        lambda: check_format(old),
        lambda: check_run(old, DESCRIBED),
        lambda: RunFolder(old, DESCRIBED),
        lambda: upgrade_run(old),
        lambda: upgrade(old),
    ):
        with pytest.raises(InputError, match=r": run of format 3, .+ up to 2: use a newer pyfast") as error:
            does()  # type: ignore[no-untyped-call]
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "told", ["format = 2\n", "[format]\n", '[format]\nversion = "2"\n', "[format]\nversion = 0"]
)
def test_a_broken_format_is_damage(old: Path, told: str) -> None:
    (old / "run.toml").write_text(told)
    with pytest.raises(InputError, match="--restart"):
        read_configuration(old / "run.toml")


def test_a_run_in_work_is_refused(old: Path) -> None:
    with locked(old):
        code = "import sys; from pathlib import Path; from pyfast.engine.upgrade import upgrade_run;"
        code += "upgrade_run(Path(sys.argv[1]))"
        done = subprocess.run([sys.executable, "-c", code, str(old)], capture_output=True, text=True)
    assert done.returncode and "another process is working on this run" in done.stderr
    assert upgrade_run(old)


def test_a_run_of_other_code_is_not_gone_on_with(old: Path) -> None:
    described = {**DESCRIBED, "code": {"version": "0.1.0", "digest": "new"}}
    (old / "run.toml").write_text(
        tomli_w.dumps({**described, "code": {"version": "0.1.0", "digest": "old"}, "system": {"set_rank": "x"}})
    )
    for upgraded in (False, True):
        assert not upgraded or upgrade_run(old)
        with pytest.raises(
            InputError,
            match=r"begun by other code: code\.digest was old, is new\. It can be read, evaluated and judged, but",
        ):
            check_run(old, described)


def test_the_folder_tells_what_it_is(old: Path, small: Index, tmp_path: Path) -> None:
    assert upgrade(old) == f"{old}: run of format 2, upgraded"
    assert upgrade(old) == f"{old}: run of format 2 already"
    assert upgrade(small.folder) == f"{small.folder}: index of format 4 already"
    for path in (tmp_path, tmp_path / "nothing", old / "run.toml"):
        with pytest.raises(InputError, match="neither an index nor a run folder"):
            upgrade(path)
