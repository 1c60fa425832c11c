"""A run over a changed index asks the LLM only what changed (`RunOptions.reuse`). A server in a process of its own
counts the calls."""

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hostile_server import allow, counts, hostile
from processes import Session
from runs import Watched, answers, ask_about, checksums, go, traces

import pyfast
from pyfast.engine import Answer, Context, Question
from pyfast.errors import CallError, InputError, OtherBuildError
from pyfast.systems.prompts import DIRECT
from pyfast.utils.options import RunOptions, Sampling

FILES, QUESTIONS, CHANGED = 20, 50, (3, 11)
WORDS = [
    f"{first}{last}" for first in ("copp", "lind", "quart", "saff") for last in ("er", "um", "ox", "il", "an")
]


def write(folder: Path, numbers: tuple[int, ...] | range, found: str) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        word = WORDS[number]  # Files share no words, so that a change touches only questions about its file.
        text = f"{word.title()}ton is the {word}er of {found}{word}. {word.title()}ham is at {word}bury{number}."
        (folder / f"{number}.txt").write_text(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index before and after two files of twenty changed, and fifty questions."""
    folder = tmp_path_factory.mktemp("reuse")
    write(folder / "corpus", range(FILES), "surveyor")
    pyfast.build_index(folder / "corpus", folder / "before")
    shutil.copytree(folder / "before", folder / "after")
    write(folder / "corpus", CHANGED, "prospector")
    assert pyfast.update_documents(folder / "after", folder / "corpus").replaced == len(CHANGED)
    lines = (
        {"id": f"q{i}", "question": f"What is the {WORDS[i % FILES]}er of {WORDS[i % FILES]}ham ({i})?"}
        for i in range(QUESTIONS)
    )
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def session(place: Path, index: str, run: Path, url: str, *more: object, system: str = "rag") -> Session:
    given = [place / "q.jsonl", "--index", place / index, "--system", system, "--llm", f"openai:hostile@{url}"]
    return Session(run, *given, "--concurrency", 4, *more)


def asked(*given: Any, **system: str) -> tuple[Counter[str], str]:
    """What the server was asked in a whole run, and what the run printed."""
    with hostile() as url:
        one = session(*given[:3], url, *given[3:], **system)
        assert one.ended() == 0, one.told
        return Counter(counts(url)["bodies"]), one.told


@pytest.mark.parametrize("system", ["rag", "n2n", "hseq"])
def test_a_run_over_changed_documents_asks_only_what_changed(system: str, place: Path, tmp_path: Path) -> None:
    before, _ = asked(place, "before", tmp_path / "old", system=system)
    fresh, _ = asked(place, "after", tmp_path / "fresh", system=system)
    old = checksums(tmp_path / "old")
    again, told = asked(place, "after", tmp_path / "new", "--reuse", tmp_path / "old", system=system)
    assert again == Counter({body: times for body, times in fresh.items() if body not in before})
    # hseq also shows the other segments of the corpus, so only its guidance stays.
    assert 0 < again.total() <= (fresh.total() - QUESTIONS if system == "hseq" else fresh.total() / 10)
    assert answers(tmp_path / "new") == answers(tmp_path / "fresh") != answers(tmp_path / "old")
    assert traces(tmp_path / "new") == traces(tmp_path / "fresh")
    status = pyfast.Run(tmp_path / "new").status
    assert status.llm_calls == fresh.total() and status.reused == fresh.total() - again.total()
    assert f"{fresh.total()} LLM calls ({status.reused} reused)" in told
    gold = [{"id": record.id, "answers": ["x"]} for record in pyfast.Run(tmp_path / "new").records]
    costs = pyfast.compare([tmp_path / "fresh", tmp_path / "new"], gold).costs
    assert costs[0].reused == 0 and costs[1].reused * QUESTIONS == pytest.approx(status.reused)
    assert 0 < costs[1].reused_prompt_tokens < costs[1].prompt_tokens == costs[0].prompt_tokens
    asked(place, "after", tmp_path / "same", "--reuse", tmp_path / "new", system=system)  # all of it is reused
    (_, same) = pyfast.compare([tmp_path / "new", tmp_path / "same"], gold).costs
    assert (same.reused, same.reused_prompt_tokens) == (same.llm_calls, same.prompt_tokens)
    assert same.reused_completion_tokens == same.completion_tokens == costs[0].completion_tokens
    assert "was at commit 1, but the new run uses commit 2" in told
    assert pyfast.verify(tmp_path / "new").passed
    assert {path: old[path] for path in old} == {path: checksums(tmp_path / "old")[path] for path in old}
    print(f"\n{system}: {again.total()} of {fresh.total()} calls asked again")


def test_a_killed_run_resumes_without_the_run_that_it_reuses(place: Path, tmp_path: Path) -> None:
    before, _ = asked(place, "before", tmp_path / "old", system="n2n")
    fresh, _ = asked(place, "after", tmp_path / "fresh", system="n2n")
    wanted = sum(times for body, times in fresh.items() if body not in before)
    with hostile("--allow", str(wanted // 2)) as url:
        one = session(place, "after", tmp_path / "new", url, "--reuse", tmp_path / "old", system="n2n")
        one.until(lambda: counts(url)["requests"] > wanted // 2)
        one.kill()
        held = counts(url)["requests"] - wanted // 2  # calls that got no reply before the kill
        shutil.rmtree(tmp_path / "old")
        allow(url, 10**9)
        one = session(place, "after", tmp_path / "new", url, "--reuse", tmp_path / "old", system="n2n")
        assert one.ended() == 0, one.told
        assert counts(url)["requests"] == wanted + held and 1 <= held <= 4
    assert answers(tmp_path / "new") == answers(tmp_path / "fresh")
    assert pyfast.Run(tmp_path / "new").status.reused == fresh.total() - wanted


def test_a_run_in_progress_is_reused_and_so_is_another_system(place: Path, tmp_path: Path) -> None:
    """`rag` with another setting makes equal requests; its run is not finished yet."""
    fresh, _ = asked(place, "before", tmp_path / "fresh")
    with hostile("--allow", "20") as url:
        one = session(place, "before", tmp_path / "old", url, "--set", "abstain=on")
        one.until(lambda: counts(url)["requests"] > 20)
        again, _ = asked(place, "before", tmp_path / "new", "--reuse", tmp_path / "old")
        one.kill()
    assert 30 <= again.total() <= 34 and fresh.total() == 50
    assert answers(tmp_path / "new") == answers(tmp_path / "fresh")


class Another(Watched):
    fingerprint = "another"


async def simple(question: Question, ctx: Context) -> Answer:
    return Answer((await ctx.generate(DIRECT, question=question.text)).answer)


def run(folder: Path, llm: Watched, *reuse: Path, questions: Any = None, **options: Any) -> Any:
    given = RunOptions(reuse=reuse, **{name: options.pop(name) for name in ("retry_failed",) if name in options})
    return go(folder, simple, llm, questions or ask_about(4), options=given, **options)


def test_samples_of_two_questions_stay_two(tmp_path: Path) -> None:
    """At temperature 0, any equal request of the earlier run will do; a sample belongs to its question."""
    twice = [Question("a", "Who?"), Question("b", "Who?")]
    for sampling, calls in ((Sampling(), 0), (Sampling(0.7), 1)):
        old, new = tmp_path / f"old{calls}", tmp_path / f"new{calls}"
        number = iter(range(9))
        sampled = Watched(lambda _, number=number: {"answer": f"sample {next(number)}"})
        run(old, sampled, questions=twice, sampling=sampling)
        other = Watched()
        summary = run(new, other, old, questions=[*reversed(twice), Question("c", "Who?")], sampling=sampling)
        assert other.given == calls and summary.reused == 3 - calls and not summary.replayed
        texts = {name: {one.id: one.answer for one in pyfast.Run(folder).records} for name, folder in
                 (("old", old), ("new", new))}  # fmt: skip
        assert {id: texts["new"][id] for id in "ab"} == texts["old"]


def test_failed_calls_are_asked_again(tmp_path: Path) -> None:
    yes = {"answer": "yes"}
    failing = Watched(lambda asked: CallError("no") if "question 2" in asked.messages[-1].content else yes)
    assert run(tmp_path / "old", failing).states == {"answered": 3, "failed": 1}
    mended = Watched(lambda _: yes)
    assert run(tmp_path / "new", mended, tmp_path / "old").states == {"answered": 4} and mended.given == 1


def test_a_reused_reply_that_fails_a_question_is_asked_again(tmp_path: Path) -> None:
    run(tmp_path / "old", Watched(lambda _: "no JSON"))
    silent = Watched(lambda _: {"answer": "yes"})
    assert run(tmp_path / "new", silent, tmp_path / "old").states == {"failed": 4} and not silent.given
    assert run(tmp_path / "new", silent, tmp_path / "old", retry_failed=True).states == {"answered": 4}
    assert silent.given == 4


def test_several_runs_are_reused(tmp_path: Path) -> None:
    for name, some in (("a", slice(2)), ("b", slice(2, 4))):
        run(tmp_path / name, Watched(), questions=ask_about(4)[some])
    llm = Watched()
    assert run(tmp_path / "new", llm, tmp_path / "a", tmp_path / "b").reused == 4 and not llm.given


def test_damaged_replies_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path / "old", Watched())
    with sqlite3.connect(tmp_path / "old/journal.sqlite") as database:
        database.execute("UPDATE completions SET entry = replace(entry, 'stop', 'step') WHERE question = 1")
    llm = Watched()
    assert run(tmp_path / "new", llm, tmp_path / "old").reused == 3 and llm.given == 1
    assert "damaged: 1 of its replies cannot be reused" in caplog.text


def test_runs_that_cannot_be_reused(tmp_path: Path) -> None:
    def refused(message: str, *reuse: Path, kind: type[Exception] = InputError) -> None:
        with pytest.raises(kind, match=message):
            pyfast.answer(["Who?"], llm="instant", system="direct", run=new, options=RunOptions(reuse=reuse))
        assert not new.exists()

    old, new = tmp_path / "old", tmp_path / "new"
    refused("--reuse expects the folder of another run", tmp_path / "none")
    pyfast.answer(["Who?"], llm=Another(), system="direct", run=old)
    refused("LLM is different: llm.fingerprint was another and is now instant", old)
    configuration = (old / "run.toml").read_text()
    (old / "run.toml").write_text(configuration.replace('"another"', '"instant-1"'))
    refused("does not match run.toml", old)
    (old / "run.toml").write_text(configuration.replace("format_version = 1", "format_version = 99"))
    refused("format", old, kind=OtherBuildError)
    with pytest.raises(InputError, match="reuse need the folder of a run"):
        pyfast.answer(["Who?"], llm="instant", system="direct", options=RunOptions(reuse=old))


def test_an_index_that_was_built_again_is_told_by_its_documents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are at commit 1, so their numbers say nothing."""
    asked = tmp_path / "q.jsonl"
    asked.write_text('{"id": "1", "question": "Where did rain fall?"}\n')
    options: dict[str, Any] = {"index": tmp_path / "IDX", "llm": "instant", "system": "rag"}
    corpora = []
    for name, town in (("old", "Oslo"), ("new", "Rome")):
        index = pyfast.build_index([{"id": "a", "text": f"In {town}."}], tmp_path / "IDX", overwrite=True)
        corpora.append(f"{tmp_path / 'IDX'}, corpus {index.manifest['corpus'][:8]}")
        reuse = [tmp_path / "old"] if name == "new" else []
        pyfast.answer(asked, **options, run=tmp_path / name, options=RunOptions(reuse=reuse))
    first, second = corpora
    told = f"the index of this run ({first}) has different documents from that of the new run ({second})"
    assert first != second and f"{tmp_path / 'old'}: {told}" in caplog.messages
