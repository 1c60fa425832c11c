"""Does the engine keep vLLM as busy as vLLM can be? To be run where vLLM is installed.

    .venv-vllm/bin/python benchmarks/saturation.py MODEL

1. `rag` over N questions through pyfast, journal on, against one `LLM.generate` of the very same prompts, already
   cut into tokens: tokens per second of the one over the other.
2. `n2n`, whose questions take one to three hops as the model plans them, against the same coroutines with a
   barrier at every LLM call: every question finishes a stage before any starts the next, as in a loop over stages.

Each side has a process and an engine of its own, with the same arguments and an empty prefix cache; sides take
turns, and the medians are compared. What the sides answered is compared first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from jobs import job, work

from pyfast.corpus import read
from pyfast.engine import Budget, Question, read_questions
from pyfast.llm import Completion, FullLLM, Message, Request, open_llm
from pyfast.llm.instant import Instant
from pyfast.retrieval import Index, build_index
from pyfast.systems import load_system
from pyfast.systems.prompts import final_text

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from runs import answer_all

DATA = Path(os.environ.get("PYFAST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
WINDOW = 2048
# Short contexts, so that a small model on a CPU is measured in minutes.
SETTINGS = {
    "rag": {"k": "2"},
    "n2n": {"hop_min": "1", "hop_max": "2", "final_min": "1", "final_max": "3"},
}
SIDES = {"rag": ("pyfast", "generate"), "n2n": ("pyfast", "stages")}


# The engine's arguments, as `vllm:` sets them on a CPU.
ARGUMENTS = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,
    "kv_cache_memory_bytes": 4 << 30,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,  # vLLM's own default differs between the two ways to start it
    "max_model_len": WINDOW,
    "enable_prefix_caching": True,
    "enable_prompt_embeds": True,
    "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
}
SAME = {"max_num_batched_tokens": ARGUMENTS["max_num_batched_tokens"]}
# And what it sets around the start of vLLM's processes.
SURROUNDINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class Barrier:
    """A backend in which nobody hears an answer before all have one: a loop over stages."""

    def __init__(self, llm: FullLLM, questions: int) -> None:
        self._llm = llm
        self._active = questions
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    async def complete(self, request: Request) -> Completion:
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answered))
        await self._go()
        return await answered

    async def end(self) -> None:
        """A question has ended."""
        self._active -= 1
        await self._go()

    async def _go(self) -> None:
        if self._waiting and len(self._waiting) == self._active:
            stage, self._waiting = self._waiting, []
            calls = (self._llm.complete(request) for request, _ in stage)
            for (_, answered), said in zip(stage, await asyncio.gather(*calls), strict=True):
                answered.set_result(said)


async def through_pyfast(
    model: str, system: str, index: Index, questions: Path, count: int, barrier: bool
) -> dict[str, Any]:
    """A run as `pyfast answer` makes it; with or without the barrier."""
    chosen = load_system(system)
    settings = chosen.configure(SETTINGS[system])
    llm: Any = open_llm(f"vllm:{model}", context_window=WINDOW, dtype="float32", extra=SAME)
    await llm.start()
    await warm_up(llm)
    stages = Barrier(llm, count)

    async def ask(question: Question, context: Any) -> Any:
        try:
            return await chosen.answer(question, context, settings=settings)
        finally:
            if barrier:
                await stages.end()

    with tempfile.TemporaryDirectory() as scratch:
        wanted = job(
            chosen,
            SETTINGS[system],
            ask,
            stages if barrier else llm,
            index,
            partial(read_questions, questions, count),
            count,
            Path(scratch) / "run",
            count,
            Budget(attempts=1),
        )
        index.search(["compile the search"], 1)
        done = await work(wanted)
        lines = (Path(scratch) / "run" / "answers.jsonl").read_text().splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    return {
        "seconds": done.seconds,
        "tokens": done.prompt_tokens + done.completion_tokens,
        "cached": done.cached_tokens / done.prompt_tokens,
        "calls": done.llm_calls,
        "answers": answers,
    }


async def warm_up(llm: FullLLM) -> None:
    """Weights are touched and a grammar is compiled; nothing of it is asked for again."""
    await asyncio.gather(*(llm.complete(call) for call in warming()))


def warming() -> list[Request]:
    schema = load_system("rag").prompts[0].schema
    return [Request((Message("user", f"{i} {i}"),), 8, schema) for i in range(4)]


class Recorded(Instant):
    """Answers at once, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(context_window=WINDOW)
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        return await super().complete(request)


async def requests_of_rag(index: Index, questions: Path, count: int) -> list[Request]:
    """What `rag` asks, question by question."""
    chosen, llm = load_system("rag"), Recorded()
    ask = chosen.ask(chosen.configure(SETTINGS["rag"]))
    await answer_all(read_questions(questions, count), ask, index, llm, lambda record: None, concurrency=1)
    return llm.asked


