"""Functions that write to the terminal."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from textwrap import fill
from typing import TYPE_CHECKING, Any

from pyfast.utils.log import LOG
from pyfast.utils.text_forms import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyfast.engine import Status, Summary


def plain(text: object) -> str:
    """Return a text on one line, without control characters: it may come from a server, and must not control the
    terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


SNIPPET = 300  # the maximum number of characters of a snippet to show


def cut(text: str, most: int) -> str:
    """Return the text on one line, cut to `most` characters."""
    text = " ".join(plain(text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def lines(text: str) -> str:
    """Return the text with its line breaks, but without other control characters."""
    return "\n".join(map(plain, text.splitlines()))


def json_line(value: object) -> str:
    """Write a value as JSON on one line, with control characters escaped, so that the value can be read back
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
    """Format token counts, in the same way for all commands."""
    computed = (used.prompt_tokens - used.cached_tokens) / max(sum(used.states.values()), 1)
    cached = used.cached_tokens / max(used.prompt_tokens, 1)
    share = f" ({cached:.1%} cached, {computed:.0f} computed per question)" if cached else ""
    reasoning = f" ({used.reasoning_tokens} for reasoning)" if used.reasoning_tokens else ""
    return f"{used.prompt_tokens} tokens in{share}, {used.completion_tokens} out{reasoning}"


def in_money(amount: float, currency: str | None) -> str:
    """Format a sum of money, with two decimal places, or six if it is below 1."""
    return f"{amount:,.{2 if amount >= 1 else 6}f} {plain(currency or '')}"


def counts(by_name: Mapping[str, int]) -> str:
    """Format names with their counts, sorted by name."""
    return ", ".join(f"{plain(name)} {count}" for name, count in sorted(by_name.items()))


def tell_unusable(used: Summary | Status, run: Path) -> None:
    """If replies were unusable, print how many, and where to see them."""
    if used.fall_backs:
        say(f"prompts without a usable reply: {counts(used.fall_backs)}")
    if used.repaired:
        say(f"replies repaired, or used without their unusable items: {counts(used.repaired)}")
    if used.nothing_found:
        say(f"{counted(used.nothing_found, 'question')} with a search that found nothing")
    if used.fall_backs or any("malformed answer" in reason for reason in dict(used.failures)):
        say(f"to see the LLM's replies to a question: pyfast show {run} ID --prompts")


def clock(seconds: float) -> str:
    """Format the local time of `seconds` since the epoch, with the date if it is not today."""
    try:
        then = datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().date() else f"{then:%Y-%m-%d %H:%M:%S}"


def console(stderr: bool = True) -> Any:
    """Create a console for progress, by default on stderr. Results go to stdout. In a pipe or a file, they do not
    wrap, unless the environment variable COLUMNS says where.

    Text is shown unchanged: brackets are not interpreted as markup, nor words between colons as emoji.
    """
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, emoji=False)
    if not stderr and not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _ENDLESS
    return made


def say(text: str) -> None:
    """Print a text on stdout. On a terminal, long lines wrap between words."""
    from rich.text import Text

    screen = console(stderr=False)
    if screen.is_terminal:
        screen.print(Text(text))
    else:
        print(text)


_FIGURES = re.compile(r"[-+–.,:%\d\s]*(?: to [-+.\d]*)?")
_ENDLESS = 1 << 16  # columns
_TEXT_WIDTH = 16  # A text column may become this narrow.


def show_table(heads: Sequence[str], rows: Iterable[Sequence[object]], keys: int = 1) -> None:
    """Print a table on stdout. On a terminal, number columns keep their full width, and text columns wrap. A table
    that is too wide is printed as several, one below the other, each with the first `keys` columns. In a pipe or a
    file, nothing wraps."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table
    from rich.text import Text

    screen = console(stderr=False)
    if not screen.is_terminal:
        screen.width = _ENDLESS
    cells = [[lines(str(cell)) for cell in row] for row in rows]
    columns, widths = list[Column](), list[int]()
    for place, head in enumerate(map(plain, heads)):
        column = [row[place] for row in cells]
        numbers = any(column) and all(map(_FIGURES.fullmatch, column))
        longest = max((len(line) for cell in column for line in cell.splitlines()), default=0)
        widths.append(max(longest if numbers else min(longest, _TEXT_WIDTH), *map(len, head.split()), 0))
        title = fill(head, max(widths[-1], 1), break_long_words=False) if screen.is_terminal else head
        columns.append(Column(title, no_wrap=numbers, overflow="fold", justify="right" if numbers else "left"))
    first = keys
    while first < len(heads):
        end, left = first, screen.width - sum(widths[:keys]) - 2 * (keys - 1)
        while end < len(heads) and (end == first or widths[end] + 2 <= left):
            left -= widths[end] + 2
            end += 1
        shown = [*range(keys), *range(first, end)]
        table = Table(
            *(replace(columns[k]) for k in shown), box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
        )
        for row in cells:
            table.add_row(*(Text(row[k]) for k in shown))
        screen.print(table)
        first = end


class OnStderr(logging.Handler):
    """A log handler that prints each record as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(plain(self.format(record)), file=sys.stderr)
        except OSError:  # A log on a full disk must not end the work.
            self.handleError(record)


def with_times() -> None:
    """Print each log record, including those of uvicorn and asyncio, with its time and level, as servers do."""
    for handler in LOG.handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.getLogger().addHandler(handler)
