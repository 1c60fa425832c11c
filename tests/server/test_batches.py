"""`/v1/files` and `/v1/batches`: by the official client; killed, restarted, cancelled, asked twice."""

import asyncio
import contextlib
import json
import re
import resource
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest
from failing_llm import FailingLLM, failing_llm
from hostile_server import hostile
from http_server import Gate, Served, process, serving, until
from processes import Session

import pyfast
from pyfast.engine.configuration import recorded_value
from pyfast.llm import Completion, Request


def line(id: str, model: str = "direct", **fields: Any) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": f"What is {id}?"}], **fields}
    return json.dumps({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body})


def lines(count: int) -> bytes:
    return "".join(line(f"q{number}") + "\n" for number in range(count)).encode()


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def begin(ask: openai.OpenAI, content: bytes, **options: Any) -> Any:
    file = ask.files.create(file=("questions.jsonl", content), purpose="batch")
    return ask.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **options
    )


def ended(ask: openai.OpenAI, id: str, patience_s: float = 120.0) -> Any:
    deadline = time.monotonic() + patience_s
    while (batch := ask.batches.retrieve(id)).status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
    return batch


def results(ask: openai.OpenAI, file: str) -> list[dict[str, Any]]:
    return [json.loads(one) for one in ask.files.content(file).read().splitlines()]


async def test_the_official_client_runs_a_batch(small: pyfast.Index, tmp_path: Path) -> None:
    asked = [line("a", "rag"), line("b", "rag"), ""]
    texts = {"a": "What is a?", "b": "What is b?"}
    whole = pyfast.answer(
        [{"id": id, "question": text} for id, text in texts.items()], index=small, llm="instant", system="rag"
    )

    def work(url: str) -> None:
        with client(url) as ask:
            batch = ended(ask, begin(ask, "\n".join(asked).encode(), metadata={"for": "test"}).id)
            assert (batch.status, batch.metadata, batch.error_file_id) == ("completed", {"for": "test"}, None)
            counts = batch.request_counts
            assert counts is not None and (counts.total, counts.completed, counts.failed) == (2, 2, 0)
            found = results(ask, batch.output_file_id)
            said = {one["custom_id"]: one["response"]["body"]["choices"][0]["message"] for one in found}
            assert {id: message["content"] for id, message in said.items()} == {
                record.id: record.answer for record in whole.records
            }
            evidence = [note["url_citation"]["url"] for note in said["a"]["annotations"]]
            assert evidence == [one.uri for one in whole.records[0].evidence]
            assert [one.id for one in ask.batches.list()] == [batch.id]
            assert {one.id for one in ask.files.list()} == {batch.input_file_id, batch.output_file_id}
            assert ask.files.retrieve(batch.input_file_id).bytes == len("\n".join(asked))
            assert ask.files.delete(batch.input_file_id).deleted
            with pytest.raises(openai.NotFoundError):
                ask.files.retrieve(batch.input_file_id)

    async with serving(small, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(work, served.url)
    run = pyfast.Run(next(tmp_path.glob("batches/*/run")))
    assert [record.line() for record in run.records] == [record.line() for record in whole.records]


async def test_failed_questions_have_a_file_of_their_own(tmp_path: Path) -> None:
    def work(url: str) -> None:
        with client(url) as ask:
            batch = ended(ask, begin(ask, lines(3)).id)
            assert (batch.status, batch.output_file_id) == ("completed", None)
            assert batch.request_counts.failed == 3
            found = results(ask, batch.error_file_id)
            assert [one["response"]["status_code"] for one in found] == [422] * 3
            assert found[0]["response"]["body"]["error"]["code"] == "failed_reply"

    class Broken:
        fingerprint = "broken-1"

        async def complete(self, request: Request) -> Completion:
            return Completion("no JSON", "stop")

    async with serving(None, Broken(), options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(work, served.url)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty_file"),
        ("{", "invalid_json_line"),
        ("[]", "missing_custom_id"),
        (line(""), "missing_custom_id"),
        (line("a").replace("POST", "GET"), "mismatched_url"),
        (line("a").replace("/v1/chat", "/v2/chat"), "mismatched_url"),
        (line("a", n=2), "invalid_request"),
        (line("a").replace('"body"', '"filter": "source=a/*", "body"'), "invalid_request"),
        (line("a", "nonsense"), "model_not_found"),
        (line("a") + "\n" + line("a"), "duplicate_custom_id"),
        (line("a") + "\n" + line("b", "cot"), "mismatched_model"),
        (
            line("a", messages=[{"role": role, "content": "x"} for role in ("user", "assistant", "user")]),
            "has_history",
        ),
    ],
)
async def test_an_input_that_cannot_be_read_fails_the_batch(content: str, code: str, tmp_path: Path) -> None:
    def work(url: str) -> None:
        with client(url) as ask:
            batch = ended(ask, begin(ask, content.encode()).id)
            assert (batch.status, batch.errors.data[0].code) == ("failed", code)

    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(work, served.url)


