"""`System`: a method for answering questions, as the engine and the API need it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from pyfast.engine import Answer, Ask, Context, Prompt, Question
from pyfast.errors import InputError, did_you_mean, first_fault
from pyfast.knowledge import Session, open_session
from pyfast.llm import DEFAULT_ROLE, Role
from pyfast.retrieval import Index
from pyfast.retrieval.vectors.embeddings import DEFAULT
from pyfast.systems.combinations import PRESET, Inert, Preset, as_text, inert_fault


class Settings(BaseModel):
    """Base class of a system's settings. A system without settings uses this class directly.

    A setting is a `pydantic.Field` with bounds and a `description`. If a setting comes from a paper,
    `json_schema_extra` names the place in the paper, for example `{"paper": "section 2.3, equation 4"}`.
    `pyfast systems NAME` shows the bounds, the description and this place. A setting for the number of passages of
    a search has the type `PassageCount`.

    Example:
        >>> from pydantic import Field
        >>> from pyfast.systems import PassageCount, Settings
        >>> class MySettings(Settings):
        ...     k: PassageCount = Field(default=5, ge=1, description="Passages of the search.")
        >>> MySettings(k=8).k
        8
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inert: ClassVar[tuple[Inert, ...]] = ()
    """Settings that have no effect if another setting has a certain value. If a user combines such a setting
    with that value, pyfast raises an error"""

    @classmethod
    def offered(cls) -> dict[str, FieldInfo]:
        """Return the settings that a user can change: all except those that have only one value (the type is a
        `Literal` with a single argument), and those that have no effect with this value."""
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        fixed = {
            it: get_args(of)[0] for it, of in kinds.items() if get_origin(of) is Literal and len(get_args(of)) == 1
        }
        rows = [row for row in cls.inert if row.where in fixed and fixed[row.where] in row.values]
        without = {*fixed, *(name for row in rows for name in row.names)}
        return {name: field for name, field in cls.model_fields.items() if name not in without}


class Abstaining(Settings):
    """Base class of settings for systems that can abstain: they return no answer if the evidence does not
    contain one."""

    abstain: bool = Field(
        default=True,
        description="Allow the LLM to abstain (to give no answer) if it finds none. Off: the prompt asks for the"
        " most likely answer, so the LLM abstains only if it ignores this. Use `off` for benchmarks in which an"
        " abstention counts as wrong.",
    )


class Answering(Abstaining):
    """Base class of settings for systems that also answer open questions, in several paragraphs."""

    inert: ClassVar[tuple[Inert, ...]] = (Inert(("abstain",), "long_answer", (True,)),)

    long_answer: bool = Field(
        default=False,
        description="Answer in several paragraphs, for open questions. Off: answer with the name, number or"
        " phrase that the question asks for.",
    )


def _effort(given: Any) -> Any:
    if given in ("paper", "auto"):
        return given
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(given, bool) and 0 < float(given) < inf:
            return float(given)
    raise ValueError("expected paper, auto or a number above 0")


Effort = Annotated[Literal["paper", "auto"] | float, BeforeValidator(_effort)]
"""The setting `effort`"""


OF_PASSAGES = object()
"""Marks a setting that says how many passages a search returns"""
PassageCount = Annotated[int, Field(le=10_000), OF_PASSAGES]
"""The number of passages that a search returns. If a request to `pyfast serve` changes a setting of this type, the
limit `documents` applies"""


class Sparing(Settings):
    """Base class of settings for systems that can choose for each question how much the LLM reads."""

    effort: Effort = Field(
        default="paper",
        description="How much the LLM reads for a question. `paper`: as many passages as the other settings"
        " allow. `auto`: pyfast leaves out passages that probably contain little evidence, long ones first. A"
        " number N above 0: like `auto`, but the expected evidence that pyfast may leave out is divided by N, so"
        " with a larger N, the LLM reads more.",
    )


class Reading(Sparing):
    """Base class of settings for systems that let the LLM read passages."""

    evidence_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="What share of the passages' text the LLM reads. Below 1, pyfast leaves out the sentences"
        " that matter least for the question, so that a prompt has fewer tokens. This needs no LLM call. 1: the"
        " LLM reads all sentences.",
    )


class WithKnowledge(Abstaining):
    """Base class of settings for systems that use a knowledge graph."""

    embedder: str = Field(
        default=DEFAULT,
        description="The sentence-transformers model, by name or folder, for searching the knowledge graph.",
    )


