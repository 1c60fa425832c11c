"""`pyfast ask`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pyfast.commands.arguments import OF_ONE_QUESTION, Asked, IndexFolder, Searched, with_options
from pyfast.commands.terminal import SNIPPET, clock, console, cut, json_line, lines, plain, tokens
from pyfast.errors import CallError
from pyfast.utils.options import Hardware, Option, RunOptions
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pyfast.engine import Event, Step, Watch
    from pyfast.engine.record import Record
    from pyfast.retrieval.index.index import Index

_SAID = 120  # the maximum number of characters of a reply to show


@with_options
def ask(
    index: IndexFolder,
    question: str,
    asked: Annotated[Asked, *OF_ONE_QUESTION],
    searched: Searched,
    hardware: Hardware,
    options: Annotated[RunOptions, "outage"],
    *,
    as_json: Annotated[bool, Option(flag="--json")] = False,
    verbose: bool = False,
) -> None:
    """Answer one question: print its steps as they happen, then the answer and its evidence. Nothing is stored.

    Args:
        question: The question, in quotes.
        as_json: Print the answer with its evidence and trace as JSON.
        verbose: Also print the LLM's raw replies.
    """
    import pyfast.api.answer

    opened = searched.open(index, hardware)
    with _left_at_once(), _shown(", ".join(dict.fromkeys(asked.llm.values())), verbose) as watch:
        run = pyfast.api.answer.answer([question], index=opened, options=options, watch=watch, **asked.given)
    record, session = run.records[0], run.session
    assert session is not None
    print(f"{session.seconds:.2f} s; {counted(session.llm_calls, 'LLM call')}; {tokens(session)}", file=sys.stderr)
    if as_json:
        print(json_line(record.as_json()))
    else:
        _print_answer(record, opened)
    if record.state == "failed":
        raise CallError(f"no answer: {record.reason}")


def _print_answer(record: Record, index: Index) -> None:
    if record.state == "answered":
        print(lines(record.answer or ""))
    elif record.state == "abstained":
        print("no answer: the evidence does not contain one")
    for number, item in enumerate(record.evidence, start=1):
        title = item.heading or index.title(item.uri)
        score = "" if item.score is None else f", score {item.score:.3f}"
        place = f"{title} ({item.uri})" if title else item.uri
        print(f"\n{number}. {plain(place)}{score}\n   {cut(item.line, SNIPPET)}")


@contextlib.contextmanager
def _shown(spec: str, replies: bool) -> Iterator[Watch]:
    """Yield a `Watch` that shows events and steps on stderr: one line per finished step, with the LLM's reply if
    `replies` is True. On a terminal, it also shows the steps in progress."""
    from rich.text import Text

    from pyfast.engine import Watch
    from pyfast.engine.record import REPLY_BEGINS

    screen = console()
    status = screen.status("")
    working: list[str] = []

    def show(doing: str) -> None:
        if screen.is_terminal:
            status.update(Text(plain(doing)))
            status.start()

    def on_event(event: Event) -> None:
        if event.kind == "starting":
            show(f"starting {spec}")
        elif event.waiting is not None:
            show(f"waiting for {event.waiting.llm} since {clock(event.waiting.since)}: {event.waiting.reason}")
        else:
            show(", ".join(working))

    def on_step(step: Step) -> None:
        if step.fell_back:
            why = plain(step.fell_back if replies else step.fell_back.partition(REPLY_BEGINS)[0])
            screen.print(
                Text(f"{plain(step.name)}: the system continues without a usable reply: {why}"), soft_wrap=True
            )
        elif step.seconds is None:
            working.append(step.name)
        else:
            working.remove(step.name)
            screen.print(Text(_line(step, replies)), soft_wrap=True)
        show(", ".join(working))

    try:
        yield Watch(on_event, on_step)
    finally:
        status.stop()


def _line(step: Step, replies: bool) -> str:
    """Return the line for a finished step, with the LLM's reply if `replies` is True."""
    if step.error:
        came = f"failed: {step.error}"
    elif step.passages is not None:
        came = counted(step.passages, "passage") + (f" for {step.asked}" if step.asked else "")
    else:
        came = (replies and step.reply) or step.asked
    role = f" ({step.role})" if step.role else ""
    return f"{plain(step.name)}{role}, {step.seconds:.2f} s" + (f": {cut(came, _SAID)}" if came else "")


@contextlib.contextmanager
def _left_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process immediately while the `with` block runs, without waiting for threads in
    which the LLM computes."""
    try:
        yield
    except KeyboardInterrupt:
        print("pyfast: stopped", file=sys.stderr, flush=True)
        os._exit(130)
