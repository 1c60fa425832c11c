"""Roles: the purpose of a prompt, which decides which of several language models answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar, get_args

from pyfast.errors import InputError
from pyfast.llm.protocol import LLM

Role = Literal["default", "plan", "extract", "pick", "answer", "think", "judge", "read"]
"""`plan`: plans and queries.

`extract`: intermediate answers from the evidence. `pick`: the choice of evidence. `answer`: the final answer.
`think`: lines of thought. `judge`: verdicts about answers. `read`: knowledge graphs of texts. `default`: all roles
without their own model
"""

ROLES: tuple[Role, ...] = get_args(Role)
DEFAULT_ROLE: Role = "default"

L = TypeVar("L", bound=LLM)


def by_role(llm: L | Mapping[Role, L]) -> Mapping[Role, L]:
    """The models by role.

    Args:
        llm: One model, or a mapping from roles to models.

    Returns:
        The mapping. If one model was given, its role is `default`.

    Example:
        >>> from pyfast.llm import by_role
        >>> by_role("embedded")
        {'default': 'embedded'}
    """
    return llm if isinstance(llm, Mapping) else {DEFAULT_ROLE: llm}


def read_role(name: str) -> Role:
    """Raise `InputError` if there is no such role."""
    for role in ROLES:
        if role == name:
            return role
    raise InputError(f"unknown role {name!r}; there are: {', '.join(ROLES)}")


def check_given(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` if `who` has a role without a model, and there is no default."""
    missing = [role for role in asked if role not in given]
    if missing and DEFAULT_ROLE not in given:
        raise InputError(f"{who}: no LLM for its roles {', '.join(missing)}; give one for each, or a default")


def check_roles(who: str, asked: Collection[Role], given: Collection[Role]) -> None:
    """Raise `InputError` as `check_given` does, and if a model would never be used."""
    check_given(who, asked, given)
    asked_default = any(role not in given for role in asked)
    for role in given:
        if role not in asked and not (role == DEFAULT_ROLE and asked_default):
            raise InputError(
                f"{who} has no prompt for an LLM of the role {role!r}; its roles are: {', '.join(asked)}"
            )
