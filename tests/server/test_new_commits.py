"""The server follows the commits of its indexes: new requests see them, those in progress do not."""

import asyncio
import gc
import json
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import pytest
from http_server import Gate, Served, process, serving, until

import pyfast


def titan(says: str) -> dict[str, str]:
    return {"id": "titan", "title": f"Titan {says}", "text": f"Titan was discovered by {says}."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pyfast.build_index([titan("Huygens")], tmp_path / "IDX")
    return tmp_path / "IDX"


def cited(reply: tuple[int, Any, Any]) -> tuple[str, str]:
    (citation,) = reply[1]["choices"][0]["message"]["annotations"]
    return citation["url_citation"]["title"], citation["url_citation"]["snippet"]


async def found(served: Served) -> str:
    status, body, _ = await served.post("/v1/retrieve", {"query": "Who discovered Titan?"})
    assert status == 200
    return str(body["results"][0]["snippet"])


async def test_requests_in_progress_finish_over_the_old_commit(folder: Path) -> None:
    """The old commit is closed when the last of them has ended; the model stays loaded."""
    gate = Gate()
    async with serving(folder, gate, systems=["rag"]) as served:
        old = weakref.ref(served.app.state.service._served["IDX"].index)
        begun = [asyncio.ensure_future(served.ask("rag")) for _ in range(3)]
        await until(lambda: gate.working == 3)
        await asyncio.to_thread(pyfast.update_documents, folder, [titan("Cassini")])
        later = [asyncio.ensure_future(served.ask("rag")) for _ in range(3)]
        await until(lambda: gate.working == 6)
        assert await found(served) == "Titan was discovered by Cassini."
        gc.collect()
        assert old() is not None
        gate.open.set()
        for reply in await asyncio.gather(*begun):
            assert cited(reply) == ("Titan Huygens", "Titan was discovered by Huygens.")
        for reply in await asyncio.gather(*later):
            assert cited(reply) == ("Titan Cassini", "Titan was discovered by Cassini.")
        await until(lambda: old() is None)
        assert cited(await served.ask("rag")) == ("Titan Cassini", "Titan was discovered by Cassini.")
        assert gate.cancelled == 0


async def test_a_commit_that_is_not_whole_is_not_opened(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(folder, "instant") as served:
        assert await found(served) == "Titan was discovered by Huygens."
        manifest = folder / "manifest.json"
        before = manifest.read_bytes()
        pyfast.update_documents(folder, [titan("Cassini")])
        whole = manifest.read_bytes()
        for part in (before, whole[: len(whole) // 2], whole.replace(b'"documents": 1', b'"documents": 2')):
            manifest.write_bytes(part)  # as it is before the last step of a commit, and when it is damaged
            assert await found(served) == "Titan was discovered by Huygens."
        assert caplog.text.count("stays at commit 1") == 2
        manifest.unlink()
        assert await found(served) == "Titan was discovered by Huygens."
        manifest.write_bytes(whole)
        assert await found(served) == "Titan was discovered by Cassini."


async def test_a_replaced_index_is_followed_and_a_given_commit_is_kept(folder: Path) -> None:
    pyfast.update_documents(folder, [titan("Cassini")])
    indexes = {"now": folder, "then": pyfast.Index(folder, commit=1)}
    async with serving(indexes, "instant") as served:
        _, body, _ = await served.post("/v1/retrieve", {"query": "Titan", "index": "then"})
        assert body["results"][0]["snippet"] == "Titan was discovered by Huygens."
        assert await found(served) == "Titan was discovered by Cassini."
        await asyncio.to_thread(pyfast.build_index, [titan("Lowell")], folder, overwrite=True)
        assert await found(served) == "Titan was discovered by Lowell."


async def test_many_requests_open_a_commit_once(folder: Path) -> None:
    async with serving(folder, "instant") as served:
        for number in range(5):
            pyfast.update_documents(folder, [titan(f"number {number}")])
            snippets = await asyncio.gather(*(found(served) for _ in range(20)))
            assert set(snippets) == {f"Titan was discovered by number {number}."}


def test_the_process_no_longer_maps_the_old_files(folder: Path, tmp_path: Path) -> None:
    def search(url: str) -> str:
        body = b'{"query": "Who discovered Titan?"}'
        asked = urllib.request.Request(url + "/v1/retrieve", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return str(json.load(reply)["results"][0]["snippet"])

    given = ("--index", folder, "--llm", "instant", "--system", "rag")
    with process(tmp_path / "serve", *given) as (session, url):
        maps = Path(f"/proc/{session.process.pid}/maps")
        assert search(url) == "Titan was discovered by Huygens." and f"{folder}/parts/1/" in maps.read_text()
        pyfast.update_documents(folder, [titan("Cassini")])
        pyfast.compact_index(folder)
        assert search(url) == "Titan was discovered by Cassini."
        session.until(lambda: f"{folder}/parts/1/" not in maps.read_text())
        assert "commit 3" in session.told
