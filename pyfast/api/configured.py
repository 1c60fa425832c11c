"""What callers give, made into what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfast.api.indexing import index_of
from pyfast.engine import Ask, PromptOverrides, read_prompts
from pyfast.errors import InputError
from pyfast.retrieval import Index
from pyfast.systems import System, load_system
from pyfast.systems.system import Settings


@dataclass(frozen=True, slots=True)
class ConfiguredSystem:
    """A system with its settings."""

    system: System
    settings: Settings
    replaced: PromptOverrides | None
    index: Index | None

    def open(self, run: Path | None) -> Any:
        """What it works with beside the index; `run` is the folder of a run that is perhaps gone on with."""
        if self.index is None or self.system.opens is None:
            return None
        return self.system.opens(self.index, self.settings, run)

    def ask(self, session: Any) -> Ask:
        """What answers a question."""
        return self.system.ask(self.settings, session)


def configure(
    system: str | System,
    settings: Mapping[str, Any] | None,
    index: Index | str | Path | None,
    prompts: str | Path | PromptOverrides | None = None,
) -> ConfiguredSystem:
    """A system, configured, with its index. Raises `InputError` for what does not fit."""
    chosen = system if isinstance(system, System) else load_system(system)
    configured = chosen.configure(settings or {})
    replaced = None
    if prompts is not None:
        replaced = prompts if isinstance(prompts, PromptOverrides) else read_prompts(Path(prompts))
        replaced.check(chosen.name, chosen.prompts)
    if index is None and chosen.needs_index:
        raise InputError(f"{chosen.name} retrieves: give it an index (--index, or index=), made by `pyfast index`")
    opened = None if index is None else index_of(index)
    return ConfiguredSystem(chosen, configured, replaced, opened)
