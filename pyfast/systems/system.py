"""What a system is, to those who run it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from pyfast.engine import Answer, Ask, Prompt
from pyfast.errors import InputError, first_fault
from pyfast.knowledge import Session, open_session
from pyfast.retrieval import Index
from pyfast.retrieval.embeddings import DEFAULT


class Settings(BaseModel):
    """Base of the settings of systems; as it stands, those of a system that has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WithKnowledge(Settings):
    """Base of the settings of systems that draw on a store of knowledge."""

    embedder: str = DEFAULT
    """A model of sentence-transformers: its name or folder."""


def opens(index: Index, settings: WithKnowledge, run: Path | None) -> Session:
    """The store of the index, as it was when the run began."""
    return open_session(index, settings.embedder, run)


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """One system, in one file or folder."""

    name: str
    answer: Callable[..., Coroutine[Any, Any, Answer]]
    """answer(question, context, settings)"""
    settings: type[Settings]
    prompts: tuple[Prompt[Any], ...]
    needs_index: bool = True
    opens: Callable[[Index, Any, Path | None], Session] | None = None
    """opens(index, settings, run): what it works with beside the index, the fourth argument of `answer`; `run` is
    the folder of a run that is perhaps gone on with"""
    resumes: Callable[[Session, Any, Path], None] | None = None
    """resumes(session, settings, answers): called before a run goes on, with the answers that it has"""

    def configure(self, given: Mapping[str, str]) -> Settings:
        """The settings: the defaults, but for those `given` by name, as text.

        Raises `InputError` for an unknown name or a value that does not fit.
        """
        known = self.settings.model_fields
        for name in given:
            if name not in known:
                has = f"it has: {', '.join(known)}" if known else "it has none"
                raise InputError(f"{self.name} has no setting {name!r}; {has}")
        try:
            return self.settings.model_validate(given)
        except ValidationError as error:
            setting, fault = first_fault(error)
            where = f"setting {setting}: " if setting else ""
            raise InputError(f"{self.name}: {where}{fault.removeprefix('Value error, ')}") from None

    def ask(self, settings: Settings, session: Session | None = None) -> Ask:
        """The system with its settings, and what it `opens`."""
        if session is None:
            return partial(self.answer, settings=settings)
        return partial(self.answer, settings=settings, session=session)
