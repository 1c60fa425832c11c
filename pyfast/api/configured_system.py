"""Check the arguments of API calls, and turn them into the objects that the engine needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyfast.api.index import index_of
from pyfast.engine import Ask, Prompt, PromptOverrides, read_prompts, recorded_value
from pyfast.errors import InputError
from pyfast.llm import Role
from pyfast.retrieval import Index
from pyfast.retrieval.index.manifest import commit_numbers
from pyfast.systems import System, load_system
from pyfast.systems.conversations import PROMPTS, answer_turn
from pyfast.systems.system import Settings
from pyfast.utils.log import LOG
from pyfast.utils.options import FollowUps


@dataclass(frozen=True, slots=True)
class ConfiguredSystem:
    """A system with its settings, its prompts and the index that it searches."""

    system: System
    settings: Settings
    replaced: PromptOverrides | None
    index: Index | None
    follow_ups: FollowUps = "off"

    @property
    def prompts(self) -> tuple[Prompt[Any], ...]:
        """All prompts that the system may use."""
        return (*PROMPTS[self.follow_ups], *self.system.prompts)

    @property
    def roles(self) -> dict[Role, tuple[str, ...]]:
        """The roles that the system uses, with the names of their prompts."""
        roles = dict(self.system.roles)
        for prompt in PROMPTS[self.follow_ups]:
            roles[prompt.role] = (*roles.get(prompt.role, ()), prompt.name)
        return roles

    def described(self) -> dict[str, Any]:
        """Return the settings as JSON types, as run.toml stores them, with `follow_ups` among them unless it is
        `off`."""
        settings = self.settings.model_dump(mode="json")
        return settings if self.follow_ups == "off" else {**settings, "follow_ups": self.follow_ups}

    def open(self, run: Path | None) -> Any:
        """Open and return what the system needs in addition to the index, such as a knowledge graph, or return
        None if it needs nothing more.

        `run` is the folder of the new or resumed run (None: the run stays in memory). A resumed run uses the
        knowledge graph it started with.
        """
        if self.index is None or self.system.opens is None:
            return None
        return self.system.opens(self.index, self.settings, run)

    def ask(self, session: Any) -> Ask:
        """Return the function that answers one question. `session` is the result of `open`."""
        ask = self.system.ask(self.settings, session)
        return (
            ask
            if self.index is None and self.follow_ups == "off"
            else partial(answer_turn, ask=ask, follow_ups=self.follow_ups)
        )


def reads_history(system: str | System) -> bool:
    """Return whether a system itself uses the conversation's earlier turns."""
    chosen = system if isinstance(system, System) else load_system(system)
    return "history" in chosen.settings.model_fields


def configure(
    system: str | System,
    settings: Mapping[str, Any] | None,
    index: Index | str | Path | None,
    prompts: str | Path | PromptOverrides | None = None,
    follow_ups: FollowUps = "off",
    run: Path | None = None,
) -> ConfiguredSystem:
    """Configure a system and open its index. `run` is the folder of a new or resumed run; for a resumed run, the
    index is opened at the commit that the run started with.

    Raises `InputError` if an argument is not valid.
    """
    chosen = system if isinstance(system, System) else load_system(system)
    configured = chosen.configure(settings or {})
    if follow_ups not in PROMPTS:
        raise InputError(f"follow_ups: expected one of {', '.join(PROMPTS)}, got {follow_ups!r}")
    if follow_ups != "off" and reads_history(chosen):
        raise InputError(f"{chosen.name} reads conversations itself: leave out follow_ups={follow_ups}")
    made = ConfiguredSystem(chosen, configured, None, None, follow_ups)
    replaced = None
    if prompts is not None:
        replaced = prompts if isinstance(prompts, PromptOverrides) else read_prompts(Path(prompts))
        replaced.check(chosen.name, made.prompts)
    if index is None and chosen.needs_index:
        raise InputError(f"{chosen.name} needs an index: pass one (--index or index=) built by `pyfast index`")
    opened = None if index is None else index_of(index, run)
    if opened is not None and run is not None and recorded_value(run, "index", "commit") == opened.commit:
        newest = max(commit_numbers(opened.folder))
        if newest > opened.commit:
            LOG.warning(
                "%s is now at commit %d, but this run uses commit %d; to get answers from commit %d, use --run NEW"
                " --reuse %s",
                *(opened.folder, newest, opened.commit, newest, run),
            )
    return replace(made, replaced=replaced, index=opened)
