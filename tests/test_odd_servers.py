"""Servers and gateways that do odd things: only the odd call suffers, and only as long as it must."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from batch_server import batch_server
from hostile_server import allow as allow_calls
from odd_server import ALWAYS, FAULTS, FIELDS, ODDITIES, REFUSALS, Call, odd, seen
from processes import Session
from runs import answers

import pyfast
from pyfast.errors import LLMUnavailableError, RunError
from pyfast.utils.options import RunOptions

ASKED = "Which moon circles Saturn? no. {}"
AT_ONCE = RunOptions(outage=0)
WORDS = {
    "wrong_key": "rejects the API key",
    "wrong_country": "Country, region",
    "unknown_model": "does not exist",
    "moved": "answered 307",
    "quota_by_code": "no credit left",
    "quota_by_type": "no credit left",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with odd() as url:
        yield url


@pytest.fixture(scope="module")
def second() -> Iterator[str]:
    with odd() as url:
        yield url


def ask(llm: str, index: Any, run: Path | None = None, number: int = 12, **given: Any) -> pyfast.Run:
    """A run of `rag`. Each question has its number in its text."""
    questions = [{"id": str(i), "question": ASKED.format(i)} for i in range(number)]
    options = {} if llm.startswith("batch:") else {"backoff_s": 0.01}
    options |= given.pop("llm_options", {})
    given = {"concurrency": 8, "system": "rag", "options": AT_ONCE, **given}
    return pyfast.answer(questions, index=index, llm=llm, llm_options=options, run=run, **given)


def judge(run: pyfast.Run, met: dict[int, list[str]]) -> dict[str, Counter[str]]:
    """How questions ended, by their oddities. Each is answered rightly, or failed for a reason of its own."""
    found: dict[str, Counter[str]] = {}
    for record in run.records:
        names = met.get(int(record.id), [])
        reasons = [ODDITIES[name].fails for name in names if ODDITIES[name].fails]
        for name in set(names) or {"none"}:
            found.setdefault(name, Counter())[record.state] += 1
        if record.reason is not None:
            assert any(reason in record.reason for reason in reasons), (names, record.reason)
        else:
            assert (record.answer, reasons) == (f"Titan {record.id}", []), names
    return found


@pytest.mark.parametrize("name", ODDITIES)
def test_an_oddity_costs_no_other_question(name: str, server: str, small: pyfast.Index) -> None:
    run = ask(f"openai:{name}@{server}", small)
    calls, _, met = seen(server, name)
    judge(run, met)
    assert {*met} and {*met} <= {0, 4, 8}
    assert calls <= 12 + 3 * ODDITIES[name].more


@pytest.mark.parametrize("allow", [10**6, 30, 0])
def test_refusals_later_than_all_answers_blame_the_prompts(
    allow: int, small: pyfast.Index, tmp_path: Path
) -> None:
    """Not the key, unless the server refuses everything, from its start or from some call on."""
    with odd("--always", "wrong_country", "--allow", allow) as url:
        run = partial(ask, f"openai:late_firewall@{url}", small, tmp_path / "run", 40, concurrency=64)
        if allow < 40:
            with pytest.raises(LLMUnavailableError, match=r"OPENAI_API_KEY .*Country, region"):
                run()
            assert seen(url, "late_firewall").calls <= 40 + 3
            allow_calls(url, 10**6)
        done = run()
        judge(done, seen(url, "late_firewall").met)
        assert done.status.states == {"answered": 30, "failed": 10}
        assert seen(url, "late_firewall").answers == 30


def test_oddities_of_two_servers(server: str, second: str, small: pyfast.Index) -> None:
    """Two servers that do the same odd things to the same questions."""
    model = ",".join((*REFUSALS, *FAULTS, *FIELDS))
    number = 4 * model.count(",") + 4
    run = ask(f"openai:{model}@{server},{second}", small, number=number)
    both = [seen(url, model) for url in (server, second)]
    met = {i: [*both[0].met.get(i, []), *both[1].met.get(i, [])] for i in range(number)}
    judge(run, met)
    assert {name for names in met.values() for name in names} == {*REFUSALS, *FAULTS, *FIELDS}


def test_oddities_in_batches(small: pyfast.Index) -> None:
    """What a line of a batch can say: a status, and a body."""
    names = [name for name, oddity in ODDITIES.items() if oddity.as_line(Call(0, 0, {})) is not None]
    names.remove("endless")  # A file of results has no such limit.
    model = ",".join(names)
    with batch_server() as url:
        options = {"poll_s": 0.05, "quiet_s": 0.05, "settle_s": 1}
        run = ask(f"batch:{model}@{url}", small, number=4 * len(names), llm_options=options, concurrency=1000)
        met = seen(url, model).met
    judge(run, met)
    assert {name for odd in met.values() for name in odd} == {*names}


def test_a_refused_call_alone_in_its_batch(small: pyfast.Index) -> None:
    with batch_server() as url:
        options = {"poll_s": 0.05, "quiet_s": 0.05, "settle_s": 1, "max_calls": 1}
        run = ask(f"batch:moderated@{url}", small, number=5, llm_options=options)
        judge(run, seen(url, "moderated").met)
    assert run.status.states == {"answered": 3, "failed": 2}


@pytest.mark.parametrize("name", ALWAYS)
def test_what_every_call_gets_ends_the_run_at_once(name: str, small: pyfast.Index, tmp_path: Path) -> None:
    with odd("--always", name, "--allow", 20) as url:
        with pytest.raises(LLMUnavailableError, match=WORDS[name]):
            ask(f"openai:clean@{url}", small, tmp_path / "run", 60)
        before = seen(url, "clean")
        assert before.answers == 20 and before.calls <= 20 + 8 + 3
        allow_calls(url, 10**6)
        run = ask(f"openai:clean@{url}", small, tmp_path / "run", 60)
        assert seen(url, "clean").answers == 60
    judge(run, {})
    assert run.status.states == {"answered": 60}


@pytest.mark.parametrize("ending", ["wrong_key", "quota_by_type", "failures", "seconds"])
def test_no_reply_is_paid_twice(ending: str, small: pyfast.Index, tmp_path: Path) -> None:
    """Fifteen calls are in flight when the run ends."""
    always = ["--always", ending, "--allow", 15] if ending in ALWAYS else []
    model = "firewall" if ending == "failures" else "clean"
    limits: dict[str, Any] = {}
    if ending == "failures":
        limits = {"options": RunOptions(outage=0, max_failures=0)}
    elif ending == "seconds":
        limits = {"budget": {"run_seconds": 0.5}}
    with odd("--delay-s", 0.7, *always) as url:
        with pytest.raises(RunError):
            ask(f"openai:{model}@{url}", small, tmp_path / "run", 16, concurrency=16, **limits)
        before = seen(url, model)
        allow_calls(url, 10**6)
        run = ask(f"openai:{model}@{url}", small, tmp_path / "run", 16)
        after = seen(url, model)
    judge(run, after.met)
    assert before.answers == (16 if ending == "seconds" else 12 if after.met else 15)
    assert after.answers == 16 - len(after.met)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_question_that_kills_the_server_is_named(
    concurrency: int, small: pyfast.Index, tmp_path: Path
) -> None:
    port = 0
    for session in range(3):
        with odd("--dies-at", 9, "--port", port) as url, pytest.raises(LLMUnavailableError) as told:
            port = int(url.rpartition(":")[2])
            options = {"attempts": 2}
            ask(f"openai:clean@{url}", small, tmp_path / "run", 20, concurrency=concurrency, llm_options=options)
        named = "question '9'" if concurrency == 1 else "'9', "
        assert (named in str(told.value)) == (session > 0), told.value


def _has_had(url: str, calls: float) -> bool:
    return seen(url, "storm-again").calls >= calls


@pytest.mark.slow(suite="crashes")
@pytest.mark.guarantee("G1")
def test_a_storm(small: pyfast.Index, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each oddity once, to one call in ten. Killed three times, the run ends with the same bytes."""
    number = max(1000, 10 * len(ODDITIES))
    lines = (json.dumps({"id": str(i), "question": ASKED.format(i)}) for i in range(number))
    (tmp_path / "q.jsonl").write_text("\n".join(lines))

    def session(model: str) -> Session:
        given: list[Any] = [tmp_path / "q.jsonl", "--index", small.folder, "--system", "rag", "--concurrency", 16]
        given += ["--llm", f"openai:{model}@{server}", "--llm-option", "backoff_s=0.01", "--outage", 0]
        return Session(tmp_path / model, *given)

    whole = session("storm-whole")
    whole.ended()
    calls, _, met = seen(server, "storm-whole")
    found = judge(pyfast.Run(tmp_path / "storm-whole"), met)
    with capsys.disabled():
        told = {name: dict(states) for name, states in sorted(found.items())}
        print(f"\n{calls} calls for {number} questions, {calls / number:.3f}: {told}")
    assert found.keys() == {*ODDITIES, "none"}
    assert sum(pyfast.Run(tmp_path / "storm-whole").status.states.values()) == number
    assert calls <= 1.3 * number
    for kill in range(1, 4):
        killed = session("storm-again")
        enough = partial(_has_had, server, kill * number / 4)
        killed.until(enough)
        assert killed.process.is_alive(), killed.told
        killed.kill()
    last = session("storm-again")
    last.ended()
    again = answers(tmp_path / "storm-again").replace(b"storm-again", b"storm-whole")
    assert again == answers(tmp_path / "storm-whole")
    assert seen(server, "storm-again").calls <= calls + 3 * 16 * 2
