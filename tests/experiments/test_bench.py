"""Latency under load: a server with known service times against a simulation of the same arrivals."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from grouped import grouped
from typer.testing import CliRunner

import pyfast
from pyfast.api.experiments.load import STAGES, Sample, arrival_times, figures, read_trace
from pyfast.commands.cli import app
from pyfast.engine.journal.journal import Journal
from pyfast.errors import InputError

SERVER = Path(__file__).with_name("service_server.py")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, SERVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield f"openai:m@http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()


def queue(arrivals: list[float], services: list[float], places: int) -> list[float]:
    """The latency of each, first come first served at so many places: a simulation of its own."""
    free = [0.0] * places
    latencies = []
    for arrival, service in zip(arrivals, services, strict=True):
        start = max(arrival, heapq.heappop(free))
        heapq.heappush(free, start + service)
        latencies.append(start + service - arrival)
    return latencies


def served(count: int, mean: float, places: int, seed: int) -> tuple[list[str], list[float]]:
    """Questions with the service times that they name."""
    micro = (np.random.default_rng(seed).gamma(2.0, mean / 2, count) * 1e6).astype(int).tolist()
    asked = [f"Question {i}: wait {us} us in {places} places" for i, us in enumerate(micro)]
    return asked, [us / 1e6 for us in micro]


def against_simulation(
    url: str, count: int, load: float, places: int, mean: float, concurrency: int
) -> list[tuple[float, float, float]]:
    """(measured, simulated, simulated without a queue) p50, p95 and p99 in milliseconds, of Poisson arrivals.

    The server has `places`, so that `load` is a share of what it can do. With a `concurrency` of as many, the
    engine is the queue, and what it adds to each question counts as service.
    """
    asked, services = served(count, mean, places, 7)
    rate = load * places / mean
    load, at_once = pyfast.Load(rates=[rate], count=count, repeats=1, warm_up=50, seed=3), concurrency
    result = pyfast.bench(
        asked, load, llm=url, llm_options={"concurrency": at_once}, system="direct", concurrency=at_once
    )
    due = arrival_times("poisson", rate, count, 3).tolist()
    expected, alone = 1e3 * np.array(queue(due, services, places)), 1e3 * np.array(services)
    assert result.loads[0]["completed"] == count
    return [
        (result.loads[0][f"p{p}_e2el_ms"], float(np.percentile(expected, p)), float(np.percentile(alone, p)))
        for p in (50, 95, 99)
    ]


def test_percentiles_are_those_of_a_simulation(url: str) -> None:
    for (measured, simulated, _), share in zip(
        against_simulation(url, 250, 0.8, 32, 0.4, 32), (0.08, 0.12, 0.15), strict=True
    ):
        assert measured == pytest.approx(simulated, rel=share)


@pytest.mark.slow(suite="latency")
@pytest.mark.parametrize(("load", "places", "mean"), [(0.5, 64, 0.8), (0.9, 20, 0.4)])
def test_twenty_thousand_requests(url: str, load: float, places: int, mean: float) -> None:
    """At 90 % half of the questions wait: who leaves the queue out is wrong by far more than 5 %.

    With more places the same load has hardly a queue: of 128, a sixth of the questions wait, for a hundredth of
    their service. Services are long, so that what a busy machine adds to each is small beside them.
    """
    compared = against_simulation(url, 20_000, load, places, mean, 1024)
    print(compared)
    for (measured, simulated, _), share in zip(compared, (0.05, 0.05, 0.10), strict=True):
        assert measured == pytest.approx(simulated, rel=share)
    if load == 0.9:
        _, simulated, alone = compared[0]
        assert alone < 0.85 * simulated


def test_a_stall_shows_in_an_open_loop(url: str) -> None:
    """A second in which nothing is answered delays all questions that are due in it, not the one alone."""
    asked = [f"Question {i}: wait 5000 us" for i in range(120)]
    asked[60] += ", stall 1000 ms"
    opened = pyfast.bench(
        asked, pyfast.Load(rates=[40.0], arrivals="constant", count=120, repeats=1), llm=url, system="direct"
    )
    latencies = np.array(opened.loads[0]["each"][0]["e2els"])
    assert opened.loads[0]["p50_e2el_ms"] < 250 and opened.loads[0]["p99_e2el_ms"] > 800
    assert 24 <= np.count_nonzero(latencies > 300) <= 40  # 40 were due in that second, 28 of them in its first 0.7
    closed = pyfast.bench(asked, pyfast.Load(clients=[1], count=120, repeats=1), llm=url, system="direct")
    assert closed.loads[0]["p99_e2el_ms"] < 300  # one client sees one slow question: what an open loop is for


@pytest.mark.parametrize(
    ("arrivals", "burstiness", "variation"),
    [("constant", 1.0, 0.0), ("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)],
)
def test_arrivals_have_their_rate_and_variation(arrivals: Any, burstiness: float, variation: float) -> None:
    times = arrival_times(arrivals, 50.0, 40_000, 11, burstiness)
    gaps = np.diff(times)
    assert times[0] == 0.0 and (gaps >= 0).all()
    assert len(gaps) / times[-1] == pytest.approx(50.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03, abs=1e-9)
    assert (times == arrival_times(arrivals, 50.0, 40_000, 11, burstiness)).all()
    assert arrivals == "constant" or (times != arrival_times(arrivals, 50.0, 40_000, 12, burstiness)).any()


def test_a_trace_of_arrivals(url: str, tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text("10\n10.05\n10.05\n10.4\n", encoding="utf-8")
    result = pyfast.bench(
        ["wait 1000 us"], pyfast.Load(trace=path, repeats=2, warm_up=2), llm=url, system="direct"
    )
    load = result.loads[0]
    assert load["completed"] == 4 and 0.4 < load["duration"] < 1.0
    assert read_trace(path).tolist() == pytest.approx([0.0, 0.05, 0.05, 0.4])


def test_stages_add_up_and_tokens_are_counted(url: str, small: pyfast.Index) -> None:
    asked = ["Which moon is it? wait 20000 us", "Who discovered Titan? wait 20000 us"]
    load = pyfast.bench(
        asked, pyfast.Load(clients=[4], count=40, repeats=2), index=small, llm=url, system="rag"
    ).loads[0]
    means = {stage: load["stages"][stage]["mean_e2el_ms"] for stage in STAGES}
    assert sum(means.values()) == pytest.approx(load["mean_e2el_ms"], rel=0.05)
    assert means["llm"] > 18 and means["retrieval"] > 0 and means["graph"] == means["journal"] == 0
    assert load["llm_calls"] == 40 and load["total_input_tokens"] == 40 * 40
    assert load["total_cached_tokens"] == 40 * 8 and load["total_output_tokens"] == 40 * 5


def test_the_journal_is_a_stage(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of its commits: a disk that takes 50 ms adds as much to a question of one call."""
    commit = Journal.commit
    monkeypatch.setattr(Journal, "commit", lambda *given: (time.sleep(0.05), commit(*given)))
    load = pyfast.bench(
        ["wait 1000 us"],
        pyfast.Load(clients=[1], count=20, repeats=1),
        llm=url,
        system="direct",
        journal=True,
        out=tmp_path,
    ).loads[0]
    assert load["completed"] == 20 and 50 <= load["stages"]["journal"]["p50_e2el_ms"] < 150
    assert load["p50_e2el_ms"] >= load["stages"]["journal"]["p50_e2el_ms"]
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.png"}  # the journal is gone


