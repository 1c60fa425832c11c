"""How engines start, end and die. The shared one is used up here, so that only one runs at a time."""

import asyncio
import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from pyfast.errors import LLMUnavailableError
from pyfast.llm import LLM, Request, dialogue, open_llm

psutil = pytest.importorskip("psutil", reason="not installed: vllm")
pytestmark = pytest.mark.asyncio(loop_scope="session")

STORY = Request(dialogue("Tell me a very long story."), 900)


async def running(llm: LLM, calls: int = 3) -> list[asyncio.Task]:
    """Calls that have started and will not end soon."""
    tasks = [asyncio.create_task(llm.complete(STORY)) for _ in range(calls)]
    await asyncio.sleep(1)
    assert not any(task.done() for task in tasks)
    return tasks


def engines(pid: int) -> list[Any]:
    """vLLM's processes below a process: the engine and its workers."""
    return [child for child in psutil.Process(pid).children(recursive=True) if child.name().startswith("VLLM")]


async def test_a_dead_engine_fails_its_calls_at_once(llm: LLM) -> None:
    calls = await running(llm)
    engines(os.getpid())[0].kill()
    killed = time.monotonic()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, LLMUnavailableError) and "has died" in str(result) and "\n" not in str(result)
    with pytest.raises(LLMUnavailableError, match="has died"):
        await llm.complete(STORY)
    assert time.monotonic() - killed < 10
    await llm.close()


async def test_a_start_can_be_cancelled(backend: LLM) -> None:
    await backend.close()
    start = asyncio.create_task(backend.start())
    while not multiprocessing.active_children():
        await asyncio.sleep(0.1)
    start.cancel()
    cancelled = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert time.monotonic() - cancelled < 20 and multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("damage", "wrong", "reason"),
    [
        ({"config.json": ("LlamaForCausalLM", "NoSuchModel")}, {}, "NoSuchModel"),
        ({}, {"batch_invariant": True}, "compute capability"),
        ({}, {"context_window": 1 << 20}, "max_model_len"),
        # It fails after the model is loaded, the others before.
        pytest.param({}, {"kv_cache_gib": 1 << 20}, "kv cache", marks=pytest.mark.slow(suite="vllm")),
    ],
    ids=["unknown architecture", "batch invariant", "window", "memory"],
)
async def test_a_start_that_fails_says_why_in_one_line(
    model: Path,
    backend: LLM,
    tmp_path: Path,
    options: dict[str, Any],
    damage: dict[str, tuple[str, str]],
    wrong: dict[str, Any],
    reason: str,
) -> None:
    await backend.close()
    for file in model.iterdir():
        (tmp_path / file.name).symlink_to(file)
    for name, (old, new) in damage.items():
        (tmp_path / name).unlink()
        (tmp_path / name).write_text((model / name).read_text().replace(old, new))
    with pytest.raises(LLMUnavailableError, match=reason) as error:
        await open_llm(f"vllm:{tmp_path}", **{**options, **wrong}).start()
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


SCRIPT = """
import asyncio, sys
from pyfast.errors import LLMUnavailableError
from pyfast.llm import Request, dialogue, open_llm

def ask(tokens):
    return asyncio.create_task(llm.complete(Request(dialogue("Tell me a very long story."), tokens)))

async def main():
    global llm
    llm = open_llm({spec!r}, **{options})
    print("starting", flush=True)
    await llm.start()
    call = ask(40)
    await asyncio.sleep(0.5)
    print("working", flush=True)
    print((await call).completion_tokens, flush=True)
    {end}

if __name__ == "__main__":
    asyncio.run(main())
"""
CLOSE = """
    calls = [ask(900) for _ in range(3)]
    await asyncio.sleep(1)
    await llm.close()
    await llm.close()
    for end in await asyncio.gather(*calls, ask(1), return_exceptions=True):
        assert isinstance(end, LLMUnavailableError), end
        print(str(end).split()[-1], flush=True)
"""


@contextlib.contextmanager
def script(model: Path, options: dict[str, Any], end: str) -> Iterator[tuple[subprocess.Popen[str], TextIO]]:
    """The script as a real process; what it prints. It says nothing on stderr, and leaves no process behind."""
    code = SCRIPT.format(spec=f"vllm:{model}", options=options, end=end)
    env = {name: value for name, value in os.environ.items() if name != "PYFAST_LLM_LOG"}
    pipe = subprocess.PIPE
    below: list[Any] = []
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield process, process.stdout
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        finally:
            process.kill()
        assert process.stderr.read() == ""
    assert psutil.wait_procs(below, timeout=60)[1] == []


@pytest.mark.slow(suite="vllm")
async def test_the_keyboard_does_not_reach_the_engine(model: Path, options: dict[str, Any], backend: LLM) -> None:
    await backend.close()
    with script(model, options, CLOSE) as (process, out):
        assert (out.readline(), out.readline()) == ("starting\n", "working\n")
        below = engines(process.pid)
        assert len(below) == 2
        for engine in below:
            engine.send_signal(signal.SIGINT)
        assert out.readline() == "40\n"
        # Calls that run when the engine is closed, and one that comes later.
        assert out.read().split() == ["call", "call", "call", "started"]
        assert process.wait(60) == 0 and psutil.wait_procs(below, timeout=60)[1] == []


@pytest.mark.slow(suite="vllm")
async def test_an_engine_ends_with_a_killed_parent(model: Path, options: dict[str, Any], backend: LLM) -> None:
    await backend.close()
    with script(model, options, "") as (process, out):
        assert out.readline() == "starting\n"
        while not engines(process.pid):  # loaded, and at work on the model
            time.sleep(0.1)


@pytest.mark.slow(suite="vllm")
async def test_a_program_that_ends_without_closing(model: Path, options: dict[str, Any], backend: LLM) -> None:
    await backend.close()
    with script(model, options, "ask(900); await asyncio.sleep(1)") as (process, out):
        assert out.read().split() == ["starting", "working", "40"]
        assert process.wait(60) == 0


@pytest.mark.slow(suite="vllm")
async def test_a_model_that_cannot_be_had(examples: Path, backend: LLM, tmp_path: Path) -> None:
    await backend.close()
    command = [
        sys.executable,
        "-m",
        "pyfast.commands.cli",
        "answer",
        examples / "questions.jsonl",
        "--system",
        "direct",
    ]
    done = subprocess.run(
        [*command, "--run", tmp_path / "run", "--llm", "vllm:nobody/nothing"],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"pyfast: 'nobody/nothing' is neither a folder nor a model on the hub: "
        ".+\n",
        done.stderr,
    )
