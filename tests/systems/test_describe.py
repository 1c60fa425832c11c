"""Every setting of every system says what it is; a system of a user's needs no more than its fields."""

from enum import Enum
from itertools import chain
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, Field

from pyfast.engine import Answer, Context, Question
from pyfast.errors import InputError
from pyfast.systems import (
    Settings,
    System,
    describe_settings,
    describe_system,
    describe_systems,
    load_system,
    names,
    settings_table,
)
from pyfast.systems.prompts import DIRECT

OWN = {"direct", "rag"}  # baselines: their settings are nobody's


class Colour(Enum):
    RED = 1
    DARK_BLUE = 2


class Mine(Settings):
    """Settings of every type, most without a word."""

    asked: str
    plain: int = 3
    many: Annotated[tuple[Colour, ...], BeforeValidator(tuple)] = (Colour.RED, Colour.DARK_BLUE)
    either: Literal["a", "b|c"] = Field(default="a", description="This | that.")
    perhaps: float | None = Field(default=None, gt=0, lt=1)
    free: dict[str, Any] = Field(default_factory=dict)
    at_most: int = Field(default=1, le=5, json_schema_extra={"paper": "table 1"})


async def answer(question: Question, ctx: Context, settings: Mine) -> Answer:
    """Look it up.

    And more.
    """
    return Answer(question.text)


MINE = System("mine", answer, Mine, (DIRECT, DIRECT))


@pytest.mark.parametrize("name", names())
def test_every_setting_is_described(name: str) -> None:
    described = describe_settings(name)
    assert [setting.name for setting in described] == list(load_system(name).settings.offered())
    for setting in described:
        assert setting.meaning.endswith(".") and setting.meaning[0].isupper(), setting.name
        assert setting.type.split()[0] in ("on/off", "one", "whole", "number", "text", "list,")
        assert (setting.range != "") == (setting.type in ("whole number", "number")), setting.name
        assert setting.paper
    assert name in OWN or any(setting.paper != "pyfast's own" for setting in described)


@pytest.mark.parametrize("name", names())
def test_a_default_can_be_given_as_it_is_written(name: str) -> None:
    chosen = load_system(name)
    base = {"graph": "off", "memory": "off"} if name == "graph_convqa" else {}
    inert = [
        row.names for row in chosen.settings.inert if getattr(chosen.configure(base), row.where) in row.values
    ]
    for setting in describe_settings(name):
        if setting.name not in {*chain.from_iterable(inert), *base}:
            assert chosen.configure({**base, setting.name: setting.default}) == chosen.configure(base)


def test_settings_of_every_type() -> None:
    described = {setting.name: setting for setting in describe_settings(MINE)}
    assert {name: (it.type, it.default, it.range) for name, it in described.items()} == {
        "asked": ("text", "", ""),
        "plain": ("whole number", "3", ""),
        "many": ("list, each one of: red, dark_blue", "red,dark_blue", ""),
        "either": ("one of: a, b|c", "a", ""),
        "perhaps": ("number or none", "none", "more than 0, less than 1"),
        "free": ("dict[str, typing.Any]", "{}", ""),
        "at_most": ("whole number", "1", "at most 5"),
    }
    assert described["plain"].paper == "none" and described["at_most"].paper == "table 1"
    assert described["plain"].meaning == "" and described["either"].meaning == "This | that."


def test_the_table_is_one_of_markdown() -> None:
    header, rule, *rows = settings_table(MINE).splitlines()
    assert header == "| setting | values | default | meaning | paper |" and set(rule) == set("| -")
    assert len(rows) == len(Mine.model_fields)
    assert "| `either` | one of: a, b\\|c | `a` | This \\| that. | none |" in rows
    assert settings_table(System("none", MINE.answer, Settings, ())) == "It has no settings."


def test_systems_are_described() -> None:
    described = {system.name: system for system in describe_systems()}
    assert list(described) == names()
    assert all(system.summary and system.paper for system in described.values())
    assert described["hseq"].prompts == ("guide", "select", "head", "verify")
    assert {name for name, system in described.items() if not system.needs_index} == {
        *("cot", "direct", "self_consistency")
    }


def test_a_system_of_a_user() -> None:
    described = describe_system(f"{__name__}:MINE")
    assert (described.name, described.summary, described.prompts) == ("mine", "Look it up.", ("direct",))
    with pytest.raises(InputError, match=r"expected a pyfast\.systems\.System, got ModelMetaclass"):
        describe_system(f"{__name__}:Mine")


def test_a_system_that_cannot_be_loaded_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyfast.systems.describe.names", lambda: ["rag", "no_such_module:SYSTEM"])
    rag, broken = describe_systems()
    assert rag == describe_system("rag")
    assert broken.name == "no_such_module:SYSTEM" and broken.summary.startswith("cannot be loaded: ")
