"""Functions that read the terminal's arguments and write to the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from pyfast.engine import Status, Summary


def plain(text: object) -> str:
    """Return a text on one line, without control characters. The text may come from a server, so it must not
    control the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def lines(text: str) -> str:
    """Return the text with its line ends, but without other control characters."""
    return "\n".join(map(plain, text.splitlines()))


def json_line(value: object) -> str:
    """Write a value as JSON on one line. Control characters are escaped, so that the value can be read back
    unchanged.
    """
    import orjson

    text = orjson.dumps(value).decode()
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(letter: str) -> str:
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def tokens(used: Summary | Status) -> str:
    """Write token counts as text, in the same form for all commands."""
    share = f" ({used.cached_tokens / used.prompt_tokens:.1%} cached)" if used.cached_tokens else ""
    reasoning = f" ({used.reasoning_tokens} of reasoning)" if used.reasoning_tokens else ""
    return f"{used.prompt_tokens} tokens in{share}, {used.completion_tokens} out{reasoning}"


def fall_backs(used: Summary | Status) -> str:
    """Write the number of fallbacks for each prompt. Empty if there were none."""
    return ", ".join(f"{plain(name)} {count}" for name, count in sorted(used.fall_backs.items()))


def tell_unusable(used: Summary | Status, run: Path) -> None:
    """If replies were not usable, print their number and where to see them."""
    if used.fall_backs:
        print(f"no usable answer to: {fall_backs(used)}")
    if used.repaired:
        each = ", ".join(f"{plain(name)} {count}" for name, count in sorted(used.repaired.items()))
        print(f"replies that did not fit, and were mended or lost some items: {each}")
    if used.nothing_found:
        several = "question" if used.nothing_found == 1 else "questions"
        print(f"{used.nothing_found} {several}: a search found nothing")
    if used.fall_backs or any("malformed answer" in reason for reason in dict(used.failures)):
        print(f"the LLM's replies to a question: pyfast prompts {run} ID")


def left_out(used: Summary | Status) -> str:
    """Write how many passages did not fit into each prompt. Empty if all passages fitted."""
    return ", ".join(f"{plain(name)} {count}" for name, count in sorted(used.left_out.items()))


def clock(seconds: float) -> str:
    """Write the local time of `seconds` since the epoch, with the date if it is not today."""
    try:
        then = datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().date() else f"{then:%Y-%m-%d %H:%M:%S}"


def console(stderr: bool = True) -> Any:
    """Make a console for progress, by default on stderr. Results go to stdout.

    Text is shown unchanged: brackets are not markup, and words between colons are not emoji.
    """
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def table(*heads: str, whole: Collection[str] = ()) -> Table:
    """Make a table for `console`. Long cells continue in the next line, except in the columns that `whole`
    names."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    columns = (Column(head, no_wrap=head in whole, overflow="fold") for head in heads)
    return Table(*columns, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


class OnStderr(logging.Handler):
    """A log handler that prints each record as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        print(plain(self.format(record)), file=sys.stderr)
