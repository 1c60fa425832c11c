"""`Job`: everything that pyfast needs to carry out a run."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyfast.engine.configuration as run_toml
import pyfast.engine.run_folder as run_folder
from pyfast.engine.budget import Budget, Profile, profile_of
from pyfast.engine.configuration import Configuration
from pyfast.engine.context import Ask
from pyfast.engine.journal.journal import runs_to_copy
from pyfast.engine.prompt import Prompt, PromptOverrides
from pyfast.engine.questions import Questions, questions_from
from pyfast.engine.run_folder import RunFolder
from pyfast.errors import InputError
from pyfast.llm import DEFAULT_ROLE, FullLLM, Role, by_role
from pyfast.retrieval import Index
from pyfast.utils.options import GREEDY, RUN_DEFAULTS, RunOptions, Sampling


def dedicate_process() -> None:
    """Tune Python's garbage collector for a process that only carries out a run. Call this function after the
    index is opened.

    From then on, the collector skips all objects that exist now. By default, Python searches for garbage after
    every 700 new objects; in a run, few objects are garbage, and these searches take a tenth of the event loop's
    time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything needed to carry out a run: questions, system, LLMs, index, limits and folder."""

    folder: Path | None
    """The run's folder. None: the run is in memory, and cannot be resumed"""
    questions: Questions
    system: str
    """The name of the system, for run.toml"""
    system_code: str = ""
    """A digest of the system's code. Empty if the system is part of pyfast"""
    ask: Ask
    """The system with its settings"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings as JSON types, as in run.toml"""
    prompts: Sequence[Prompt[Any]] = ()
    replaced: PromptOverrides | None = None
    """The user's own prompts, which replace the system's"""
    index: Index | None = None
    llm: FullLLM | Mapping[Role, FullLLM]
    """The LLM for all prompts, or one for each role"""
    knowledge: Mapping[str, Any] | None = None
    """A description of the knowledge graph that the answers depend on. None: they depend on none"""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths and model names for run.toml, which may differ from one session to the next"""
    sampling: Sampling = GREEDY
    """The temperature and seed. A temperature that the system sets for a prompt takes precedence"""
    options: RunOptions = RUN_DEFAULTS
    """The options that are not yet reflected in `questions`, `replaced` and `failures`"""
    concurrency: int = 64
    budget: Budget = field(default_factory=Budget)
    failures: int | None = None
    """How many questions may fail, over all sessions. None: all may fail"""
    keeps_questions: bool = False
    """Whether the folder stores the questions. Other jobs derive them from what pyfast stores anyway, such as the
    answers that a judge compares"""
    resumed: Callable[[Path], None] | None = None
    """A function to call with the path of answers.jsonl before a run with answers resumes.

    The function runs in a separate thread
    """

    def describe(self) -> Configuration:
        """Collect everything that an answer depends on, for run.toml. Call this method after the LLMs have
        started, because their context windows are unknown before.
        """
        prompts = self.prompts if self.replaced is None else map(self.replaced.apply, self.prompts)
        places = {"questions": self.questions.place, "profile": str(self.profile)}
        described: Configuration = {
            "questions": {"count": self.questions.count, "digest": self.questions.digest},
            "system": {"name": self.system, **{f"set_{name}": value for name, value in self.settings.items()}},
            "prompts": {prompt.name: _prompt_digest(prompt) for prompt in prompts},
            "budget": self.budget.shaping(),
            "code": run_toml.code_table(),
        }
        described |= recorded_models(self.llm, places | dict(self.places), self.folder)
        if not self.questions.restricted:
            described["questions"]["documents"] = "all"
        if self.sampling != GREEDY:
            described["sampling"] = asdict(self.sampling)
        if self.system_code:
            described["system"]["code"] = self.system_code
        if self.index is not None:
            described["index"] = run_toml.index_table(self.index)
        if self.knowledge is not None:
            described["knowledge"] = dict(self.knowledge)
        return described if not self.options.accept_code else run_toml.with_accepted_code(described, self.folder)

    def extends(self) -> bool:
        """Return whether the folder contains a run of only the first of this job's questions, by comparing
        question digests."""
        if self.folder is None or not (path := self.folder / run_toml.CONFIGURATION).exists():
            return False
        recorded = run_toml.read_configuration(path).get("questions", {})
        count = recorded.get("count")
        if not isinstance(count, int) or not 0 < count < self.questions.count:
            return False
        return questions_from(self.questions.read(), count).digest == recorded.get("digest")

    @property
    def profile(self) -> Profile:
        """The prompt limits, which depend on the model's context window and so are known only after the model has
        started."""
        llms = by_role(self.llm)
        answering = llms.get("answer") or llms.get(DEFAULT_ROLE)
        window = min(llm.context_window for llm in ([answering] if answering else llms.values()))
        return profile_of(window, self.budget)

    def open_folder(self, path: Path, described: Configuration) -> RunFolder:
        """Open the run's folder `path`, or start the run there. Raises the same errors as `RunFolder`."""
        questions = self.questions if self.keeps_questions else None
        return RunFolder(path, described, self.options, self.extends(), questions)

    def check(self) -> None:
        """Check that the folder is new, or contains this run (one with the same configuration). Raises
        `InputError` if it contains another run, or a question file of the user's that the run would replace.

        Call this method before you load a model.
        """
        if self.folder is None:
            return
        described, kept = self.describe(), self.folder / run_folder.QUESTIONS
        # A run that was killed at its start created ANSWERS first.
        is_run = any((self.folder / name).exists() for name in (run_toml.CONFIGURATION, run_folder.ANSWERS))
        if self.keeps_questions and not is_run and kept.exists():
            raise InputError(f"{self.folder}: the run would replace its {kept.name}; choose another folder")
        unknown = [*run_toml.windows_of(described), *(run_folder.GROWN if self.extends() else ())]
        run_folder.check_run(self.folder, described, unknown, self.questions if self.keeps_questions else None)
        for run in runs_to_copy(self.folder / run_folder.JOURNAL, self.options.reused):
            run_folder.check_reused(self.folder, described, run)

    def changed_since_the_end(self) -> list[str] | None:
        """Return what has changed in the code since the run in the folder ended, as strings, or None if the folder
        contains another run or some of its questions have not ended. Call this method before you load a model."""
        assert self.folder is not None
        described = self.describe()
        before = run_toml.read_configuration(self.folder / run_toml.CONFIGURATION)
        changed = run_toml.differences(before, described, run_toml.windows_of(described))
        is_this = all(one.startswith(run_folder.OF_CODE) for one in changed)
        return changed if is_this and run_folder.done_in(self.folder, self.questions.count) is not None else None


