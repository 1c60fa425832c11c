"""Every limit that a schema holds an answer to stands in the prompt: a model that does not read it breaks it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pyfast.engine import Prompt
from pyfast.evaluation.judge import JUDGE
from pyfast.evaluation.open_questions import OPEN_QUESTIONS, OPEN_USERS
from pyfast.knowledge.extraction_prompts import EXTRACT_GRAPH
from pyfast.systems import describe_systems
from pyfast.systems.conversations import RESOLVE_TURN, REWRITE_TURN
from pyfast.systems.hseq.head import head_prompt
from pyfast.systems.registry import load_system
from pyfast.systems.subqrag.prompts import EXTRACT_TRIPLES

PROMPTS = {
    prompt.name + "-" + system.name: prompt
    for system in describe_systems()
    for prompt in load_system(system.name).prompts
    if prompt.name not in ("select", "head")  # sized by what is filled in
}
PROMPTS |= {prompt.name: prompt for prompt in (JUDGE, EXTRACT_GRAPH, EXTRACT_TRIPLES, REWRITE_TURN, RESOLVE_TURN)}
PROMPTS |= {prompt.name: prompt for prompt in (OPEN_USERS, OPEN_QUESTIONS)}
PROMPTS |= {"head-8": head_prompt(8), "head-8-800": head_prompt(8, 800)}


def limits(schema: Any) -> Iterator[int]:
    """The greatest lengths in a schema: of texts, of lists and within patterns."""
    if isinstance(schema, dict):
        yield from (schema[name] for name in ("maxLength", "maxItems") if isinstance(schema.get(name), int))
        if isinstance(pattern := schema.get("pattern"), str):
            yield from map(int, re.findall(r"\{\d*,(\d+)\}", pattern))
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from limits(part)


def unstated(prompt: Prompt[Any]) -> list[int]:
    said = set(re.findall(r"\d+", prompt.system + prompt.user))
    return [limit for limit in limits(prompt.schema) if str(limit) not in said]


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_states_the_limits_of_its_schema(prompt: Prompt[Any]) -> None:
    assert unstated(prompt) == []


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_a_short_answer_may_be_as_long_as_is_stated(prompt: Prompt[Any]) -> None:
    """In names and numbers each character may be a token; in sentences and long lists three make one."""
    fields = prompt.schema["properties"]
    limits = {name: it["maxLength"] for name, it in fields.items() if "maxLength" in it}
    short = min(limits.get("answer", 0), 300)
    assert prompt.max_tokens >= short + (sum(limits.values()) - short) / 3 + 15


def test_a_limit_that_is_not_stated_is_found() -> None:
    assert unstated(EXTRACT_TRIPLES.overridden(system="Note what the passage says.")) == [120, 120, 120, 30]
