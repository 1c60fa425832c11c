"""`pyfast answer --ray local` as real processes that are killed, stopped and resumed.

Run by test_ray.py in an environment that has Ray.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from grouped import grouped  # noqa: E402
from hostile_server import allow, counts, hostile  # noqa: E402
from runs import answers, traces  # noqa: E402

import pyfast  # noqa: E402
from pyfast.engine.distributed.blocks import read_lease  # noqa: E402
from pyfast.retrieval.vectors import passage_vectors  # noqa: E402

QUESTIONS, CONCURRENCY, WORKERS = 240, 4, 2
IN_FLIGHT = CONCURRENCY + CONCURRENCY // 2  # of a worker, while it begins a block before the last one is done
PATIENCE_S = 240.0
TOKEN = "PYFAST_TEST_RUN"


class Command:
    """`pyfast answer`, perhaps with workers. Its processes carry the run's name in their environment."""

    def __init__(
        self,
        run: Path,
        *arguments: object,
        ray: bool = True,
        before: Sequence[str] = (),
        environment: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
    ) -> None:
        self.run = run
        self.log = run.with_suffix(".log")
        given = ["answer", run.parent / "q.jsonl", "--run", run, *arguments]
        given += ["--ray", "local", "--workers", WORKERS] if ray else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-P", "-m", "pyfast", *map(str, given)],
                cwd=cwd,
                env={**environment, TOKEN: str(run)},
                stdout=log,
                stderr=log,
            )

    def ended(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.log.read_text()) from None

    def kill(self) -> None:
        """Kill the process that has the workers, and wait until none of the others is left."""
        self.process.kill()
        self.process.wait()
        until(lambda: not self.processes(), self)

    def processes(self) -> set[int]:
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                alive = path.with_name("stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if alive and f"{TOKEN}={self.run}\0".encode() in path.read_bytes():
                    found.add(int(path.parent.name))
            except OSError:
                pass
        return found

    def workers(self) -> list[int]:
        """The processes that have blocks."""
        leases = map(read_lease, (self.run / "blocks").glob("*-*"))
        return sorted({int(lease.holder.split()[1]) for lease in leases if lease is not None and lease.holder})


def until(reached: Callable[[], object], command: Command) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, command.log.read_text()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions, single and in conversations, about an index; answered by one process."""
    folder = tmp_path_factory.mktemp("ray")
    examples = HERE.parents[1] / "examples"
    pyfast.build_index(examples / "corpus", folder / "index")
    asked = [json.loads(line)["question"] for line in (examples / "questions.jsonl").read_text().splitlines()]
    lines, number = [], 0
    while number < QUESTIONS:
        turns = [
            {"id": f"q{i}", "question": f"{asked[i % len(asked)]} ({i})"}
            for i in range(number, number + (3 if number % 5 == 0 else 1))
        ]
        lines.append(json.dumps(turns[0] if len(turns) == 1 else {"id": f"c{number}", "turns": turns}))
        number += len(turns)
    (folder / "q.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def options(place: Path) -> list[object]:
    return ["--index", place / "index", "--system", "n2n", "--follow-ups", "resolve", "--concurrency", CONCURRENCY]


@pytest.fixture(scope="module")
def whole(place: Path, options: list[object]) -> tuple[Path, int]:
    """What one process writes, and how many calls it makes."""
    with hostile() as url:
        command = Command(place / "whole", *options, "--llm", f"openai:hostile@{url}", ray=False)
        assert command.ended() == 0, command.log.read_text()
        return place / "whole", counts(url)["requests"]


@pytest.fixture
def server() -> Iterator[str]:
    with hostile() as url:
        yield url


def check(command: Command, whole: Path) -> None:
    """The run is the one of a single process, and nothing of its blocks is left."""
    assert answers(command.run) == answers(whole) and traces(command.run) == traces(whole)
    assert pyfast.verify(command.run).passed
    ours, theirs = pyfast.Run(command.run), pyfast.Run(whole)
    assert ours.status.states == theirs.status.states
    assert (ours.status.llm_calls, ours.status.running) == (theirs.status.llm_calls, False)
    for record in ours.records[::29]:
        calls = [sorted(run.prompts(record.id), key=str) for run in (ours, theirs)]
        assert calls[0] == calls[1] and calls[0]
    assert not (command.run / "blocks").exists() and not (command.run / "progress.json").exists()


def test_two_workers_write_what_one_process_writes(place, options, whole, server) -> None:  # type: ignore[no-untyped-def]
    command = Command(place / "two", *options, "--llm", f"openai:hostile@{server}")
    until(lambda: (command.run / "progress.json").exists() or command.process.poll() is not None, command)
    if command.process.poll() is None:
        status = pyfast.Run(command.run).status
        assert status.running and status.questions == QUESTIONS
    assert command.ended() == 0, command.log.read_text()
    check(command, whole[0])
    assert counts(server)["requests"] == whole[1]
    assert command.processes() == set()


def test_workers_that_are_killed_or_hang_lose_nothing(place, options, whole, server) -> None:  # type: ignore[no-untyped-def]
    """What is asked again is at most what the two had in progress."""
    allow(server, whole[1] // 4)
    command = Command(place / "workers", *options, "--llm", f"openai:hostile@{server}")
    until(lambda: counts(server)["requests"] > whole[1] // 4, command)
    until(lambda: len(command.workers()) == WORKERS, command)
    os.kill(command.workers()[0], signal.SIGKILL)
    allow(server, whole[1] // 2)
    until(lambda: counts(server)["requests"] > whole[1] // 2, command)
    stopped = command.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    allow(server, 10**9)
    assert command.ended() == 0, command.log.read_text()
    check(command, whole[0])
    assert 0 <= counts(server)["requests"] - whole[1] <= 2 * IN_FLIGHT
    until(lambda: not command.processes(), command)


def test_the_same_command_resumes_a_run_whose_cluster_was_killed(place, options, whole, server) -> None:  # type: ignore[no-untyped-def]
    given = [*options, "--llm", f"openai:hostile@{server}"]
    asked = 0
    for part in (5, 2):
        allow(server, asked := whole[1] // part)
        command = Command(place / "driver", *given)
        until(lambda asked=asked: counts(server)["requests"] > asked, command)
        command.kill()
        status = pyfast.Run(command.run).status
        assert status.questions == QUESTIONS
    allow(server, 10**9)
    command = Command(place / "driver", *given)
    assert command.ended() == 0, command.log.read_text()
    check(command, whole[0])
    assert 0 <= counts(server)["requests"] - whole[1] <= 2 * WORKERS * IN_FLIGHT


def test_ctrl_c_finishes_the_questions_in_progress(place, options, whole, server) -> None:  # type: ignore[no-untyped-def]
    allow(server, whole[1] // 3)
    command = Command(place / "stopped", *options, "--llm", f"openai:hostile@{server}")
    until(lambda: counts(server)["requests"] > whole[1] // 3, command)
    command.process.send_signal(signal.SIGINT)
    until(lambda: "finishing the questions in progress" in command.log.read_text(), command)
    allow(server, 10**9)
    assert command.ended() == 130, command.log.read_text()
    assert counts(server)["requests"] < whole[1]
    again = Command(place / "stopped", *options, "--llm", f"openai:hostile@{server}")
    assert again.ended() == 0, again.log.read_text()
    check(again, whole[0])
    assert counts(server)["requests"] == whole[1]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_workers_encode_what_one_process_encodes(  # type: ignore[no-untyped-def]
    place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is killed while it encodes."""
    monkeypatch.setattr(passage_vectors, "_PASSAGES", 4)
    monkeypatch.setenv(TOKEN, str(tmp_path))
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    is_ours = f"{TOKEN}={tmp_path}\0".encode() in path.with_name("environ").read_bytes()
                    if is_ours and path.read_bytes().startswith(b"ray::call"):
                        killed.append(int(path.parent.name))
                        os.kill(killed[0], signal.SIGKILL)
                        return
            time.sleep(0.05)

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    corpus = HERE.parents[1] / "examples" / "corpus"
    pyfast.build_index(corpus, tmp_path / "two", vectors="late", cluster=pyfast.Cluster("local", workers=WORKERS))
    killing.join(1)
    assert killed
    pyfast.build_index(corpus, tmp_path / "one", vectors="late")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_workers_read_the_graph_that_one_process_reads(place, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    graphs = []
    for name, options in (("one", {}), ("two", {"ray": "local", "workers": WORKERS})):
        shutil.copytree(place / "index", tmp_path / name)
        graph = pyfast.build_knowledge(tmp_path / name, "instant", **grouped(**options))
        graphs.append((graph.fingerprint, len(graph), [one["calls"] for one in graph.extractions]))
    assert graphs[0] == graphs[1] and graphs[0][2][0] > 1


def test_runs_of_an_experiment_side_by_side(place, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "data" / "moons"
    folder.mkdir(parents=True)
    titan = {"kind": "text", "id": "titan", "title": "Titan", "text": "Titan is the largest moon of Saturn."}
    (folder / "corpus.jsonl").write_text(json.dumps(titan) + "\n")
    asked = ({"id": f"q{i}", "question": f"Which moon is number {i}?", "answers": ["Titan"]} for i in range(20))
    (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    rows = [{"name": "RAG", "system": "rag"}, {"name": "alone", "system": "direct"}]
    plan = {"sets": ["moons"], "rows": rows, "models": {"instant": {"llm": "instant"}}}
    heard: list[tuple[int, int]] = []
    for name, options in (
        ("one", {}),
        ("two", {"ray": "local", "workers": WORKERS, "on_event": lambda it: heard.append((it.done, it.total))}),
    ):
        pyfast.experiment(plan, tmp_path / "data", tmp_path / name, **grouped(**options))
    for row in ("RAG", "alone"):
        one, two = (tmp_path / name / "runs" / "moons" / row / "instant" / "seed-0" for name in ("one", "two"))
        assert answers(one) == answers(two) and traces(one) == traces(two)
    assert heard[-1][1] == 40


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with another pyfast, which cannot be imported, and a module of the user."""
    (tmp_path / "pyfast").mkdir()
    (tmp_path / "pyfast" / "__init__.py").write_text('raise RuntimeError("another pyfast")')
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "Who?"}')
    return tmp_path


def test_workers_import_the_package_of_the_command(elsewhere: Path) -> None:
    (elsewhere / "own.py").write_text("from pyfast.systems.direct import SYSTEM")
    command = Command(elsewhere / "run", "--system", "own:SYSTEM", "--llm", "instant", cwd=elsewhere)
    assert command.ended() == 0, command.log.read_text()
    corpus = HERE.parents[1] / "examples" / "corpus"
    index = ["index", corpus, "--out", "index", "--vectors", "late", "--ray", "local", "--workers", "1"]
    subprocess.run([sys.executable, "-P", "-m", "pyfast", *map(str, index)], cwd=elsewhere, check=True)


STARTED = "5 workers died while starting: they may lack memory, or a model may be faulty. The last one: "
ENDS = {
    'raise RuntimeError("broken")': ("a worker failed: RuntimeError('broken')", ""),
    'sys.exit("broken")': (STARTED, "exit code broken. Its log: "),
    "os.kill(os.getpid(), 9)": (STARTED, "Worker unexpectedly exits"),
}


@pytest.mark.parametrize("ends", ENDS)
def test_what_ends_workers_is_told(ends: str, elsewhere: Path) -> None:
    lines = f"import os, sys\nif 'default_worker' in sys.argv[0]: {ends}\nfrom pyfast.systems.direct import SYSTEM"
    (elsewhere / "own.py").write_text(lines)
    command = Command(elsewhere / "run", "--system", "own:SYSTEM", "--llm", "instant", cwd=elsewhere)
    assert command.ended() == 1
    told = command.log.read_text().splitlines()[-1]
    assert told.startswith("pyfast: ") and all(part in told for part in ENDS[ends]), told


def test_a_worker_that_this_machine_has_no_room_for_is_refused(place) -> None:  # type: ignore[no-untyped-def]
    command = Command(place / "gpus", "--system", "direct", "--llm", "instant", "--worker-resources", "GPU=9")
    assert command.ended() == 1
    assert "worker_resources: this machine does not have CPU=1, GPU=9" in command.log.read_text()


def test_the_estimate_is_within_a_fifth_of_real_runs(place) -> None:  # type: ignore[no-untyped-def]
    """An earlier run of one process, against runs of one and of two workers with the same model."""

    def answering_s(run: Path) -> float:
        with closing(sqlite3.connect(run / "journal.sqlite")) as journal:
            ledgers = [json.loads(text) for (text,) in journal.execute("SELECT ledger FROM questions")]
        return max(one["started"] + one["seconds"] for one in ledgers) - min(one["started"] for one in ledgers)

    with hostile("--delay-ms", "500") as url:
        given = ["--system", "direct", "--llm", f"openai:hostile@{url}", "--concurrency", CONCURRENCY]
        earlier = Command(place / "earlier", *given, "--limit", 80, ray=False)
        assert earlier.ended() == 0, earlier.log.read_text()
        for workers in (1, 2):
            local = ["--ray", "local", "--workers", workers]
            command = Command(place / f"estimated-{workers}", *given, *local, ray=False)
            assert command.ended() == 0, command.log.read_text()
            expected = pyfast.estimate(QUESTIONS, system="direct", based_on=earlier.run, workers=workers)
            assert expected.hours is not None
            real = answering_s(command.run)
            print(f"{workers} workers: {3600 * expected.hours.value:.1f} s expected, {real:.1f} s")
            assert 3600 * expected.hours.value == pytest.approx(real, rel=0.2)
            again = pyfast.estimate(QUESTIONS, system="direct", based_on=command.run, workers=workers)
            assert again.hours is not None and 3600 * again.hours.value == pytest.approx(real, rel=0.2)