def recorded_models(
    llm: FullLLM | Mapping[Role, FullLLM], places: Mapping[str, str], folder: Path | None
) -> Configuration:
    """Return what run.toml records about the LLMs, and the places: the given ones, those of the LLMs, and where
    the run was started. `folder` is the run's folder."""
    places, models = dict(places), dict[str, Any]()
    if folder is not None:  # relative to the run, so that both can move together
        places[run_toml.STARTED_IN] = os.path.relpath(Path.cwd(), folder.resolve())
    for role, one in by_role(llm).items():
        of_role = "" if role == DEFAULT_ROLE else f"{role}_"
        places[f"{of_role}llm"] = one.spec
        models[f"{of_role}fingerprint"] = one.fingerprint
        models[f"{of_role}context_window"] = one.context_window
    # Unlike a TOML file, a path may contain bytes that are not UTF-8.
    shown = {name: place.encode(errors="backslashreplace").decode() for name, place in places.items()}
    return {"llm": models, run_toml.PLACES: shown}


@lru_cache
def _prompt_digest(prompt: Prompt[Any]) -> str:
    texts = json.dumps([prompt.system, prompt.user, prompt.schema, prompt.max_tokens], sort_keys=True)
    return blake2b(texts.encode(), digest_size=8).hexdigest()
