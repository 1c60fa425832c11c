"""Roles. The role of a prompt is its purpose, such as `plan` or `answer`. A run can have a different language
model for each role."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar, get_args

from pyfast.errors import InputError
from pyfast.llm.protocol import LLM

Role = Literal["default", "plan", "extract", "pick", "answer", "draft", "think", "judge", "read"]
"""The purpose of a prompt.

`plan` makes plans and queries. `extract` finds intermediate answers in the evidence. `pick` chooses evidence.
`answer` gives the final answer. `draft` gives a first answer, which may be replaced. `think` develops a line of
thought. `judge` judges answers. `read` extracts knowledge graphs from texts. `default` stands for all roles
without their own model """

ROLES: tuple[Role, ...] = get_args(Role)
DEFAULT_ROLE: Role = "default"

L = TypeVar("L", bound=LLM)


def by_role(llm: L | Mapping[Role, L]) -> Mapping[Role, L]:
    """Make a mapping from roles to models.

    Args:
        llm: One model, or a mapping from roles to models.

    Returns:
        The mapping. One model gets the role `default`.

    Example:
        >>> from pyfast.llm import by_role
        >>> by_role("embedded")
        {'default': 'embedded'}
    """
    return llm if isinstance(llm, Mapping) else {DEFAULT_ROLE: llm}


def read_role(name: str) -> Role:
    """Return `name` if it is the name of a role. Otherwise raise `InputError`."""
    for role in ROLES:
        if role == name:
            return role
    raise InputError(f"unknown role {name!r}; known: {', '.join(ROLES)}")


def check_given(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` if there is no `default` model and one of the roles `asked` has no model of its own.
    `given` are the roles with a model. `who` is the name of the system, for the message."""
    missing = [role for role in asked if role not in given]
    if missing and DEFAULT_ROLE not in given:
        raise InputError(f"{who}: no LLM for its roles {', '.join(missing)}; set one for each, or a default")


def check_roles(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` if a role has no model, as `check_given` does. Also raise it if a model is given for
    a role that the system `who` never uses."""
    check_given(who, asked, given)
    asked_default = any(role not in given for role in asked)
    for role in given:
        if role not in asked and not (role == DEFAULT_ROLE and asked_default):
            raise InputError(f"{who} has no prompt with the role {role!r}; its roles are: {', '.join(asked)}")
