"""Old names of options and commands. They work for one release, with a warning."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_LORA = {"--rank": "--lora-rank", "--alpha": "--lora-alpha"}
OPTIONS: dict[tuple[str, ...], dict[str, str]] = {
    ("answer",): {"--reuse": "--response-cache"},
    ("train", "graph-convqa"): {"--units": "--passages", "--room": "--max-prompt-tokens", **_LORA},
    ("train", "hseq-iterator"): {
        "--enough": "--max-positives",
        "--lexical": "--lexical-weight",
        "--balance": "--verdict-weight",
        **_LORA,
    },
}
"""For each command, the old and the new name of each renamed option"""
COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {("knowledge", "unite"): ("knowledge", "merge")}


def renamed_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command line with current names in place of old names. Each old name prints a warning on
    stderr."""
    before = tuple(arguments[:2])
    command = COMMANDS.get(before, before)
    if command != before:
        _warn(" ".join(before), " ".join(command))
    rest = [*command, *arguments[2:]]
    options = OPTIONS.get(command) or OPTIONS.get(command[:1], {})
    for place, argument in enumerate(rest):
        if argument == "--":  # No options follow.
            break
        name, equals, value = argument.partition("=")
        if name in options:
            _warn(name, options[name])
            rest[place] = options[name] + equals + value
    return rest


def _warn(before: str, now: str) -> None:
    print(f"pyfast: `{before}` is now `{now}`; the old name goes with the next release", file=sys.stderr)
