"""Collect training examples from finished runs. An example is the prompt and the reply of one LLM call."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import orjson

from pyfast.engine import LLMCall
from pyfast.engine.journal.journal_reader import ended_questions
from pyfast.engine.prompt import CUT_OFF, REFUSED
from pyfast.engine.replies import objects_in
from pyfast.engine.run_folder import JOURNAL
from pyfast.errors import InputError
from pyfast.llm import Message
from pyfast.utils.files import write_atomically
from pyfast.utils.text_forms import name_form

EXAMPLES, HELD_OUT = "examples.jsonl", "held_out.jsonl"
Said = tuple[str, tuple[Message, ...], str]
"""The name of a prompt, its messages, and the reply"""


@dataclass(frozen=True, slots=True)
class RunExample:
    """One LLM call of a correctly answered question."""

    id: str
    """The id of the question"""
    prompt: str
    """The name of the prompt, such as `plan`"""
    messages: tuple[Message, ...]
    reply: str


@dataclass(slots=True)
class Collected:
    """The examples of several runs, without duplicates. Held-out examples are those of held-out questions."""

    examples: list[RunExample] = field(default_factory=list)
    held_out: list[RunExample] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many calls yielded no example, by reason"""
    _known: set[tuple[str, tuple[Message, ...]]] = field(default_factory=set)

    def add(self, run: Path, ended: int, right: Collection[str], held_out: Collection[str]) -> int:
        """Add the calls of a run's correctly answered questions, whose ids are in `right`, and return the number
        of these questions. `held_out` contains the ids of held-out questions, and `ended` is the number of
        questions that have ended.

        Raises `InputError` if the run stores no prompts.
        """
        used, asked, stored = 0, 0, 0
        for id, _, calls in ended_questions(run / JOURNAL, 0, ended):
            asked += len(calls)
            stored += sum(call.messages is not None for call in calls)
            if id in right:
                used += 1
                for name, messages, reply in self._said(calls):
                    if (name, messages) in self._known:
                        self.left_out["the prompt occurred earlier"] += 1
                        continue
                    self._known.add((name, messages))
                    side = self.held_out if id in held_out else self.examples
                    side.append(RunExample(id, name, messages, reply))
        if asked and not stored:
            raise InputError(
                f"{run} stores no prompts (--no-keep-prompts). To store them without new LLM calls, answer the"
                f" questions again in another folder with --reuse {run}"
            )
        return used

    def _said(self, calls: Iterable[LLMCall]) -> Iterator[Said]:
        """Yield the usable calls of one question. If the LLM was asked again because its reply had the wrong form,
        its last reply goes with the first prompt."""
        last: dict[tuple[str, tuple[Message, ...]], LLMCall] = {}
        for call in calls:
            if call.messages is None:
                self.left_out["the prompt was not stored"] += 1
            elif not call.messages:
                self.left_out["the prompt consisted of embeddings"] += 1
            else:
                asked = call.messages
                while len(asked) > 2 and asked[-1].content.startswith(REFUSED):
                    asked = asked[:-2]
                self.left_out["the LLM was asked again"] += (call.prompt, asked) in last
                last[call.prompt, asked] = call
        for (name, messages), call in last.items():
            if call.completion is None:
                self.left_out["the call failed"] += 1
            elif call.completion.finish_reason.lower() in CUT_OFF or not call.completion.text.strip():
                self.left_out["the reply was cut off or empty"] += 1
            else:
                yield name, messages, reply_of(call.completion.text)


def reply_of(text: str) -> str:
    """Return the reply that a model learns: the JSON object in the text, on one line, as constrained decoding
    writes it, or the text itself if it contains no JSON object."""
    found = next(objects_in(text), None)
    return text.strip() if found is None else json.dumps(json.loads(found), ensure_ascii=False)


def is_held_out(question: str, share: float) -> bool:
    """Return whether a question is held out. This depends only on its words, so a question is held out in all runs
    and later training or in none."""
    made = blake2b(name_form(question).encode(errors="replace"), digest_size=8)
    return int.from_bytes(made.digest()) < share * 2**64


def balanced(examples: Sequence[RunExample], size: int, seed: int) -> list[RunExample]:
    """Draw at most `size` examples at random, and keep their order. Each prompt gets an equal share; if a prompt
    has fewer examples than its share, the others get the rest."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, example in enumerate(examples):
        places[example.prompt].append(place)
    generator, chosen = np.random.default_rng(seed), list[int]()
    rising = sorted(places, key=lambda name: (len(places[name]), name))
    for number, name in enumerate(rising):
        share = (size - len(chosen)) // (len(rising) - number)
        chosen += generator.permutation(places[name])[:share].tolist()
    return [examples[place] for place in sorted(chosen)]


def write_examples(path: Path, examples: Sequence[RunExample]) -> None:
    """Write examples as JSON lines, with the keys `id`, `prompt`, `messages` (each with `role` and `content`) and
    `reply`."""
    write_atomically(path, b"".join(orjson.dumps(it, option=orjson.OPT_APPEND_NEWLINE) for it in examples))
