"""Real processes, really killed: every question is answered once, and next to nothing is paid for twice."""

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_server import allow, counts, hostile
from processes import Session
from runs import traces

from pyfast.corpus import read
from pyfast.engine import read_status
from pyfast.retrieval import build_index

pytestmark = pytest.mark.slow(suite="crashes")

QUESTIONS = 200
KILLS = 12  # two dozen, of every system, in test_kills.py
CONCURRENCY = 8
DELAY_MS = 30
SEED = 20
SYSTEM = ["--system", "n2n", "--concurrency", CONCURRENCY]
MOODS = "good=60,truncated=8,wrong=8,empty=4,busy=8,error=8,cut=6,length=4,filtered=3,unfinished=3,late=1,huge=0.3"
EVERY_FAILURE = "truncated=1,wrong=1,empty=1,error=1,cut=1,length=1,filtered=1,unfinished=1"


@pytest.fixture(scope="module")
def place(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index and questions."""
    folder = tmp_path_factory.mktemp("crashes")
    build_index(read([examples / "corpus"]), folder / "index")
    asked = [json.loads(line)["question"] for line in (examples / "questions.jsonl").read_text().splitlines()]
    lines = (json.dumps({"id": f"q{i}", "question": f"{asked[i % len(asked)]} ({i})"}) for i in range(QUESTIONS))
    (folder / "q.jsonl").write_text("\n".join(lines))
    return folder


def arguments(place: Path, url: str, *more: object) -> list[object]:
    llm = ["--llm", f"openai:hostile@{url}", "--llm-option", "backoff_s=0.01"]
    return [place / "q.jsonl", "--index", place / "index", *llm, *SYSTEM, *more]


def answers(folder: Path) -> bytes:
    return (folder / "answers.jsonl").read_bytes()


def states(folder: Path) -> Counter[str]:
    """Of a run that is done, after all that must be true of it."""
    records = [json.loads(line) for line in answers(folder).splitlines()]
    assert [record["id"] for record in records] == [f"q{i}" for i in range(QUESTIONS)]
    found = Counter(record["state"] for record in records)
    assert found.keys() <= {"answered", "abstained", "failed"}
    assert all(("reason" in record) == (record["state"] == "failed") for record in records)
    status = read_status(folder)
    assert status.states == found and status.ended == status.questions == QUESTIONS and not status.running
    return found


@pytest.fixture(scope="module")
def whole(place: Path) -> tuple[bytes, dict[str, Any]]:
    """The answers of a run that nothing happens to, and what its server was asked."""
    with hostile("--delay-ms", str(DELAY_MS)) as url:
        session = Session(place / "whole", *arguments(place, url))
        assert session.ended() == 0, session.told
        asked = counts(url)
    assert states(place / "whole") == {"answered": QUESTIONS}
    return answers(place / "whole"), asked


def finish(folder: Path, place: Path, url: str, *more: object) -> Session:
    session = Session(folder, *arguments(place, url, *more))
    assert session.ended() == 0, session.told
    return session


@pytest.mark.guarantee("G1")
def test_killed_again_and_again(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """SIGKILL at random moments: some while it starts, most while it works."""
    chance, folder, kills, at = random.Random(SEED), place / "killed", 0, []
    with hostile("--delay-ms", str(DELAY_MS)) as url:
        while kills < KILLS:
            # However slow this process is to kill it: the run is not done by then.
            allow(url, counts(url)["requests"] + 2 * whole[1]["requests"] // KILLS + 2 * CONCURRENCY)
            session = Session(folder, *arguments(place, url))
            if chance.random() < 0.2:
                time.sleep(chance.random() / 3)
            else:
                more = session.lines() + chance.randrange(1, QUESTIONS // KILLS)
                session.until(lambda session=session, more=more: session.lines() >= more)
                time.sleep(chance.random() * DELAY_MS / 1000)
            if not session.process.is_alive():
                break
            session.kill()
            kills += 1
            at.append(session.lines())
        allow(url, 10**6)
        finish(folder, place, url)
        asked = counts(url)
        finish(folder, place, url)  # a run that is done
        assert counts(url)["requests"] == asked["requests"]
    assert kills >= 10, f"it was done after {kills}"
    assert answers(folder) == whole[0] and traces(folder) == traces(place / "whole")
    assert states(folder) == {"answered": QUESTIONS}
    again = Counter(asked["bodies"]) - Counter(whole[1]["bodies"])
    tokens = asked["completion_tokens"] / whole[1]["completion_tokens"]
    print(
        f"\n{kills} kills, at {at} answers; {again.total()} of {whole[1]['requests']} calls asked again;"
        f" completion tokens {tokens:.3f} of one pass"
    )
    assert Counter(whole[1]["bodies"]) <= Counter(asked["bodies"])
    assert again.total() <= kills * CONCURRENCY
    most = max(Counter(asked["bodies"]).values())
    assert most <= 1 + kills
    assert asked["completion_tokens"] - whole[1]["completion_tokens"] <= kills * CONCURRENCY * 40


def test_a_server_that_fails_in_every_way(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """The run ends by itself, and what went well is as it would have been."""
    with hostile("--weights", MOODS, "--seed", str(SEED), "--late-s", "30", "--retry-after", "0.01") as url:
        options = ["--llm-option", "timeout_s=2", "--llm-option", "attempts=2", "--budget", "attempts=2"]
        session = finish(place / "moody", place, url, *options)
        modes = counts(url)["modes"]
    found = states(place / "moody")
    print(f"\n{dict(found)}; {modes}")
    assert min(found["answered"], found["failed"]) > 0
    assert all(modes[mode] for mode in ("truncated", "wrong", "empty", "busy", "error", "cut", "length"))
    assert f"{QUESTIONS} questions: " in session.told and "Traceback" not in session.told


@pytest.mark.guarantee("G4")
def test_neighbours_of_what_fails_are_unharmed(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """Where a call fails for good its question does, with these moods; all others are as they would have been."""
    with hostile("--weights", "good=9,error=1,empty=1,cut=1,huge=0.8", "--seed", str(SEED)) as url:
        finish(place / "neighbours", place, url, "--llm-option", "attempts=1")
    found = states(place / "neighbours")
    assert min(found["answered"], found["failed"]) > QUESTIONS // 10
    for line, clean in zip(answers(place / "neighbours").splitlines(), whole[0].splitlines(), strict=True):
        assert line == clean or json.loads(line)["state"] == "failed"


@pytest.mark.guarantee("G6")
def test_a_call_that_is_never_answered_ends(place: Path) -> None:
    with hostile("--weights", "good=9,late=1", "--late-s", "600", "--seed", "1") as url:
        finish(place / "late", place, url, "--budget", "call_seconds=1")
    found = states(place / "late")
    assert found["failed"] > 0 and found["answered"] > 0
    reasons = {json.loads(line).get("reason") for line in answers(place / "late").splitlines()}
    assert reasons == {None, "the LLM did not answer within 1 s"}


@pytest.mark.guarantee("G1")
def test_killed_with_a_server_that_fails(place: Path) -> None:
    """Failures of a call are journalled too: each question ends once, whatever happens to the process."""
    chance, folder = random.Random(SEED), place / "killed-moody"
    with hostile("--weights", MOODS.replace(",late=1", ""), "--seed", "5", "--retry-after", "0.01") as url:
        for _ in range(5):
            session = Session(folder, *arguments(place, url))
            more = session.lines() + chance.randrange(1, QUESTIONS // 6)
            session.until(lambda session=session, more=more: session.lines() >= more)
            written = answers(folder)
            session.kill()
            assert answers(folder).startswith(written)
        finish(folder, place, url)
    assert states(folder)["failed"] > 0


def test_when_everything_fails_the_command_does(place: Path) -> None:
    with hostile("--weights", "wrong=1") as url:
        options = ["--budget", "attempts=1"]
        session = Session(place / "failed", *arguments(place, url, *options))
        assert session.ended() == 1
        assert "pyfast: every question failed; the first reason was: " in session.told
        assert states(place / "failed") == {"failed": QUESTIONS}
        session = Session(place / "few", *arguments(place, url, *options, "--max-failures", "5%"))
        assert session.ended() == 1
        told = session.told.splitlines()
    assert len(told) == 1 and told[0].startswith("pyfast: more than 10 questions failed; the first reason was: ")
    with hostile() as url:
        again = [*options, "--max-failures", "50%", "--retry-failed"]
        finish(place / "few", place, url, *again)
        # A question whose useless reply came while the run ended had not failed yet: it does when it is resumed.
        assert states(place / "few").get("failed", 0) <= CONCURRENCY
        finish(place / "few", place, url, *again)
    assert states(place / "few") == {"answered": QUESTIONS}


@pytest.mark.guarantee("G7")
def test_a_server_that_dies(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """It is not waited for here: one line, and the same run resumes with a server elsewhere."""
    folder, at_once = place / "orphaned", ("--outage", 0)
    for _ in range(2):
        with hostile("--delay-ms", str(DELAY_MS)) as url:
            session = Session(folder, *arguments(place, url, *at_once))
            more = session.lines() + QUESTIONS // 4
            session.until(lambda session=session, more=more: session.lines() >= more)
        assert session.ended() == 1
        told = [line for line in session.told.splitlines() if "continuing" not in line]
        assert len(told) == 1, session.told
        assert "nothing answers any longer at" in told[0] and f"the same command resumes {folder}" in told[0]
        session = Session(folder, *arguments(place, url, *at_once))  # still dead
        assert session.ended() == 1 and "is the server up?" in session.told
        assert session.told.count("\n") == 1
    with hostile() as url:
        finish(folder, place, url)
    assert answers(folder) == whole[0] and traces(folder) == traces(place / "whole")
    assert states(folder) == {"answered": QUESTIONS}


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can be made by root alone")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """One line reports it, at the beginning and midway; when there is space again, the same command continues."""
    disk = place / "disk"
    with small_disk(disk, "8m"), hostile() as url:
        folder, filler = disk / "run", disk / "filler"
        for room in (0, 4096, 30_000, 200_000, 600_000, 600_000):
            free = shutil.disk_usage(disk).free
            filler.write_bytes(bytes(max(free - room, 0)))
            session = Session(folder, *arguments(place, url))
            status = session.ended()
            told = [line for line in session.told.splitlines() if "continuing" not in line]
            filler.unlink()
            assert status == 1 and len(told) == 1, session.told
            assert "No space left" in told[0] or "full" in told[0] or "disk I/O" in told[0], told
            assert not list(folder.glob("*damaged*"))
        asked = counts(url)
        written = session.lines()
        finish(folder, place, url)
        assert (
            answers(folder) == whole[0]
            and traces(folder) == traces(place / "whole")
            and states(folder) == {"answered": QUESTIONS}
        )
        again = Counter(counts(url)["bodies"]) - Counter(whole[1]["bodies"])
        print(f"\n{written} answers fit; {asked['requests']} calls until then, {again.total()} asked again")
        assert again.total() <= 6 * CONCURRENCY and written > 0


def no_room() -> None:
    """No file may grow beyond 100 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_files_that_may_not_grow(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    folder = place / "limited"
    with hostile() as url:
        session = Session(folder, *arguments(place, url), prepare=no_room)
        assert session.ended() == 1 and session.told.count("\n") == 1, session.told
        assert "the same command resumes" in session.told
        finish(folder, place, url)
    assert (
        answers(folder) == whole[0]
        and traces(folder) == traces(place / "whole")
        and states(folder) == {"answered": QUESTIONS}
    )


def test_a_journal_that_is_damaged_between_sessions(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    """It resumes with what can be read; what is answered is never asked again."""
    chance, folder, salvaged = random.Random(SEED), place / "damaged", 0
    with hostile() as url:
        for damage in ("truncate", "garbage", "truncate", "no database", "truncate"):
            session = Session(folder, *arguments(place, url))
            more = session.lines() + QUESTIONS // 8
            session.until(lambda session=session, more=more: session.lines() >= more)
            session.kill()
            for journal in sorted(folder.glob("journal.sqlite*")):
                content = journal.read_bytes()
                if "damaged" in journal.name:
                    continue
                if damage == "truncate" and content:
                    journal.write_bytes(content[: chance.randrange(len(content))])
                elif damage == "garbage" and journal.name == "journal.sqlite":
                    at = chance.randrange(len(content) or 1)
                    journal.write_bytes(content[:at] + chance.randbytes(5000) + content[at + 5000 :])
                elif damage == "no database" and journal.name == "journal.sqlite":
                    journal.write_bytes(b"x" * 5000)
            session = Session(folder, *arguments(place, url))
            more = session.lines() + QUESTIONS // 20
            session.until(lambda session=session, more=more: session.lines() >= more)
            session.kill()
            salvaged += "the journal was damaged" in session.told
        finish(folder, place, url)
        requests = counts(url)["requests"]
        (folder / "journal.sqlite").write_bytes(b"x" * 5000)
        session = finish(folder, place, url)
        assert "all questions were already finished" in session.told and "the journal was damaged" in session.told
        assert counts(url)["requests"] == requests
    assert answers(folder) == whole[0] and traces(folder) == traces(place / "whole")
    assert states(folder) == {"answered": QUESTIONS}
    print(f"\n{salvaged} times salvaged; {requests} calls in place of {whole[1]['requests']}")
    assert requests < 3 * whole[1]["requests"]


def test_two_processes_on_one_run(place: Path, whole: tuple[bytes, dict[str, Any]]) -> None:
    folder = place / "shared"
    with hostile("--allow", str(whole[1]["requests"] // 2)) as url:  # three others are to find it at work
        first = Session(folder, *arguments(place, url))
        first.until(lambda: first.lines() > 20)
        for option in ([], ["--restart"], ["--retry-failed"]):
            second = Session(folder, *arguments(place, url, *option))
            assert second.ended() == 1 and second.told.count("\n") == 1
            assert "another process is working on the run" in second.told
        allow(url, 10**6)
        assert first.ended() == 0
        assert counts(url)["requests"] == whole[1]["requests"]
    assert (
        answers(folder) == whole[0]
        and traces(folder) == traces(place / "whole")
        and states(folder) == {"answered": QUESTIONS}
    )


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_finishes_what_is_in_work(
    place: Path, whole: tuple[bytes, dict[str, Any]], sent: signal.Signals
) -> None:
    folder = place / f"stopped-{sent}"
    with hostile("--allow", str(whole[1]["requests"] // 2)) as url:
        session = Session(folder, *arguments(place, url))
        session.until(lambda: session.lines() > 10)
        session.send(sent)
        session.until(lambda: "finishing" in session.told)
        allow(url, 10**6)
        assert session.ended() == 130
        told = session.told.splitlines()
        assert told[0] == "pyfast: finishing the questions in progress; press Ctrl-C again to stop at once"
        assert told[1] == f"pyfast: stopped; the same command resumes {folder}" and len(told) == 2
        written = answers(folder)
        assert whole[0].startswith(written) and 10 < session.lines() < QUESTIONS  # in order, without a gap
        assert len(set(written.splitlines())) == session.lines()
        finish(folder, place, url)
        assert counts(url)["bodies"] == whole[1]["bodies"]  # nothing was asked twice
    assert (
        answers(folder) == whole[0]
        and traces(folder) == traces(place / "whole")
        and states(folder) == {"answered": QUESTIONS}
    )


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_asked_twice_it_stops_at_once(
    place: Path, whole: tuple[bytes, dict[str, Any]], sent: signal.Signals
) -> None:
    """Also where the server never answers."""
    folder = place / f"stopped-twice-{sent}"
    with hostile("--weights", "good=9,late=1", "--late-s", "600", "--seed", "1") as url:
        session = Session(folder, *arguments(place, url))
        before = -1
        while before != session.lines() or before < 1:  # until nothing moves any more
            before = session.lines()
            time.sleep(0.5)
            assert session.process.is_alive(), session.told
        session.send(sent)
        session.until(lambda: "finishing the questions in progress" in session.told)
        time.sleep(0.2)
        assert session.process.is_alive()
        session.send(sent)
        asked = time.monotonic()
        assert session.ended() == 130
        assert time.monotonic() - asked < 30
        assert "Traceback" not in session.told and "the same command resumes" in session.told
    with hostile() as url:
        finish(folder, place, url)
    assert (
        answers(folder) == whole[0]
        and traces(folder) == traces(place / "whole")
        and states(folder) == {"answered": QUESTIONS}
    )


def test_asked_to_stop_while_the_server_is_awaited(place: Path) -> None:
    """Before anything is answered, once is enough."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        session = Session(place / "early", *arguments(place, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(4) == b"GET "
            session.send(signal.SIGINT)
            assert session.ended() == 130
    assert session.told.count("\n") == 1 and "pyfast: stopped" in session.told


def test_asked_twice_while_the_embedded_model_works(place: Path) -> None:
    pytest.importorskip("xllamacpp")
    options = ["--system", "direct", "--llm", "embedded"]
    session = Session(place / "embedded", place / "q.jsonl", *options)
    session.until(lambda: session.lines() > 0)
    for words in ("finishing the questions in progress", "the same command resumes"):
        asked = time.monotonic()
        session.send(signal.SIGINT)
        session.until(lambda words=words: words in session.told)
    assert session.ended() == 130
    assert time.monotonic() - asked < 30 and "Traceback" not in session.told
    assert session.lines() < QUESTIONS
