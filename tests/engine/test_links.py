"""Nothing is written through a symbolic link in a run's folder: it could lead to anybody's file."""

from pathlib import Path

import pytest
from runs import DESCRIBED, Watched, ask_about, direct, go

from pyfast.engine import RunFolder, read_status
from pyfast.engine.run_folder import set_aside
from pyfast.errors import InputError

NAMES = ["run.toml", "answers.jsonl", "journal.sqlite", "journal.sqlite-wal", "questions.jsonl", "knowledge"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("started", [False, True])
def test_a_link_in_the_folder_is_refused(tmp_path: Path, name: str, started: bool) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    if started:
        go(folder, direct, Watched(), ask_about(3))
    folder.mkdir(exist_ok=True)
    if (folder / name).exists():
        (folder / name).rename(other)
    else:
        other.write_bytes(b"")
    (folder / name).symlink_to(other)
    before = other.read_bytes()
    with pytest.raises(InputError, match=f"{name} is a symbolic link") as error:
        RunFolder(folder, DESCRIBED)
    assert "\n" not in str(error.value)
    if started:
        with pytest.raises(InputError, match="a symbolic link"):
            set_aside(folder)
    assert other.read_bytes() == before and [path.name for path in tmp_path.iterdir()].count("run") == 1


def test_the_folder_itself_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    go(tmp_path / "run", direct, Watched(), ask_about(3))
    assert read_status(tmp_path / "disk").ended == 3
