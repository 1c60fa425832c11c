"""Find the JSON object in an LLM's reply, which may also contain other text, such as a code fence or a sentence,
and mend its lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from pyfast.llm.reply_cleaning import before_controls

_LONGEST = 100_000  # the number of characters, counted from the end, that are searched for JSON
_TRIES = 64  # the maximum number of braces tried as the start of an object, which bounds the time for any text

_LONGEST_READ = 20_000
_LONGEST_BROKEN = 4_000
_MOST_BRACES = 32
_BEGINS = 4
_DECODER = json.JSONDecoder()
_ROUNDS = 8  # Each mend can reveal a further fault in the same item.
M = TypeVar("M", bound=BaseModel)


def objects_in(text: str) -> Iterator[str]:
    """Find the outermost JSON objects in a text, the last object first."""
    text = text[-_LONGEST:]
    objects: list[str] = []
    end = 0
    for _ in range(_TRIES):
        if (at := text.find("{", end)) < 0:
            break
        end = at + 1
        with suppress(ValueError, RecursionError):
            _, end = _DECODER.raw_decode(text, at)
            objects.append(text[at:end])
    yield from reversed(objects)


def fields_so_far(text: str) -> dict[str, Any]:
    """Read the fields of an unfinished reply. The last string in it may be cut off.

    The result is empty if the reply does not begin as a JSON object, or if rereading it has taken too long.
    """
    if len(text) > _LONGEST_READ or text.lstrip()[:1] != "{":
        return {}
    with suppress(ValueError):  # `Prompt.parse` tells what is wrong, or mends it.
        fields = from_json(before_controls(text), allow_partial="trailing-strings")
        return fields if isinstance(fields, dict) else {}
    return {}


def repaired_in(text: str) -> Iterator[str]:
    """Find JSON objects with syntax errors, such as a superfluous comma or a comment, and yield them without the
    errors. Unterminated objects are ignored, because they may be cut off."""
    text = text[-_LONGEST_BROKEN:]
    end = text.rfind("}") + 1
    begins = [at for at in range(end) if text[at] == "{"]
    # The repair takes time quadratic in the length.
    if not begins or len(begins) > _MOST_BRACES:
        return
    import json_repair

    for begin in begins[:_BEGINS]:  # A sentence before the object may contain braces too.
        if text.count("{", begin, end) == text.count("}", begin, end):
            with suppress(ValueError, RecursionError):
                found = json_repair.loads(text[begin:end])
                if isinstance(found, dict):
                    yield json.dumps(found)


def mended(answer: type[M], text: str) -> tuple[M, int]:
    """Parse a reply whose lists do not fit the schema: one bad item must not cost the good ones.

    A list that is too long is cut. In the items of a list, strings are cut to their maximum length, numbers are
    clamped to their bounds, and a list in place of an object supplies its fields in order. A missing list becomes
    empty if other fields are present. Items that still do not fit are left out. All other values must fit as they
    are.

    Args:
        answer: The model of the reply.
        text: A JSON text.

    Returns:
        The reply, and the number of mends.

    Raises:
        ValidationError: The reply does not fit for another reason, or nothing is left of a list.
        ValueError: The text is not JSON, or contains a lone surrogate.

    Example:
        >>> from pydantic import BaseModel, Field
        >>> from pyfast.engine.replies import mended
        >>> class Themes(BaseModel):
        ...     themes: list[str] = Field(max_length=2)
        >>> mended(Themes, '{"themes": ["clocks", null, "lamps", "bells"]}')
        (Themes(themes=['clocks', 'lamps']), 2)
    """
    fitted, mends = _fit(answer, from_json(text))  # Unlike `json`, it refuses lone surrogates.
    return answer.model_validate(fitted), mends


def _fit(kind: Any, value: Any) -> tuple[Any, int]:
    """Mend a value, in place, until it is of this type. Returns the value and the number of mends."""
    adapter, mends = TypeAdapter(kind), 0
    for _ in range(_ROUNDS):
        try:
            adapter.validate_python(value)
            return value, mends
        except ValidationError as error:
            bad: dict[tuple[int | str, ...], set[int]] = {}
            for fault in error.errors(include_url=False):
                done = _mend(kind, value, fault, bad)
                if not done:
                    raise
                mends += done
            for place, items in bad.items():
                inside = _at(value, place)
                if len(items) == len(inside):
                    raise
                inside[:] = [item for number, item in enumerate(inside) if number not in items]
    adapter.validate_python(value)
    return value, mends


def _mend(answer: Any, value: Any, fault: Any, bad: dict[tuple[int | str, ...], set[int]]) -> int:
    """Mend one fault in a reply in place, or add the item that contains it to the bad ones. Returns the number of
    mends, which is 0 if the fault cannot be mended."""
    kind, place, context, given = fault["type"], fault["loc"], fault.get("ctx", {}), fault["input"]
    in_list = any(isinstance(part, int) for part in place)
    named = bool(place) and isinstance(place[-1], str)
    new: Any = None
    match kind:
        case "too_long" if isinstance(given, list):
            # pydantic does not validate the items of such a list. Remove bad ones before good ones are cut.
            _, mends = _fit(_type_at(answer, place), given)
            del given[context["max_length"] :]
            return mends + 1
        case "missing" if get_origin(_type_at(answer, place)) is list:
            new = [] if given.keys() & _fields(_type_at(answer, place[:-1])) else None
        case "list_type" if given is None and in_list:
            new = []
        case "list_type" if isinstance(given, str):
            new = [given]
        case "string_too_long" if in_list:
            new = given[: context["max_length"]]
        case "string_type" if in_list and type(given) in (int, float):
            new = str(given)
        # A bare number in a list, such as a passage number, is an identifier, so a nearby number would be wrong.
        case "greater_than_equal" if in_list and named:
            new = context["ge"]
        case "less_than_equal" if in_list and named:
            new = context["le"]
        case "int_from_float" if in_list and named:
            new = round(given)
        case "model_type" | "model_attributes_type" if in_list and isinstance(given, list):
            fields = _fields(_type_at(answer, place))
            new = dict(zip(fields, given, strict=True)) if len(fields) == len(given) else None
    if new is not None:
        _at(value, place[:-1])[place[-1]] = new
        return 1
    last = next((k for k in reversed(range(len(place))) if isinstance(place[k], int)), None)
    if last is None:
        return 0
    bad.setdefault(place[:last], set()).add(place[last])
    return 1


def _at(value: Any, place: Sequence[int | str]) -> Any:
    for part in place:
        value = value[part]
    return value


def _type_at(answer: Any, place: Sequence[int | str]) -> Any:
    """Return the type at a place in a reply, or None if it is unknown."""
    kind: Any = answer
    for part in place:
        if isinstance(part, str):
            fields = _fields(kind)
            kind = fields[part].annotation if part in fields else None
        else:
            kind = next(iter(get_args(kind)), None)
        while hasattr(kind, "__metadata__"):  # `Annotated`
            kind = get_args(kind)[0]
    return kind


def _fields(kind: Any) -> dict[str, FieldInfo]:
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