async def test_a_line_with_a_fault_is_named_in_words(tmp_path: Path) -> None:
    asked = {
        '{"type": "image_url"}': "body.messages.0.content.0: type: only parts of type text are accepted",
        "5": "body.messages.0.content.0: Input should be an object",
    }

    def work(url: str) -> None:
        with client(url) as ask:
            for part, told in asked.items():
                content = line("a", messages=[{"role": "user", "content": [json.loads(part)]}])
                batch = ended(ask, begin(ask, content.encode()).id)
                assert batch.errors.data[0].message == told
            batch = ended(ask, begin(ask, line("a", max_token=5).encode()).id)
            assert batch.errors.data[0].message.endswith("did you mean max_tokens?")

    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(work, served.url)


async def test_a_key_gives_the_same_batch_again(tmp_path: Path) -> None:
    def work(url: str) -> None:
        with client(url) as ask:
            file = ask.files.create(file=("q", lines(2)), purpose="batch")

            def create(**options: Any) -> Any:
                return ask.batches.create(
                    input_file_id=file.id,
                    endpoint="/v1/chat/completions",
                    completion_window="24h",
                    extra_headers={"Idempotency-Key": "one"},
                    **options,
                )

            first = create()
            assert ended(ask, first.id).id == create().id == first.id
            with pytest.raises(openai.ConflictError):
                create(metadata={"other": "yes"})
            assert len(list(ask.batches.list())) == 1

    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(work, served.url)


