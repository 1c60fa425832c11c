"""The files behind the path `/v1/files`: the uploads of clients, and the results of batches."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex

import orjson

from pyfast.files import write_atomically
from pyfast.server.errors import ApiError

_ID = re.compile(r"file-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class File:
    """The metadata of a file, with the fields of OpenAI's API."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"


class Files:
    """The files of clients, in a folder. The content of a file is in the folder under the name `ID`, and its
    metadata under the name `ID.json`."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # uploads that a killed server was taking
            part.unlink()

    def new_path(self) -> Path:
        """Return a new path, to which the caller can write an upload. Raises `ApiError` if there are too many
        files."""
        if sum(1 for _ in self._folder.glob("*.json")) >= self._limit:
            raise ApiError(400, f"there are {self._limit} files; delete some", "too_many_files")
        return self._folder / f".{token_hex(16)}.part"

    def add(self, content: Path, filename: str, purpose: str) -> File:
        """Add a finished upload: move `content` into the folder, under a new id."""
        made = File(f"file-{token_hex(16)}", content.stat().st_size, int(time.time()), filename, purpose)
        content.rename(self._folder / made.id)
        self.note(made)
        return made

    def note(self, file: File) -> None:
        """Register a file whose content is already in the folder."""
        write_atomically(self._folder / f"{file.id}.json", orjson.dumps(asdict(file)), durable=True)

    def all(self) -> list[File]:
        """Return the metadata of all files, the newest first."""
        files = [File(**orjson.loads(path.read_bytes())) for path in self._folder.glob("*.json")]
        return sorted(files, key=lambda file: (-file.created_at, file.id))

    def get(self, id: str) -> File:
        """Return the metadata of a file. Raises `ApiError` 404 if no file has this id."""
        try:
            if _ID.fullmatch(id):
                return File(**orjson.loads((self._folder / f"{id}.json").read_bytes()))
        except FileNotFoundError:
            pass
        raise ApiError(404, f"there is no file {id!r}", "file_not_found")

    def path(self, id: str) -> Path:
        """Return the path of a file's content."""
        return self._folder / id

    def delete(self, id: str) -> None:
        """Delete a file. Raises `ApiError` 404 if no file has this id."""
        name = self.get(id).id
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        (self._folder / name).unlink(missing_ok=True)


def pieces(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield the content of a file, piece by piece."""
    with path.open("rb") as file:
        while piece := file.read(size):
            yield piece
