"""`Prompt`: the text for the LLM, and the schema of its answer. `PromptOverrides`: a user's own texts."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import orjson
from pydantic import BaseModel, ValidationError

from pyfast.engine.replies import mended, objects_in, repaired_in
from pyfast.errors import AnswerError, CutOffError, FilteredError, InputError, first_fault
from pyfast.llm import DEFAULT_ROLE, Completion, Message, Request, Role, dialogue
from pyfast.llm.control_tokens import join_plain, plain
from pyfast.llm.protocol import ENDED, read_role
from pyfast.llm.reply_cleaning import has_escaped_controls, json_without_controls
from pyfast.utils.log import LOG
from pyfast.utils.options import GREEDY, Sampling

M = TypeVar("M", bound=BaseModel)

_PLACE = re.compile(r"\$([a-z_]+|\{[a-z_]+\})")
_SHOWN = 1000  # the maximum number of characters of a refused reply to show to the model again
_REASONING_TOKENS = 4096
"""How many more tokens a model gets for its next attempt if it was cut off while reasoning. The LLM's option
`reasoning_tokens` grants more tokens from the first attempt
"""


REFUSED = "That answer cannot be used: "
"""The beginning of the message with which pyfast asks again after an unusable reply"""
CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length"}
_FILTERED = {"content_filter", "content_filtered", "safety", "recitation", "prohibited_content", "refusal"}


@cache
def _note(reason: str) -> None:
    """Log, once per reason, that a server ended an answer for an unknown reason."""
    LOG.info(
        "an LLM ended answers with the unknown finish reason %r; they are used if they match the schema", reason
    )


_SEEDS = 1_000_003  # the step between the seeds of two runs, larger than the number of a question's calls


def with_sampling(request: Request, sampling: Sampling) -> Request:
    """Return the request with the temperature and seed of a run.

    A temperature above 0 that the system has set for the request is kept. The seed of the request is combined with
    that of the run, so that two runs with different seeds never send the same one.
    """
    if sampling == GREEDY:
        return request
    seed = (sampling.seed * _SEEDS + request.seed) % 2**31
    return replace(request, temperature=request.temperature or sampling.temperature, seed=seed)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prompt(Generic[M]):
    """A prompt: the texts of one kind of LLM call, and the pydantic model of the answer.

    `system` and the beginning of `user` are the same for all questions, so that an LLM with a prefix cache
    reads them only once. `user` contains placeholders, `$name` or `${name}`, for the text that differs between
    questions. A `$name` inside the text for a placeholder is not replaced.

    Example:
        >>> from pydantic import BaseModel
        >>> from pyfast.engine import Prompt
        >>> class Reply(BaseModel):
        ...     answer: str
        >>> prompt = Prompt("answer", "Reply in JSON with the field answer.", "Question: $question", Reply, 64)
        >>> prompt.places
        ('question',)
        >>> prompt.request({"question": "Who?"}, temperature=0.0, seed=0).messages[1].content
        'Question: Who?'
    """

    name: str
    system: str
    user: str
    answer: type[M]
    max_tokens: int
    attempts: int | None = None
    """The maximum number of times that pyfast asks for a well-formed answer. The budget can lower it. None: the
    budget's number"""
    cut_is_final: bool = False
    """Whether a cut-off answer is final. True: pyfast does not ask again, because a second answer would be cut off
    too"""
    role: Role = DEFAULT_ROLE
    """The purpose of the prompt. If there is a model for this role, it answers the prompt"""
    streamed: Callable[[Mapping[str, Any]], str] | None = None
    """For a prompt whose reply contains the answer to the question: a function that returns the beginning of the
    answer, given the fields of an unfinished reply.

    A server's clients receive this text at once, so it must not contain anything that the rest of the reply can
    still change. None: they receive the answer as a whole
    """
    schema: dict[str, Any] = field(init=False)
    _parts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        read_role(self.role)
        object.__setattr__(self, "schema", _schema_of(self.answer))
        object.__setattr__(self, "_parts", _parts(self.user))

    def sized(self, max_tokens: int) -> Self:
        """Return the prompt with a different token limit. Both prompts share the schema object, so LLMs
        compile it only once."""
        return self if max_tokens == self.max_tokens else self._changed(max_tokens=max_tokens)

    def tried(self, attempts: int | None) -> Self:
        """Return the prompt with a different maximum number of attempts. None: the budget's number."""
        return self._changed(attempts=attempts)

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the placeholders in `user`, without duplicates."""
        return tuple(dict.fromkeys(self._parts[1::2]))

    def overridden(self, system: str | None = None, user: str | None = None) -> Self:
        """Return the prompt with other texts, but the same name and schema object. None leaves a text
        unchanged."""
        texts: dict[str, Any] = {} if system is None else {"system": system}
        if user is not None:
            texts |= {"user": user, "_parts": _parts(user)}
        return self._changed(**texts)

    def _changed(self, **values: Any) -> Self:
        """Return a copy with other values. `dataclasses.replace` would rebuild the schema."""
        made = copy(self)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def request(self, fields: dict[str, str], temperature: float, seed: int) -> Request:
        """Create the request for one call. `fields` must fill every placeholder. Control tokens in `fields` become
        plain text.
        """
        user = join_plain([plain(fields[part]) if at % 2 else part for at, part in enumerate(self._parts)])
        return Request(dialogue(user, self.system), self.max_tokens, self.schema, temperature, seed)

    def again(self, request: Request, completion: Completion, fault: AnswerError) -> Request:
        """Create the request for another attempt, with the conversation so far and the error in the answer.

        If the token limit cut off the model's reasoning, the new request allows more tokens instead.
        """
        if isinstance(fault, CutOffError) and _still_reasoned(completion):
            return replace(request, max_tokens=request.max_tokens + _REASONING_TOKENS)
        # Some servers reject empty messages.
        reply = Message("assistant", plain(completion.text[:_SHOWN]) or "(no text)")
        wish = Message("user", f"{REFUSED}{plain(str(fault))}\nReply again, in JSON alone.")
        return replace(request, messages=(*request.messages, reply, wish))

    def parse(self, completion: Completion, repaired: Counter[str] | None = None) -> M:
        """Parse the answer: the whole text, or the last JSON object in it that matches the schema.

        If none matches, the answer's lists are repaired (see `mended`), and then the JSON (see `repaired_in`). The
        number of repairs is added to `repaired` under the prompt's name. Why the LLM ended the answer does not
        matter, unless it was cut off or filtered.

        Raises:
            AnswerError: The completion does not match the schema. If the token limit cut it off, the error is a
                `CutOffError`; if a content filter did, a `FilteredError`.
        """
        reason = completion.finish_reason.lower().partition(":")[0]  # Gemini: "content_filter: RECITATION"
        if reason in CUT_OFF:
            doing = "while still reasoning, " if _still_reasoned(completion) else ""
            raise CutOffError(f"{self.name}: answer cut off {doing}after {self.max_tokens} tokens")
        if reason in _FILTERED:
            raise FilteredError(f"{self.name}: answer ended by {completion.finish_reason!r}")
        if reason not in ENDED:
            _note(reason)
        faults = []  # as strings: an error references this frame, so the frame must not reference the error
        for text in chain([completion.text], objects_in(completion.text)):
            try:
                return self._read(text)
            except ValidationError as error:
                faults.append(first_fault(error))
        broken = ((text, 1) for text in repaired_in(completion.text))
        for text, repairs in chain(((it, 0) for it in (completion.text, *objects_in(completion.text))), broken):
            with suppress(ValidationError, ValueError, RecursionError):
                answer, mends = mended(self.answer, json_without_controls(text))
                if repaired is not None:
                    repaired[self.name] += mends + repairs
                return answer
        field_name, fault = faults[:2][-1]  # that of the last object, if there is one
        ended = "" if reason in ENDED else f"; the LLM ended it by {completion.finish_reason!r}"
        raise AnswerError(f"{self.name}: malformed answer: {field_name or 'answer'}: {fault}{ended}")

    def _read(self, text: str) -> M:
        """Parse a JSON string as an answer to the prompt, removing control characters. Raises `ValidationError` if
        it does not match the schema."""
        answer = self.answer.model_validate_json(text)
        if has_escaped_controls(text):
            answer = self.answer.model_validate_json(json_without_controls(text))
        return answer


def _schema_of(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer, which requires every field.

    When an answer is parsed, a field with a default may still be missing, because a model without constrained
    decoding may omit it.
    """
    schema = answer.model_json_schema()
    for node in (schema, *schema.get("$defs", {}).values()):
        if properties := node.get("properties"):
            node["required"] = list(properties)
            for field_schema in properties.values():
                field_schema.pop("default", None)
    return schema


