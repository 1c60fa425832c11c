"""`batch:MODEL@URL` against a provider in a process of its own: one batch a hop, and nothing submitted twice."""

import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from batch_server import allow, batch_server, counts
from grouped import grouped
from processes import Session
from processes import pyfast as command
from runs import answers, traces

import pyfast
from pyfast.errors import InputError, LLMUnavailableError, OutageError

FAST: dict[str, Any] = {"poll_s": 0.05, "settle_s": 0.5, "quiet_s": 0.1}
TITAN = "Who discovered Titan?"


@pytest.fixture(scope="module")
def index(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> pyfast.Index:
    return pyfast.build_index(examples / "corpus", tmp_path_factory.mktemp("batches") / "index")


def ask_all(number: int, index: pyfast.Index, kind: str, url: str, **options: Any) -> pyfast.Run:
    questions = [f"{TITAN} ({i})" for i in range(number)]
    given = {**FAST, **options.pop("llm_options", {})} if kind == "batch" else {}
    return pyfast.answer(questions, index=index, llm=f"{kind}:m@{url}", llm_options=given, **grouped(**options))


def same(one: pyfast.Run, other: pyfast.Run) -> bool:
    return [record.as_json() for record in one.records] == [record.as_json() for record in other.records]


def test_each_hop_of_all_questions_is_one_batch(index: pyfast.Index) -> None:
    with batch_server() as url:
        online = ask_all(40, index, "openai", url)
        batched = ask_all(40, index, "batch", url)
        told = counts(url)
    assert same(batched, online)
    assert told["online"] == told["custom_ids"] == 160
    assert told["batches"] == 4  # a plan, two entities, the answer


@pytest.mark.parametrize("fault", ["--fail", "--expire"])
def test_what_fails_on_its_way_joins_the_next_batch(fault: str, index: pyfast.Index) -> None:
    with batch_server(fault, 3) as url:
        online = ask_all(20, index, "openai", url)
        batched = ask_all(20, index, "batch", url)
        told = counts(url)
    assert same(batched, online)
    assert told["answered"] == told["online"] < told["custom_ids"]
    assert not told["custom_ids_twice"]


def test_the_last_few_go_online(index: pyfast.Index) -> None:
    with batch_server("--fail", 3) as url:
        online = ask_all(20, index, "openai", url)
        before = counts(url)["online"]
        assert same(ask_all(20, index, "batch", url, llm_options={"online_calls": 15}), online)
        told = counts(url)
    assert 0 < told["online"] - before < before
    assert told["answered"] + told["online"] - before == before


def test_a_batch_has_a_limit(index: pyfast.Index) -> None:
    with batch_server() as url:
        ask_all(20, index, "batch", url, llm_options={"max_calls": 8}, system="direct")
        assert counts(url)["batches"] == 3
        ask_all(20, index, "batch", url, llm_options={"max_mb": 0.0001}, system="direct")
        assert counts(url)["batches"] == 23


def test_a_batch_that_a_provider_refuses_stops_the_run_and_is_made_again(
    index: pyfast.Index, tmp_path: Path
) -> None:
    with batch_server("--most", 15) as url:
        with pytest.raises(LLMUnavailableError, match="too much at once"):
            ask_all(20, index, "batch", url, system="direct", run=tmp_path)
        done = ask_all(20, index, "batch", url, system="direct", run=tmp_path, llm_options={"max_calls": 15})
        assert done.status.states == {"answered": 20}
        assert counts(url)["statuses"] == ["failed", "completed", "completed"]


def test_a_complaint_about_a_field_is_heard(index: pyfast.Index) -> None:
    with batch_server("--complain") as url:
        online = ask_all(5, index, "openai", url, system="direct")
        assert same(ask_all(5, index, "batch", url, system="direct"), online)
        assert counts(url)["batches"] == 2


@pytest.mark.guarantee("G4")
def test_a_call_that_a_provider_refuses_fails_alone(index: pyfast.Index) -> None:
    with batch_server("--refuse", "(3)") as url:
        done = ask_all(5, index, "batch", url, system="direct")
        told = counts(url)
    assert [record.state for record in done.records] == ["answered"] * 3 + ["failed", "answered"]
    assert "not allowed" in str(done.records[3].reason)
    assert told["batches"] == 1 and told["custom_ids"] == 5  # no call of pyfast's own


def test_a_provider_that_is_down_is_not_one_without_a_list(index: pyfast.Index, tmp_path: Path) -> None:
    with batch_server("--list-down") as url, pytest.raises(OutageError, match="try later"):
        ask_all(1, index, "batch", url, system="direct", run=tmp_path)


@pytest.mark.parametrize("lack", ["--no-metadata", "--no-list"])
def test_a_provider_that_cannot_find_a_batch_again_is_refused(
    lack: str, index: pyfast.Index, tmp_path: Path
) -> None:
    with batch_server(lack, "--allow", 0) as url:
        with pytest.raises(InputError, match="--accept-duplicates"):
            ask_all(3, index, "batch", url, system="direct", run=tmp_path)
        assert not counts(url)["answered"]
        allow(url, 10)
        accept = {"accept_duplicates": True}
        done = ask_all(3, index, "batch", url, system="direct", run=tmp_path, llm_options=accept)
        assert done.status.states == {"answered": 3}


def test_a_reply_that_is_lost_is_looked_up(index: pyfast.Index) -> None:
    with batch_server("--cut", 2) as url:
        online = ask_all(10, index, "openai", url)
        assert same(ask_all(10, index, "batch", url), online)
        told = counts(url)
    assert told["accepted"] == told["batches"] == 4
    assert not told["custom_ids_twice"]


def test_a_run_may_change_between_online_and_batches(index: pyfast.Index, tmp_path: Path) -> None:
    with batch_server() as url:
        whole = ask_all(12, index, "openai", url)
        ask_all(12, index, "openai", url, run=tmp_path, limit=4)
        assert same(ask_all(12, index, "batch", url, run=tmp_path), whole)


def test_accept_duplicates_on_the_command_line(index: pyfast.Index, tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", 2)
    with batch_server("--no-list") as url:
        given = [questions, "--system", "direct", "--run", tmp_path / "run", "--accept-duplicates", "--llm"]
        done = command("answer", *given, f"batch:m@{url}", "--llm-option", "poll_s=0.05", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        refused = command("answer", *given, f"openai:m@{url}", cwd=tmp_path)
    assert "can only be used with --llm batch:" in refused.stderr


@pytest.mark.parametrize("spec", ["batch:m", "batch:m@ftp://host", "batch:m@http://user:secret@host"])
def test_a_spec_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(InputError) as refused:
        pyfast.open_llm(spec)
    assert "secret" not in str(refused.value)


def session(folder: Path, url: str, index: pyfast.Index, questions: Path, kind: str = "batch") -> Session:
    options = [f"--llm-option={name}={value}" for name, value in FAST.items()] if kind == "batch" else []
    given = [questions, "--index", index.folder, "--llm", f"{kind}:m@{url}", *options]
    return Session(folder, *given)


def write_questions(path: Path, number: int) -> Path:
    path.write_text("".join(f'{{"id": "q{i}", "question": "{TITAN} ({i})"}}\n' for i in range(number)))
    return path


def test_one_that_is_killed_between_a_request_and_its_reply_submits_nothing_twice(
    index: pyfast.Index, tmp_path: Path
) -> None:
    questions = write_questions(tmp_path / "q.jsonl", 10)
    with batch_server("--hold", 0.3, "--late-s", 0.2) as url:
        assert session(tmp_path / "online", url, index, questions, "openai").ended() == 0
        for aim in ("received", "accepted", "accepted"):
            before = counts(url)[aim]
            killed = session(tmp_path / "batch", url, index, questions)
            killed.until(lambda aim=aim, before=before: counts(url)[aim] > before)
            assert killed.process.is_alive(), killed.told
            killed.kill()
        last = session(tmp_path / "batch", url, index, questions)
        assert last.ended() == 0, last.told
        told = counts(url)
    assert told["batches"] == 4
    assert told["custom_ids"] == told["answered"] == told["online"]
    assert not told["custom_ids_twice"]
    assert answers(tmp_path / "batch") == answers(tmp_path / "online")


@pytest.mark.slow(suite="crashes")
@pytest.mark.guarantee("G1")
def test_a_thousand_questions_killed_twenty_times(index: pyfast.Index, tmp_path: Path) -> None:
    number, hops, kills = 1000, 4, 20
    questions = write_questions(tmp_path / "q.jsonl", number)
    chance = random.Random(26)
    with batch_server("--seconds", 0.5, "--hold", 0.5, "--late-s", 0.3, "--allow", 0) as url:
        assert session(tmp_path / "online", url, index, questions, "openai").ended(400) == 0
        for kill in range(kills):
            hop, nth = divmod(kill, kills // hops)
            aim = ("received", "accepted")[hop % 2]
            before = counts(url)[aim]
            allow(url, hop)
            killed = session(tmp_path / "batch", url, index, questions)
            if nth == 0:  # between the request for a batch and its reply
                killed.until(lambda aim=aim, before=before: counts(url)[aim] > before)
            else:
                time.sleep(chance.uniform(0.05, 1.5))
            assert killed.process.is_alive(), killed.told
            killed.kill()
        allow(url, hops)
        last = session(tmp_path / "batch", url, index, questions)
        assert last.ended(400) == 0, last.told
        told = counts(url)
    assert told["batches"] == hops
    assert told["custom_ids"] == told["answered"] == told["online"] == hops * number
    assert not told["custom_ids_twice"]
    assert answers(tmp_path / "batch") == answers(tmp_path / "online")
    assert traces(tmp_path / "batch") == traces(tmp_path / "online")
    assert re.search(r"\(\d+ from the journal\)", last.told)
