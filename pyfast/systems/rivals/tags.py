"""The formats in which Search-R1 and Search-o1 models act. The LLM writes one text. When it has written a
query between two tags, it stops, the results are appended between two other tags, and the LLM continues."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyfast.engine import Context, plain
from pyfast.llm import Message, Request
from pyfast.systems.prompts import final_text
from pyfast.systems.rivals.episode import Episode
from pyfast.utils.token_budget import CHARACTERS_PER_TOKEN

_LEAST = 200
"""The minimum length of a search's results, in characters"""
_OWN_TOKENS = 500
"""Tokens for the chat template and the instructions"""


@dataclass(frozen=True)
class Format:
    """The tags of one kind of model, and pyfast's instructions for models that were not trained with instructions
    of their own."""

    instructions: str
    query: tuple[str, str]
    results: tuple[str, str]
    answer: tuple[str, str]
    thought: tuple[str, str] = ("<think>", "</think>")

    @cached_property
    def action(self) -> re.Pattern[str]:
        """A query or an answer. Its end tag is missing if the LLM stopped at it. An answer in braces may
        contain braces."""
        (ask, asked), (say, said) = ([re.escape(tag) for tag in pair] for pair in (self.query, self.answer))
        inside = r"(?:[^{}]|\{[^{}]*\})*" if self.answer[1] == "}" else r".*?"
        return re.compile(f"{ask}(?P<query>.*?)(?:{asked}|$)|{say}(?P<answer>{inside})(?:{said}|$)", re.DOTALL)

    @cached_property
    def tags(self) -> re.Pattern[str]:
        """All tags of the format."""
        pairs = (self.query, self.results, self.answer[: 2 if self.answer[1] != "}" else 0], self.thought)
        return re.compile("(" + "|".join(re.escape(tag) for pair in pairs for tag in pair) + ")")

    def harmless(self, text: str) -> str:
        """Put a space inside each tag and each control token of a text from documents or users."""
        return plain(self.tags.sub(lambda tag: f"{tag[0][0]} {tag[0][1:]}", text))

    def written(self, text: str) -> str:
        """Return a text of the LLM with its tags, in which control tokens become ordinary text."""
        return "".join(part if at % 2 else plain(part) for at, part in enumerate(self.tags.split(text)))


FORMATS = {
    "search_r1": Format(
        "Find the answer to the question. Begin each step with your reasoning, between <think> and </think>. If"
        " you miss a fact, write a query between <search> and </search>, and the passages that a search engine"
        " finds for it follow between <information> and </information>. You may search several times. If you miss"
        " nothing, write the answer alone, without an explanation, between <answer> and </answer>.",
        ("<search>", "</search>"),
        ("<information>", "</information>"),
        ("<answer>", "</answer>"),
    ),
    "search_o1": Format(
        "Reason step by step until you can answer the question. If you are not sure of a fact, write a query"
        " between <|begin_search_query|> and <|end_search_query|>. What a search engine finds for it follows"
        " between <|begin_search_result|> and <|end_search_result|>, and you continue your reasoning. You may"
        " search several times. At the end, write the answer alone as \\boxed{answer}.",
        ("<|begin_search_query|>", "<|end_search_query|>"),
        ("<|begin_search_result|>", "<|end_search_result|>"),
        ("\\boxed{", "}"),
    ),
}


async def in_tags(question: str, ctx: Context, settings: Any, episode: Episode) -> str | None:
    """Answer a question in one text that the LLM continues after each search. `settings` are those of `react`.

    If the LLM neither searches nor answers, or has used up its actions, the tag before an answer is appended,
    so that it must answer.
    """
    form = FORMATS[settings.format]
    asked = f"{settings.instructions or form.instructions} Question: {form.harmless(question)}\n"
    free = ctx.context_window_of("answer") - _OWN_TOKENS - settings.turn_tokens * (settings.steps + 1)
    room = free * CHARACTERS_PER_TOKEN - len(asked)
    characters = max(int(room / settings.steps), _LEAST)
    text = ""
    for _ in range(settings.steps):
        reply = await continued(asked, text, ctx, settings.turn_tokens, form)
        action = form.action.search(reply)
        said = reply[: action.end()] if action else reply
        thought = form.tags.sub("", reply[: action.start()] if action else reply).strip()
        episode.steps.append({"thought": thought})
        if action is None:
            text += form.written(said)
            break
        if action["query"] is None:
            return final_text(unwrapped(action["answer"]))
        found = await episode.search(action["query"].strip(), ctx, settings.k, characters)
        begin, end = form.results
        closed = said if said.endswith(form.query[1]) else said + form.query[1]
        text += f"{form.written(closed)}\n\n{begin}{form.harmless(found)}{end}\n\n"
    answered = form.answer[0] + await continued(asked, text + form.answer[0], ctx, settings.turn_tokens, form)
    action = form.action.match(answered)
    return final_text(unwrapped(action["answer"])) if action else None


async def continued(asked: str, text: str, ctx: Context, max_tokens: int, form: Format) -> str:
    """Let the LLM continue its text, up to a query or an answer."""
    messages = (Message("user", asked), *([Message("assistant", text)] if text else []))
    stop = (form.query[1], *([form.answer[1]] if form.answer[1] != "}" else []))
    return (await ctx.complete(Request(messages, max_tokens, stop=stop), "turn", "answer")).text


def unwrapped(answer: str) -> str:
    """Return an answer without the LaTeX command around a text."""
    return re.sub(r"^\\text\{([^{}]*)\}$", r"\1", answer.strip())