def _still_reasoned(completion: Completion) -> bool:
    return bool(completion.reasoning_tokens) and not completion.text.strip()


def _parts(user: str) -> list[str]:
    """Split the text of a prompt at its placeholders. In the result, texts and placeholder names alternate; the
    first and last items are texts."""
    return [part.strip("{}") if at % 2 else part for at, part in enumerate(_PLACE.split(user))]


_KEYS = ("system", "user", "leave_out")


@dataclass(frozen=True, slots=True)
class PromptText:
    """A file's texts for one prompt. None: the original prompt's text."""

    system: str | None = None
    user: str | None = None
    leave_out: tuple[str, ...] = ()
    """The placeholders of the original that `user` deliberately omits"""


@dataclass(frozen=True, slots=True)
class PromptOverrides:
    """The texts that replace those of a system's prompts, by prompt name."""

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
            InputError: The file names a prompt that the system does not have, or a `user` lacks a placeholder of
                the original or contains an unknown one. The one-line message states the file, the prompt and the
                fault.
        """
        known = {prompt.name: prompt for prompt in prompts}
        for name in self.texts:
            if name not in known:
                has = f"its prompts are: {', '.join(known)}" if known else "it has none"
                raise InputError(f"{self.path}: {system} has no prompt {name!r}; {has}")
            self.apply(known[name])

    def apply(self, prompt: Prompt[M]) -> Prompt[M]:
        """Return the prompt with the file's texts, or unchanged if it is not in the file.

        The new prompt is created only once, and shares the schema object of the original, so that LLMs compile the
        schema only once. Raises the same errors as `check`, for prompts that `check` did not see.
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
    r"""Read a user's own prompts: a TOML file that replaces the texts of a system's prompts.

        [answer]
        system = "You answer questions about spacecraft. Reply in JSON with the field answer."
        user = "Evidence:\n$context\n\n${path}Question: $question"

    Each table is named after a prompt, and contains `system`, `user` or both. `user` must contain every
    placeholder of the original, except those in `leave_out`, such as `leave_out = ["path"]`. The reply's schema
    and the token limits do not change.

    Args:
        path: A TOML file with one table per prompt.

    Returns:
        The texts. Use `PromptOverrides.check` to test them for a system.

    Raises:
        InputError: The file cannot be read or is not valid TOML, or a table has an unknown key.

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
    except (ValueError, RecursionError) as error:  # an error in the TOML or the UTF-8
        raise InputError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
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
                raise InputError(f'{where}: leave_out: expected a list of strings, such as ["path"]')
        elif not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key}: expected a non-empty string")
    if "system" not in table and "user" not in table:
        raise InputError(f"{where}: expected system, user or both")
    if "leave_out" in table and "user" not in table:
        raise InputError(f"{where}: leave_out can only be used together with `user`")
    return PromptText(table.get("system"), table.get("user"), tuple(table.get("leave_out", ())))


def _listed(places: Iterable[str]) -> str:
    return ", ".join(f"${place}" for place in places)