async def test_one_that_is_cancelled_keeps_what_it_has(tmp_path: Path) -> None:
    gate = Gate()

    def work(served: Served) -> str:
        with client(served.url) as ask:
            batch = begin(ask, lines(50))
            deadline = time.monotonic() + 20
            while gate.working < 4:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with pytest.raises(openai.ConflictError):
                ask.files.delete(batch.input_file_id)
            assert ask.batches.cancel(batch.id).status == "cancelling"
            return str(batch.id)

    def rest(served: Served, id: str) -> None:
        with client(served.url) as ask:
            batch = ended(ask, id)
            assert batch.status == "cancelled" and batch.request_counts.completed == 4
            assert len(results(ask, batch.output_file_id)) == 4
            with pytest.raises(openai.ConflictError):
                ask.batches.cancel(id)

    async with serving(None, gate, concurrency=4, options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        id = await asyncio.to_thread(work, served)
        gate.open.set()
        await asyncio.to_thread(rest, served, id)


def limit_files(session: Session, size: int) -> None:
    """Let no file of the server grow beyond `size` bytes: it fails as on a full disk. -1: any size."""
    assert session.process.pid is not None
    resource.prlimit(session.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_batch_goes_on_by_itself_when_there_is_space_again(is_cancelled: bool, tmp_path: Path) -> None:
    count = 400
    with hostile("--weights", "good=1", "--delay-ms", "20") as llm:
        given = ("--llm", f"openai:m@{llm}", "--system", "direct", "--jobs", tmp_path / "jobs", "--concurrency", 8)
        with process(tmp_path, *given) as (session, url), client(url) as ask:
            batch = begin(ask, lines(count))

            def now() -> Any:
                return ask.batches.retrieve(batch.id)

            session.until(lambda: now().request_counts.completed >= 40)
            limit_files(session, 1)
            session.until(lambda: now().errors is not None)
            assert (now().status, now().errors.data[0].code) == ("in_progress", "interrupted")
            with pytest.raises(openai.APIStatusError) as told:
                ask.files.create(file=("q", lines(1)), purpose="batch")
            assert (told.value.status_code, told.value.code) == (507, "no_space")
            if is_cancelled:  # Stopped at once, but not promised: it could not be written.
                with pytest.raises(openai.APIStatusError) as told:
                    ask.batches.cancel(batch.id)
                assert (told.value.status_code, now().status) == (507, "cancelling")
            limit_files(session, -1)
            if is_cancelled:
                with contextlib.suppress(openai.ConflictError):  # It may have ended.
                    assert ask.batches.cancel(batch.id).status in ("cancelling", "cancelled")
            done = ended(ask, batch.id)
            completed = len(results(ask, done.output_file_id))
            assert (done.errors, done.request_counts.completed) == (None, completed)
            assert done.status == ("cancelled" if is_cancelled else "completed")
            assert completed < count if is_cancelled else completed == count
        assert sorted(path.suffix for path in (tmp_path / "jobs" / "files").iterdir()) == [
            "",
            "",
            ".json",
            ".json",
        ]


def test_a_server_that_starts_before_the_other_has_ended_goes_on_with_its_batch(tmp_path: Path) -> None:
    """Also in a rolling restart, with two servers for a while: no batch fails, and no answer is lost."""
    count = 150
    with hostile("--weights", "good=1", "--delay-ms", "200") as llm:
        given = ("--llm", f"openai:m@{llm}", "--system", "direct", "--jobs", tmp_path / "jobs", "--concurrency", 4)
        with process(tmp_path, *given) as (first, url), client(url) as ask:
            batch = begin(ask, lines(count))
            first.until(lambda: ask.batches.retrieve(batch.id).request_counts.completed >= 8)
            with process(tmp_path, *given) as (second, other), client(other) as again:
                second.until(lambda: again.batches.retrieve(batch.id).errors is not None)
                waits = again.batches.retrieve(batch.id)
                assert (waits.status, waits.errors.data[0].code) == ("in_progress", "other_server")
                time.sleep(2.0)  # It tries again after 1 s.
                assert second.told.count("another server is working on") == 1 and "ERROR" not in second.told
                second.until(
                    lambda: (
                        again.batches.retrieve(batch.id).request_counts.completed > waits.request_counts.completed
                    )
                )
                late = begin(ask, lines(2))
                assert again.batches.retrieve(late.id).status in ("validating", "in_progress")
                first.send(signal.SIGTERM)
                assert first.ended() == 0
                assert [ended(again, id).status for id in (batch.id, late.id)] == ["completed", "completed"]
                assert len(results(again, again.batches.retrieve(batch.id).output_file_id)) == count
                told = urllib.request.urlopen(f"{other}/metrics").read().decode()
                (calls,) = re.findall(r"^pyfast_llm_calls_total{.*?} ([0-9.]+)$", told, re.MULTILINE)
                assert 2 < float(calls) < count
        for folder in ("files", "batches"):
            assert (tmp_path / "jobs" / folder).stat().st_mode & 0o77 == 0


async def test_a_batch_can_be_cancelled_at_another_server_than_the_one_that_works_on_it(tmp_path: Path) -> None:
    gate, options = Gate(), pyfast.ServerOptions(jobs=tmp_path)
    async with (
        serving(None, gate, concurrency=4, options=options) as one,
        serving(None, Gate(), concurrency=4, options=options) as other,
    ):
        with client(one.url) as ask, client(other.url) as again:
            key = {"extra_headers": {"Idempotency-Key": "k"}}
            batch = await asyncio.to_thread(begin, ask, lines(50), **key)
            await until(lambda: gate.working == 4)
            asked = {name: getattr(batch, name) for name in ("input_file_id", "endpoint", "completion_window")}
            same = await asyncio.to_thread(again.batches.create, **asked, **key)
            assert (same.id, same.status) == (batch.id, "in_progress")
            assert (await asyncio.to_thread(again.batches.cancel, batch.id)).status == "cancelling"
            async with asyncio.timeout(20):
                while (await asyncio.to_thread(ask.batches.retrieve, batch.id)).status != "cancelling":
                    await asyncio.sleep(0.05)
            gate.open.set()
            done = await asyncio.to_thread(ended, ask, batch.id)
            assert (done.status, done.request_counts.completed) == ("cancelled", 4)
            assert len(await asyncio.to_thread(results, ask, done.output_file_id)) == 4
            with pytest.raises(openai.ConflictError):
                await asyncio.to_thread(again.batches.cancel, batch.id)
            assert await asyncio.to_thread(again.batches.retrieve, batch.id) == done


async def test_requests_are_answered_while_a_batch_is_worked_on(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(None, gate, concurrency=4, options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        await asyncio.to_thread(lambda: begin(client(served.url), lines(10)))
        await until(lambda: gate.working == 4)
        asking = asyncio.ensure_future(served.ask())
        await until(lambda: gate.working == 5)
        gate.open.set()
        assert (await asking)[0] == 200


async def test_uploads_have_limits(tmp_path: Path) -> None:
    async with serving(
        None, "instant", limits={"file_bytes": 1000, "files": 1}, options=pyfast.ServerOptions(jobs=tmp_path)
    ) as served:

        def work(url: str) -> None:
            with client(url) as ask:
                for size in (1001, 1 << 20):
                    with pytest.raises(openai.APIStatusError) as told:
                        ask.files.create(file=("q", b"x" * size), purpose="batch")
                    assert told.value.status_code == 413 and "larger than 1000 bytes" in str(told.value)
                with pytest.raises(openai.BadRequestError):
                    ask.files.create(file=("q", b"x"), purpose="assistants")
                assert ask.files.create(file=("q", b"x"), purpose="batch").bytes == 1
                with pytest.raises(openai.BadRequestError, match="delete some"):
                    ask.files.create(file=("q", b"x"), purpose="batch")

        await asyncio.to_thread(work, served.url)
        for path in ("file-..%2f..%2fetc", "file-" + "0" * 32):
            async with served.client.get(f"{served.url}/v1/files/{path}/content") as response:
                assert response.status == 404
    assert sorted(path.suffix for path in (tmp_path / "files").iterdir()) == ["", ".json"]


async def test_a_server_without_a_folder_takes_no_batches() -> None:
    async with serving(None, "instant") as served, served.client.get(served.url + "/v1/batches") as response:
        assert response.status == 404 and (await response.json())["error"]["code"] == "no_batches"


COUNT = 400


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_batch_goes_on_when_the_server_starts_again(number: signal.Signals, tmp_path: Path) -> None:
    """Ended in the middle of 400 questions, it finishes them, and asks no LLM twice but for calls in flight."""
    with hostile("--weights", "good=1", "--delay-ms", "20") as llm:
        given = (
            "--llm",
            f"openai:m@{llm}",
            "--system",
            "direct",
            "--jobs",
            tmp_path / "jobs",
            "--concurrency",
            16,
        )
        with process(tmp_path, *given, "--grace", "10") as (session, url), client(url) as ask:
            batch = begin(ask, lines(COUNT))
            session.until(lambda: ask.batches.retrieve(batch.id).request_counts.completed >= 80)  # type: ignore[union-attr]
            session.send(number)
            session.ended()
            stops = rf"batches' questions in progress\n.*will continue these batches: {batch.id}\n"
            assert bool(re.search(stops, session.told)) == (number == signal.SIGTERM)
        before = json.load(urllib.request.urlopen(f"{llm}/counts"))["requests"]
        assert before < COUNT
        with process(tmp_path, *given) as (session, url), client(url) as ask:
            done = ended(ask, batch.id)
            assert done.request_counts.completed == done.request_counts.total == COUNT
            assert re.search(rf"{batch.id}/run: \d+ of {COUNT} questions are finished; continuing", session.told)
            found = results(ask, done.output_file_id)
        counts = json.load(urllib.request.urlopen(f"{llm}/counts"))
    assert [one["custom_id"] for one in found] == [f"q{number}" for number in range(COUNT)]
    repeated = counts["requests"] - COUNT
    assert repeated <= (16 if number == signal.SIGKILL else 0)
    whole = pyfast.answer(
        [{"id": f"q{number}", "question": f"What is q{number}?"} for number in range(COUNT)],
        llm="instant",
        system="direct",
    )
    run = pyfast.Run(tmp_path / "jobs" / "batches" / batch.id / "run")
    assert [record.answer for record in run.records] == [record.answer for record in whole.records]


async def unfinished(llm: FailingLLM, jobs: Path, index: Any = None, system: str = "direct", **given: Any) -> str:
    """Begin a batch of 40 questions on a server that stops when some are answered. Returns its id."""
    llm.delay_s = 0.05

    def work(url: str) -> str:
        with client(url) as ask:
            batch = begin(ask, "\n".join(line(f"q{number}", system) for number in range(40)).encode())
            while (now := ask.batches.retrieve(batch.id)).request_counts.completed < 8:
                assert now.status in ("validating", "in_progress"), now
                time.sleep(0.02)
            return str(batch.id)

    options = pyfast.ServerOptions(jobs=jobs, grace=5.0)
    async with serving(index, f"openai:m@{llm.url}", concurrency=2, options=options, **given) as served:
        return await asyncio.to_thread(work, served.url)


async def until_told(ask: openai.OpenAI, id: str) -> Any:
    async with asyncio.timeout(30):
        while (batch := await asyncio.to_thread(ask.batches.retrieve, id)).errors is None:
            await asyncio.sleep(0.05)
    return batch


OTHER_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "budget": ({"budget": {"calls": 9}}, "the budget calls was not set and is now 9"),
    "model": ({"llm": "n"}, "the LLM is different"),
    "systems": ({"systems": ["cot"]}, "there is no model 'direct'"),
    "prompts": ({}, "the prompts have changed"),
}


@pytest.mark.parametrize("how", OTHER_OPTIONS)
async def test_a_batch_waits_for_the_options_with_which_it_was_begun(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server with other options neither fails the batch nor holds up others. Cancelled, it has its answers."""
    other, told = OTHER_OPTIONS[how]
    given = {"systems": ["direct"], **other}
    jobs = tmp_path / "jobs"
    (tmp_path / "prompts.toml").write_text('[direct]\nsystem = "Answer."\n')
    others = pyfast.ServerOptions(jobs=jobs, prompts=tmp_path / "prompts.toml" if how == "prompts" else None)
    async with failing_llm() as llm:
        ids = [await unfinished(llm, jobs, systems=["direct"])]
        ids.append(await unfinished(llm, tmp_path / "jobs2", systems=["direct"]))
        (tmp_path / "jobs2" / "batches" / ids[1]).rename(jobs / "batches" / ids[1])
        spec = f"openai:{given.pop('llm', 'm')}@{llm.url}"
        async with serving(None, spec, options=others, **given) as served:
            with client(served.url) as ask:
                for id in ids:
                    batch = await until_told(ask, id)
                    (fault,) = batch.errors.data
                    assert (batch.status, fault.code) == ("in_progress", "options_changed")
                    assert told in fault.message
                    assert str(tmp_path) not in fault.message and "--" not in fault.message
                    assert 8 <= batch.request_counts.completed < 40
                    lines_of = [record for record in caplog.records if id in record.getMessage()]
                    assert [record.levelname for record in lines_of] == ["ERROR"]
                late = await asyncio.to_thread(begin, ask, line("a", given["systems"][0]).encode())
                assert (await asyncio.to_thread(ended, ask, late.id)).status == "completed"
                await asyncio.to_thread(ask.batches.cancel, ids[1])
                done = await asyncio.to_thread(ended, ask, ids[1])
                assert (done.status, done.errors) == ("cancelled", None)
                found = await asyncio.to_thread(results, ask, done.output_file_id)
                assert len(found) == done.request_counts.completed >= 8
        asked, llm.delay_s = llm.questions, 0.0
        options = pyfast.ServerOptions(jobs=jobs)
        async with serving(None, f"openai:m@{llm.url}", systems=["direct"], options=options) as served:
            with client(served.url) as ask:
                counts = (await asyncio.to_thread(ask.batches.retrieve, ids[0])).request_counts
                assert counts.completed >= 8  # from the start
                done = await asyncio.to_thread(ended, ask, ids[0])
                assert (done.status, done.errors, done.request_counts.completed) == ("completed", None, 40)
        assert llm.questions - asked <= 32


async def test_a_batch_keeps_its_settings_when_the_server_has_others(small: pyfast.Index, tmp_path: Path) -> None:
    async with failing_llm() as llm:
        id = await unfinished(llm, tmp_path, small, "rag", systems={"rag": {"k": 3}})
        options = pyfast.ServerOptions(jobs=tmp_path, follow_ups="off")
        async with serving(small, f"openai:m@{llm.url}", systems={"rag": {"k": 5}}, options=options) as served:
            with client(served.url) as ask:
                done = await asyncio.to_thread(ended, ask, id)
                assert (done.status, done.request_counts.completed) == ("completed", 40)
    run = tmp_path / "batches" / id / "run"
    assert recorded_value(run, "system", "set_k") == 3


async def test_a_batch_whose_documents_are_gone_can_still_be_cancelled(tmp_path: Path) -> None:
    index = pyfast.build_index([{"id": "titan", "text": "Titan is a moon of Saturn."}], tmp_path / "IDX")
    async with failing_llm() as llm:
        id = await unfinished(llm, tmp_path, index, "rag", systems=["rag"])
        pyfast.add_documents(index.folder, [{"id": "rhea", "text": "Rhea is a moon of Saturn."}])
        pyfast.compact_index(index.folder, erase=True)
        options = pyfast.ServerOptions(jobs=tmp_path)
        async with serving(index.folder, f"openai:m@{llm.url}", systems=["rag"], options=options) as served:
            with client(served.url) as ask:
                batch = await until_told(ask, id)
                told = batch.errors.data[0].message
                assert "the documents have changed; only a server whose index still has its" in told
                await asyncio.to_thread(ask.batches.cancel, id)
                done = await asyncio.to_thread(ended, ask, id)
                assert done.status == "cancelled" and done.request_counts.completed >= 8


async def test_a_context_window_that_cannot_be_asked_is_not_assumed(tmp_path: Path) -> None:
    """A gateway answers 503 while the server starts: the batch waits, as when nothing answers."""
    async with failing_llm() as llm:
        llm.window = 4096
        id = await unfinished(llm, tmp_path, systems=["direct"])
        llm.mode, llm.delay_s = "503", 0.0
        given: dict[str, Any] = {"systems": ["direct"], "llm_options": {"attempts": 1}}
        options = pyfast.ServerOptions(jobs=tmp_path)
        async with serving(None, f"openai:m@{llm.url}", options=options, **given) as served:
            with client(served.url) as ask:
                batch = await until_told(ask, id)
                assert (batch.status, batch.errors.data[0].code) == ("in_progress", "llm_unavailable")
                assert batch.request_counts.completed >= 8
                assert (await served.ask())[0] == 503
                llm.mode = "ok"
                done = await asyncio.to_thread(ended, ask, id)
                assert (done.status, done.errors, done.request_counts.completed) == ("completed", None, 40)


async def test_a_batch_says_that_it_waits_for_the_llm(tmp_path: Path) -> None:
    async with failing_llm() as llm:
        llm.mode = "500"
        given: dict[str, Any] = {"systems": ["direct"], "llm_options": {"attempts": 1}}
        options = pyfast.ServerOptions(jobs=tmp_path)
        async with serving(None, f"openai:m@{llm.url}", options=options, **given) as served:
            with client(served.url) as ask:
                batch = await asyncio.to_thread(begin, ask, lines(3))
                now = await until_told(ask, batch.id)
                assert (now.status, now.errors.data[0].code) == ("in_progress", "llm_unavailable")
                llm.mode = "ok"
                assert (await asyncio.to_thread(ended, ask, batch.id)).errors is None


async def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    async with serving(None, "instant", options=pyfast.ServerOptions(jobs=tmp_path)) as served:
        with client(served.url) as ask:
            batch = await asyncio.to_thread(begin, ask, b"\xef\xbb\xbf" + lines(2))
            assert (await asyncio.to_thread(ended, ask, batch.id)).status == "completed"
