r"""A user's own prompts: a TOML file replaces the texts of a system's prompts.

    [answer]
    system = "You answer questions about spacecraft. Reply in JSON with the field answer."
    user = "Evidence:\n$context\n\n${path}Question: $question"

A table has the name of a prompt, and contains `system`, `user` or both. `user` must have every placeholder of
the original, except placeholders in `leave_out`, such as `leave_out = ["path"]`. The schema of the reply and
the token limits do not change.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from pyfast.engine.prompt import M, Prompt
from pyfast.errors import InputError

_KEYS = ("system", "user", "leave_out")


@dataclass(frozen=True, slots=True)
class PromptText:
    """The texts in a file for one prompt. None stands for the text of the original prompt."""

    system: str | None = None
    user: str | None = None
    leave_out: tuple[str, ...] = ()
    """The placeholders of the original that `user` leaves out on purpose"""


@dataclass(frozen=True, slots=True)
class PromptOverrides:
    """The texts that replace texts of a system's prompts, by the names of the prompts."""

    texts: Mapping[str, PromptText]
    path: Path
    _made: WeakKeyDictionary[Prompt[Any], Prompt[Any]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    @property
    def digest(self) -> str:
        """A checksum of the texts. Files with the same texts have the same checksum."""
        texts = {name: (text.system, text.user) for name, text in self.texts.items()}
        return blake2b(orjson.dumps(texts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()

    def check(self, system: str, prompts: Iterable[Prompt[Any]]) -> None:
        """Check all texts before a run starts.

        Args:
            system: The name of the system, for the error.
            prompts: The prompts of the system.

        Raises:
            InputError: The file names a prompt that the system does not have, or a `user` lacks a placeholder
                of the original or has an unknown one. The message is one line with the file, the prompt and
                the fault.
        """
        known = {prompt.name: prompt for prompt in prompts}
        for name in self.texts:
            if name not in known:
                has = f"its prompts are: {', '.join(known)}" if known else "it has none"
                raise InputError(f"{self.path}: {system} has no prompt {name!r}; {has}")
            self.apply(known[name])

    def apply(self, prompt: Prompt[M]) -> Prompt[M]:
        """Return the prompt with the texts of the file. A prompt that is not in the file stays unchanged.

        The new prompt is made only once. It shares the schema object of the original, so that LLMs compile the
        schema only once. Raises the errors of `check`, for prompts that `check` did not see.
        """
        text = self.texts.get(prompt.name)
        if text is None:
            return prompt
        made = self._made.get(prompt)
        if made is None:
            self._check_places(prompt, text)
            made = self._made[prompt] = prompt.overridden(text.system, text.user)
        return made

    def _check_places(self, prompt: Prompt[Any], text: PromptText) -> None:
        where = f"{self.path}: prompt {prompt.name!r}"
        places = prompt.places
        has = f"known: {_listed(places)}" if places else "it has none"
        for place in text.leave_out:
            if place not in places:
                raise InputError(
                    f"{where}: leave_out lists {_listed([place])}, which is not a placeholder of "
                    f"this prompt; {has}"
                )
        if text.user is None:
            return
        own = prompt.overridden(user=text.user).places
        for place in own:
            if place not in places:
                raise InputError(f"{where}: user has the unknown placeholder {_listed([place])}; {has}")
            if place in text.leave_out:
                raise InputError(f"{where}: user contains {_listed([place])}, although leave_out lists it")
        missing = [place for place in places if place not in own and place not in text.leave_out]
        if missing:
            named = orjson.dumps(missing).decode()
            raise InputError(f"{where}: user lacks {_listed(missing)}: add it, or write leave_out = {named}")


def read_prompts(path: Path) -> PromptOverrides:
    r"""Read a file of prompts.

    Args:
        path: A TOML file with one table for each prompt.

    Returns:
        The texts. Use `PromptOverrides.check` to test them for a system.

    Raises:
        InputError: The file cannot be read or is not TOML, or a table has an unknown key.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "mine.toml"
        >>> _ = path.write_text('[answer]\nsystem = "Be brief. Reply in JSON."')
        >>> overrides = read_prompts(path)
        >>> overrides.texts["answer"].system
        'Be brief. Reply in JSON.'
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # TOML's own error, or one of UTF-8
        raise InputError(f"{path}: not TOML: {' '.join(str(error).split())}") from None
    return PromptOverrides({name: _text(path, name, table) for name, table in tables.items()}, path)


def _text(path: Path, name: str, table: Any) -> PromptText:
    where = f"{path}: prompt {name!r}"
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table, [{name}], with system, user or both")
    for key, value in table.items():
        if key not in _KEYS:
            raise InputError(f"{where}: unknown key {key!r}; known: {', '.join(_KEYS)}")
        if key == "leave_out":
            if not isinstance(value, list) or not all(isinstance(place, str) for place in value):
                raise InputError(f'{where}: leave_out: expected a list of texts, such as ["path"]')
        elif not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key}: expected a non-empty text")
    if "system" not in table and "user" not in table:
        raise InputError(f"{where}: expected system, user or both")
    if "leave_out" in table and "user" not in table:
        raise InputError(f"{where}: leave_out can only be used together with `user`")
    return PromptText(table.get("system"), table.get("user"), tuple(table.get("leave_out", ())))


def _listed(places: Iterable[str]) -> str:
    return ", ".join(f"${place}" for place in places)