def at_once(model: str, index: Index, questions: Path, count: int) -> dict[str, Any]:
    """One `LLM.generate` of all prompts."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from pyfast.llm.local import compact

    requests = asyncio.run(requests_of_rag(index, questions, count))
    llm = LLM(model=model, **ARGUMENTS)
    tokenizer = llm.get_tokenizer()

    def generate(asked: list[Request]) -> tuple[float, list[Any]]:
        prompts = []
        for request in asked:
            said = [{"role": message.role, "content": message.content} for message in request.messages]
            text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
            prompts.append({"prompt_token_ids": tokenizer.encode(text, add_special_tokens=False)})
        form = StructuredOutputsParams(json=json.dumps(compact(asked[0].schema or {})))
        how = SamplingParams(temperature=0.0, max_tokens=asked[0].max_tokens, structured_outputs=form)
        started = time.perf_counter()
        done = llm.generate(prompts, how, use_tqdm=False)
        return time.perf_counter() - started, done

    generate(warming())
    seconds, done = generate(requests)
    size = sum(len(one.prompt_token_ids) for one in done)
    return {
        "seconds": seconds,
        "tokens": size + sum(len(one.outputs[0].token_ids) for one in done),
        "cached": sum(one.num_cached_tokens for one in done) / size,
        "calls": len(done),
        "answers": [answer_of(one.outputs[0].text) for one in done],
    }


def answer_of(text: str) -> str | None:
    """The answer in a completion of `rag`; None where there is none."""
    try:
        return final_text(json.loads(text)["answer"])
    except ValueError:
        return None


def in_a_process(command: list[str], kind: str) -> dict[str, Any]:
    """What one side found; its engine's processes are ended with it."""
    environment = {**os.environ, **(SURROUNDINGS if kind == "generate" else {})}
    side = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        if side.wait():
            raise SystemExit(f"{kind} failed")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(side.pid, signal.SIGKILL)
    found: dict[str, Any] = json.loads(Path(command[-1].partition("=")[2]).read_text())
    return found


def told(found: dict[str, Any]) -> str:
    """One run in words."""
    rate = found["tokens"] / found["seconds"]
    return (
        f"{found['calls']} calls, {found['tokens']} tokens, {found['cached']:.0%} of the prompts' cached;"
        f" {found['seconds']:.1f} s, {rate:.0f} tokens/s"
    )


def main(
    model: Annotated[str, typer.Argument(help="A folder, or a name on the hub.")],
    questions: Annotated[Path, typer.Option()] = DATA / "hybridqa" / "questions.jsonl",
    corpus: Annotated[Path, typer.Option()] = DATA / "hybridqa" / "corpus.jsonl",
    count: Annotated[int, typer.Option(help="Questions of `rag`.")] = 64,
    hops: Annotated[int, typer.Option(help="Questions of `n2n`.")] = 32,
    only: Annotated[str, typer.Option(help="One system.")] = "",
    rounds: int = 3,
    side: Annotated[str, typer.Option(hidden=True)] = "",
    out: Annotated[Path | None, typer.Option(hidden=True)] = None,
    index: Annotated[Path | None, typer.Option(help="An index of the corpus; made if not given.")] = None,
) -> None:
    """Measure."""
    if side:
        system, kind = side.split(",")
        number = count if system == "rag" else hops
        assert index is not None and out is not None
        opened = Index(index)
        if kind == "generate":
            found = at_once(model, opened, questions, number)
        else:
            found = asyncio.run(through_pyfast(model, system, opened, questions, number, kind == "stages"))
        out.write_text(json.dumps(found))
        os._exit(0)  # engines take their time to end
    with tempfile.TemporaryDirectory() as scratch:
        if index is None:
            index = Path(scratch) / "index"
            build_index(read([corpus]), index)
        numbers = [f"--count={count}", f"--hops={hops}", f"--questions={questions}", f"--index={index}"]
        for system, sides in SIDES.items():
            if only not in ("", system):
                continue
            runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in sides}
            for turn in range(rounds):
                for kind in sides if turn % 2 == 0 else sides[::-1]:
                    command = [sys.executable, __file__, model, *numbers, f"--side={system},{kind}"]
                    found = in_a_process([*command, f"--out={scratch}/found.json"], kind)
                    runs[kind].append(found)
                    print(f"{system} {kind}: {told(found)}", flush=True)
            ours, theirs = (runs[kind] for kind in sides)
            same = [a == b for a, b in zip(ours[0]["answers"], theirs[0]["answers"], strict=True)]
            rates = [median(run["tokens"] / run["seconds"] for run in side) for side in (ours, theirs)]
            print(
                f"{system}: {sum(same)} of {len(same)} answers are the same; pyfast {rates[0]:.0f} tokens/s,"
                f" {sides[1]} {rates[1]:.0f}: {rates[0] / rates[1]:.3f}"
            )


if __name__ == "__main__":
    typer.run(main)