def test_failures_are_counted_and_have_no_latency() -> None:
    stages = dict.fromkeys(STAGES, 0.1)
    samples = [Sample(0.1 * i, 0.5, stages, state, 1, 2, 0, 1)
               for i, state in enumerate(["answered", "failed", "abstained", "answered"])]  # fmt: skip
    numbers = figures(samples, 0.4)
    assert (numbers["completed"], numbers["failed"], numbers["request_goodput"]) == (3, 1, 0.0)
    assert numbers["mean_e2el_ms"] == pytest.approx(500) and numbers["duration"] == pytest.approx(0.8)


def test_the_sweep_finds_saturation(url: str) -> None:
    """Eight places of 60 ms answer 133 questions a second, and no more."""
    asked = ["wait 60000 us"]
    result = pyfast.bench(
        asked, pyfast.Load(sweep=True, count=32, repeats=1, warm_up=8), llm=url, system="direct", concurrency=8
    )
    assert result.saturation == pytest.approx(133, rel=0.25)
    assert [load["load"] for load in result.loads[-4:]] == [f"{n}% of saturation" for n in (50, 70, 80, 90)]


def test_several_systems_get_the_same_loads(
    url: str, small: pyfast.Index, caplog: pytest.LogCaptureFixture
) -> None:
    load = pyfast.Load(clients=[1, 4], count=8, repeats=2, warm_up=1)
    given: dict[str, Any] = {"index": small, "llm": url}
    with caplog.at_level("INFO", "pyfast"):
        both = pyfast.bench(["Who? wait 9000 us"], load, system=["direct", "rag"], **given)
    assert {"measuring rag, 1 client", "measuring rag, 4 clients"} <= {*caplog.messages}
    names = [f"{system}, {n} clients" for system in ("direct", "rag") for n in (1, 4)]
    assert [one["load"] for one in both.loads] == names and both.about["system"] == "direct, rag"
    alone = pyfast.bench(["Who? wait 9000 us"], load, system="rag", **given)
    for one, same in zip(both.loads[2:], alone.loads, strict=True):
        assert one["load"] == f"rag, {same['load']}" and one["stages"]["retrieval"]["mean_e2el_ms"] > 0
        assert (one["llm_calls"], one["total_input_tokens"]) == (same["llm_calls"], same["total_input_tokens"])
    assert both.loads[0]["stages"]["retrieval"]["mean_e2el_ms"] == 0 and both.loads[0]["p50_e2el_ms"] > 9
    assert len(both.compare(both.as_json())) == len(alone.compare(alone.as_json())) * 2
    for one, other, said in ((both, alone, "rag, 1 clients"), (alone, both, "1 clients")):
        changes = one.compare(other.as_json())
        assert changes[0].load == said and len(changes) == len(alone.compare(alone.as_json()))
    assert "differ in their setup" not in caplog.text
    direct = pyfast.bench(["Who? wait 9000 us"], load, system="direct", **given)
    assert len(direct.compare(alone.as_json())) == len(changes)
    assert "the two measurements differ in their setup: system was rag and is now direct" in caplog.text
    caplog.clear()
    fewer = pyfast.bench(["Who? wait 9000 us"], load, system="rag", settings={"k": 2}, **given)
    fewer.compare({**alone.as_json(), "corpus": "another"})
    assert [one.partition(": ")[2] for one in caplog.messages if "differ in their setup" in one] == [
        "settings was {} and is now {'k': 2}",
        f"corpus was another and is now {fewer.about['corpus']}",
    ]
    for systems, sweep in (([], False), (["rag", "rag"], False), (["rag", "direct"], True)):
        with pytest.raises(InputError, match="system: expected one system"):
            pyfast.bench(["?"], pyfast.Load(clients=[1], sweep=sweep), system=systems, **given)