def opens(index: Index, settings: WithKnowledge, run: Path | None) -> Session:
    """Open the index's knowledge graph in the version with which the run started."""
    return open_session(index, settings.embedder, run)


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """A system: a coroutine that answers questions, with its settings and prompts.

    Example:
        >>> from pyfast.engine import Answer
        >>> from pyfast.systems import Settings, System
        >>> async def answer(question, ctx, settings):
        ...     return Answer(question.text.upper())
        >>> System("shout", answer, Settings, ()).configure({}).model_dump()
        {}
    """

    name: str
    answer: Callable[..., Coroutine[Any, Any, Answer]]
    """The coroutine `answer(question, context, settings)` that answers a question"""
    settings: type[Settings]
    prompts: tuple[Prompt[Any], ...]
    needs_index: bool = True
    opens: Callable[[Index, Any, Path | None], Session] | None = None
    """A function `opens(index, settings, run)` that opens the index's knowledge graph. Its result becomes the
    argument `session` of `answer`. `run` is the run's folder. If `opens` is None, the system needs no
    knowledge graph
    """
    reads_summaries: bool = False
    """Whether the system reads an index's summaries (`pyfast corpus summarize`). An experiment can create
    them for such a system"""
    resumes: Callable[[Session, Any, Path], None] | None = None
    """A function `resumes(session, settings, answers)` that is called before a run resumes. `session` is the
    result of `opens`. `answers` is the file with the run's answers so far
    """
    summary: str = ""
    """What the system does, in one line"""
    paper: str = ""
    """The title of the system's paper"""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """Presets by name. The setting `preset` selects one, so no setting of the system can have this name"""
    requests: Mapping[str, Role] = field(default_factory=dict)
    """By name, the role of each stage in which the system calls `Context.complete`, which calls an LLM
    without a `Prompt`"""

    @property
    def roles(self) -> Mapping[Role, tuple[str, ...]]:
        """The roles of the system, with the names of their prompts. A system without prompts has the default
        role.
        """
        roles: dict[Role, dict[str, None]] = {}
        asked = [(prompt.name, prompt.role) for prompt in self.prompts]
        for name, role in (*asked, *self.requests.items()):
            roles.setdefault(role, {})[name] = None
        return {role: tuple(names) for role, names in roles.items()} or {DEFAULT_ROLE: ()}

    @property
    def code(self) -> str:
        """A checksum of the system's code, or an empty string for pyfast's own systems. A run resumes only
        with the same code."""
        return "" if self.answer.__module__.startswith("pyfast.") else source_digest(self.answer)

    def configure(self, given: Mapping[str, Any]) -> Settings:
        """Build the settings from the defaults, a preset, and the values `given` by name.

        Args:
            given: Values by name: strings, as on the command line (`{"k": "5", "graph": "off"}`), or Python values
                (`{"k": 5, "graph": False}`). `preset` names one of the system's `presets`, whose settings replace
                the defaults. The other values in `given` replace both.

        Raises:
            InputError: A setting or preset does not exist, a value is invalid, or a setting has no effect
                because of another setting's value.
        """
        known = self.settings.offered()
        values = dict(given)
        preset = self._preset(values.pop(PRESET)) if self.presets and PRESET in values else {}
        for name, value in values.items():
            if name not in known:
                has = f"its settings are: {', '.join(known)}" if known else "it has no settings"
                raise InputError(f"{self.name} has no setting {name!r}{did_you_mean(name, known)}; {has}")
            if isinstance(value, bool) and _is_number(known[name]):
                # pydantic would read a boolean as 0 or 1.
                raise InputError(f"{self.name}: setting {name}: expected a number, got {value}")
        try:
            settings = self.settings.model_validate({**preset, **values})
        except ValidationError as error:
            setting, fault = first_fault(error)
            where = f"setting {setting}: " if setting else ""
            raise InputError(f"{self.name}: {where}{fault}") from None
        if (wrong := inert_fault(settings, values, settings.inert)) is not None:
            raise InputError(f"{self.name}: {wrong}")
        return settings

    def _preset(self, name: Any) -> Mapping[str, Any]:
        if not isinstance(name, str) or name not in self.presets:
            has = ", ".join(self.presets)
            raise InputError(f"{self.name} has no preset {as_text(name)!r}; its presets are: {has}")
        return self.presets[name].values

    def ask(self, settings: Settings, session: Session | None = None) -> Ask:
        """Return the function that answers a question with these settings. `session` is the result of `opens`."""
        if session is None:
            return partial(self.answer, settings=settings)
        return partial(_ask_with, self.answer, settings, session)


async def _ask_with(
    answer: Callable[..., Coroutine[Any, Any, Answer]],
    settings: Settings,
    session: Session,
    question: Question,
    ctx: Context,
) -> Answer:
    """Answer a question with those triples of `session` that come from documents available to the question."""
    return await answer(question, ctx, settings=settings, session=session.within(ctx.index))


def _is_number(setting: FieldInfo) -> bool:
    return setting.annotation in (int, float)


def source_digest(function: Any) -> str:
    """Return a checksum of the file that contains the function or, if there is no such file, of the
    function's code."""
    path = inspect.getsourcefile(function)
    if path is not None and Path(path).is_file():
        code = Path(path).read_bytes()
    else:
        code = function.__code__.co_code + repr(function.__code__.co_consts).encode()
    return blake2b(code, digest_size=8).hexdigest()