def test_a_system_of_a_module() -> None:
    """Its name stays as it was given, in the names of loads too."""
    load, names = pyfast.Load(clients=[2], count=4, repeats=1), ["echo_system:SYSTEM", "direct"]
    result = pyfast.bench(["Who?"], load, llm="instant", system=names)
    assert [one["load"] for one in result.loads] == [f"{name}, 2 clients" for name in names]
    assert [one["completed"] for one in result.loads] == [4, 4]


def test_files_and_the_command(url: str, tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "a", "question": "wait 3000 us"}\n{"id": "b", "question": "wait 4000 us"}\n')
    command = [
        "bench",
        questions,
        "--system",
        "direct",
        "--llm",
        url,
        "--clients",
        "2",
        "--rate",
        "50",
        "--count",
        "20",
    ]
    first = CliRunner().invoke(app, [*map(str, command), "--out", str(tmp_path / "A")])
    assert first.exit_code == 0 and "p99" in first.stdout and "2 clients" in first.stdout, first.output
    written = json.loads((tmp_path / "A" / "bench.json").read_text())
    keys = [
        "duration",
        "completed",
        "total_input_tokens",
        "request_throughput",
        "mean_e2el_ms",
        "median_e2el_ms",
        "p99_e2el_ms",
    ]
    assert written["model_id"].startswith("openai:m@") and written["system"] == "direct"
    assert set(keys) <= set(written["loads"][0]) and len(written["loads"][0]["each"]) == 3
    assert (tmp_path / "A" / "bench.png").read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(app, [*map(str, command), "--compare", str(tmp_path / "A" / "bench.json")])
    assert again.exit_code == 0 and "ratio" in again.stdout


def test_it_compares_with_the_file_that_it_replaces(tmp_path: Path) -> None:
    """A bad file is refused before the measurement, which would replace the earlier result."""
    (tmp_path / "q.jsonl").write_text('{"id": "q", "question": "?"}\n')
    asked = ("bench", tmp_path / "q.jsonl", "--llm", "instant", "--system", "direct")
    given = [*map(str, asked), "--clients", "1", "--count", "8", "--out", str(tmp_path / "B")]
    assert CliRunner().invoke(app, given).exit_code == 0
    file = tmp_path / "B" / "bench.json"
    slow = orjson.loads(file.read_bytes())
    slow["loads"][0] |= {"p50_e2el_ms": 1e6, "ranges": {"p50_e2el_ms": [1e6, 1e6]}}
    file.write_bytes(orjson.dumps(slow))
    done = CliRunner().invoke(app, [*given, "--compare", str(file)])
    assert done.exit_code == 0 and "1000000.00" in done.stdout and "better" in done.stdout
    file.write_text("[]")
    done = CliRunner().invoke(app, [*given, "--compare", str(file)])
    assert isinstance(done.exception, InputError) and file.read_text() == "[]"


def test_a_slower_system_is_no_noise(url: str) -> None:
    fast, slow, again = (
        pyfast.bench([f"wait {us} us"], pyfast.Load(clients=[2], count=16), llm=url, system="direct")
        for us in (20_000, 80_000, 20_000)
    )
    worse = {change.figure: change for change in slow.compare(fast.as_json())}
    assert worse["p50_e2el_ms"].is_real and not worse["p50_e2el_ms"].is_better
    assert worse["p50_e2el_ms"].ratio == pytest.approx(3.5, abs=1.2)
    same = {change.figure: change for change in again.compare(fast.as_json())}
    assert same["p50_e2el_ms"].ratio == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "no load was given"),
        ({"rates": [0.0]}, "rate: expected a number above 0"),
        ({"rates": [float("nan")]}, "rate: expected"),
        ({"rates": [1.0], "arrivals": "weekly"}, "arrivals: expected one of poisson"),
        ({"rates": [1.0], "arrivals": "gamma", "burstiness": -1.0}, "burstiness"),
        ({"clients": [0]}, "clients"),
        ({"clients": [1], "count": 0}, "count"),
        ({"trace": "nowhere.txt"}, "nowhere"),
        (
            {"clients": [1], "questions": [{"id": "c", "turns": [{"id": "t", "question": "?"}]}]},
            "single questions",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        given = {"load": pyfast.Load(), **grouped(pyfast.Load, **arguments)}
        pyfast.bench(**{"questions": ["?"], "llm": "instant", "system": "direct", **given})


@pytest.mark.parametrize("text", ["", "1\nx\n", "2\n1\n", "inf\n"])
def test_bad_traces_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(InputError, match=r"line|contains no"):
        read_trace(tmp_path / "t")


def test_other_files_are_no_results(tmp_path: Path) -> None:
    result = pyfast.bench(["?"], pyfast.Load(clients=[1], count=2, repeats=1), llm="instant", system="direct")
    (tmp_path / "x.json").write_text("[]")
    for other in (tmp_path / "x.json", tmp_path / "none.json", {"format": "pyfast-bench", "version": 2}):
        with pytest.raises(InputError):
            result.compare(other)


def test_own_documents_or_all(small: pyfast.Index, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a question searches is a choice of the load, as for a run; settings are checked before any load."""
    asked = [{"id": "q", "question": "Who discovered Titan?", "documents": ["passages/io.md"]}]
    calls: Any = {"index": small, "llm": "instant", "system": "rag"}
    tokens = {}
    for documents in ("own", "all"):
        load = pyfast.Load(clients=[1], count=2, repeats=1, warm_up=0, documents=documents)
        with caplog.at_level("INFO", "pyfast"):
            result = pyfast.bench(asked, load, **calls)
        tokens[documents] = result.loads[0]["total_input_tokens"]
        assert result.as_json()["documents"] == documents
    assert tokens["own"] < tokens["all"] and "for 1 of 1 questions, only the documents" in caplog.text
    with pytest.raises(InputError, match="n2n has no setting 'k'"):
        pyfast.bench(asked, pyfast.Load(clients=[1]), **{**calls, "system": ["rag", "n2n"]}, settings={"k": 3})


def test_an_earlier_measurement_is_kept(tmp_path: Path) -> None:
    load = pyfast.Load(clients=[1], count=2, repeats=1, warm_up=0)
    for _ in range(3):
        pyfast.bench(["Who?", "When?"], load, llm="instant", system="direct", out=tmp_path)
    names = {path.name for path in tmp_path.glob("bench.json*")}
    assert names == {"bench.json", "bench.json.old-1", "bench.json.old-2"}
