"""Cascade: one search and a first answer. If the answer is uncertain, the question is passed on to more expensive
systems, until an answer is certain or the question's call or token limit is reached."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pyfast.engine import Answer, Context, Prompt, Question, Sampling
from pyfast.errors import AnswerError
from pyfast.systems import n2n, rag, system
from pyfast.systems.combinations import Inert
from pyfast.systems.confidence import FEATURES, Weights, agreement_of, confidence_of, gap_of, support_of
from pyfast.systems.hseq import system as hseq
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.hseq.guidance import GUIDE
from pyfast.systems.hseq.head import head_prompt
from pyfast.systems.prompts import ANSWER, EXTRACT, PLAN, AnswerFields, answer_prompt, final_text, unless_known

Later = Literal["rag", "n2n", "hseq"]
_FOR_EFFORT = 2  # additional steps if passages are chosen by `effort`


def _listed(given: Any) -> Any:
    """Split a string at its commas. Return other values unchanged."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given


def _different(given: tuple[Later, ...]) -> tuple[Later, ...]:
    if len(set(given)) < len(given):
        raise ValueError("expected each system only once")
    return given


class Settings(n2n.Settings):
    """The settings of the first answer and of the confidence, in addition to those of `n2n`."""

    inert: ClassVar[tuple[Inert, ...]] = (
        *n2n.Settings.inert,
        Inert(("draft_abstains",), "abstain", (True,)),
    )

    k: system.PassageCount = Field(
        default=10,
        ge=1,
        description="Number of passages and table rows retrieved for the first answer.",
    )
    draft_abstains: bool = Field(
        default=True,
        description="With `abstain=off`, still allow the LLM to abstain in the first answer, so that the question"
        " is passed on to the next system.",
    )
    temperature: float = Field(
        default=0.0,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="The temperature at which the LLM writes a second draft, which is compared with the first. If"
        " the two agree, pyfast is more confident. 0: only one draft.",
    )
    then: Annotated[tuple[Later, ...], BeforeValidator(_listed), AfterValidator(_different)] = Field(
        default=("n2n",),
        description="The systems that can answer an uncertain question next, in this order. Use `rag` only if"
        " the first answer has its own model (the role `draft`), because `rag` reads the same passages again.",
    )
    sure: float = Field(
        default=0.54,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The confidence above which an answer counts as certain. 0: all answers are certain."
        " 1: none is.",
    )
    weights: Annotated[Weights, BeforeValidator(_listed)] = Field(
        default=(-0.359, 0.137, 0.0, 0.344, 0.834, -0.091),
        description="The weights of the confidence: bias, later (for a later system's answer), support and"
        " coverage (the answer's and the question's words in the evidence), agreement (with other answers) and"
        " gap (the lead of the best passage). `pyfast train cascade` computes them from gold answers.",
    )
    most_calls: int = Field(
        default=0,
        ge=0,
        description="Maximum number of LLM calls per question. A system starts only if the remaining calls suffice"
        " for it, not counting retries after malformed replies. 0: no limit.",
    )
    most_tokens: int = Field(
        default=0,
        ge=0,
        description="Maximum number of tokens per question. A system starts only if the remaining tokens suffice"
        " for its calls, at the mean size of the question's calls so far. 0: no limit.",
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """A system to which a question can be passed on. The first answer is a stage too."""

    answer: Callable[[Question, Context, Settings], Coroutine[Any, Any, Answer]]
    last: Prompt[Any]
    """The prompt whose reply the system needs for an answer"""
    calls: int
    """The maximum number of LLM calls, if all replies are usable"""
    steps: int
    """The maximum number of steps, if all replies are usable"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A system's answer and how certain it is, or the reason why there is no answer."""

    by: str
    found: Answer
    features: tuple[float, ...] = ()
    """The values of `FEATURES`. Empty if there is no answer"""
    confidence: float = 0.0
    """From 0 to 1. 0 if there is no answer"""
    failed: str = ""
    """Why no reply to the system's last prompt was usable. Empty: a reply was usable"""

    def doubt(self, sure: float) -> str:
        """Return why the question should be passed on, or an empty string if the answer is certain."""
        if self.failed or self.found.text is None:
            return self.failed or "it abstained"
        return "" if self.confidence > sure else f"the confidence {self.confidence:.4f} is not above {sure:g}"

    def as_json(self) -> dict[str, Any]:
        """Return the attempt for the trace."""
        told: dict[str, Any] = {"by": self.by, "answer": self.found.text}
        if self.features:
            told |= {name: round(value, 4) for name, value in zip(FEATURES[2:], self.features[2:], strict=True)}
        return {**told, "confidence": round(self.confidence, 4)}


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question with the first system whose answer is certain. If there is none, return the last
    answer.
    """
    ctx.hold_text()  # A client must not see an answer that a later one may replace.
    attempts: list[dict[str, Any]] = []
    trace: dict[str, Any] = {"attempts": attempts}
    tried: list[Attempt] = []
    lacks = ""
    for by in ("draft", *settings.then):
        if tried:
            doubt = tried[-1].doubt(settings.sure)
            lacks = lacking(by, ctx, settings) if doubt else ""
            if lacks or not doubt:
                break
            if tried[-1].failed:
                ctx.fell_back(STAGES[tried[-1].by].last, doubt)
            attempts[-1]["passed_on"] = f"to {by}: {doubt}"
        tried.append(await attempt(by, tried, question, ctx, settings))
        attempts.append(tried[-1].as_json())
    last = tried[-1]
    best = max(reversed(tried), key=lambda one: (not one.failed, one.found.text is not None))
    if best.failed:
        raise AnswerError(last.failed)
    if last.failed:
        ctx.fell_back(STAGES[last.by].last, last.failed)
    trace |= {"answer_by": best.by, "outcome": f"{last.by}: {last.doubt(settings.sure) or 'sure'}{lacks}"}
    for one in tried:
        trace |= one.found.trace
    return Answer(best.found.text, best.found.evidence, trace)


async def attempt(
    by: str, before: Sequence[Attempt], question: Question, ctx: Context, settings: Settings
) -> Attempt:
    """Let a system answer, and compute how certain the answer is. `before` contains the attempts of earlier
    systems.
    """
    try:
        found = await STAGES[by].answer(question, ctx, settings)
    except AnswerError as error:
        return Attempt(by, Answer(None), failed=str(error))
    if found.text is None:
        return Attempt(by, found)
    others = [one.found.text for one in before if one.found.text is not None]
    if "second_draft" in found.trace:
        others = [found.trace["second_draft"] or ""]
    support, coverage = await ctx.call(support_of, (question.text, found.text, found.evidence))
    agreement = max((agreement_of(found.text, other) for other in others), default=0.5)
    features = (1.0, 1.0, support, 0.0, agreement, 0.0)
    if by == "draft":
        features = (1.0, 0.0, support, coverage, agreement, found.trace["gap"])
    return Attempt(by, found, features, confidence_of(features, settings.weights))


async def draft(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer from the passages of one search, as `rag` does. If there is an answer, ask a second time."""
    searched, pool = await rag.search(question.text, settings.k, settings.effort, ctx)
    trace: dict[str, Any] = {"gap": gap_of(searched)}
    found = ctx.evidence(pool)
    ctx.so_far(lambda: Answer(None, found, trace))
    prompt = unless_known(answer_prompt(ctx, pool, DRAFT.role), settings.abstain or settings.draft_abstains)
    prompt = _drafting(prompt)
    context = await ctx.narrative(pool, prompt, question.text, settings.evidence_share)
    fields = {"context": context, "path": "", "question": question.text}
    text = final_text((await ctx.generate(prompt, **fields)).answer)
    if text is not None and settings.temperature and not lacking("rag", ctx, settings):
        trace["second_draft"] = None
        try:
            reply = await ctx.generate(prompt, Sampling(settings.temperature, seed=1), **fields)
            trace["second_draft"] = final_text(reply.answer)
        except AnswerError as error:
            ctx.fell_back(DRAFT, error)
    return Answer(text, found, trace)


def _rag(question: Question, ctx: Context, settings: Settings) -> Coroutine[Any, Any, Answer]:
    same = {name: getattr(settings, name) for name in ("abstain", "effort", "evidence_share", "k")}
    return rag.answer(question, ctx, rag.Settings(**same))


def _hseq(question: Question, ctx: Context, settings: Settings) -> Coroutine[Any, Any, Answer]:
    return hseq.answer(question, ctx, hseq.Settings(abstain=settings.abstain, effort=settings.effort))


@cache
def _drafting(prompt: Prompt[AnswerFields]) -> Prompt[AnswerFields]:
    return replace(prompt, name="draft", role="draft")


DRAFT = _drafting(ANSWER)
"""The prompt of `rag`, in a separate role, so that a smaller model can reply to it"""
STAGES: Mapping[str, Stage] = {
    "draft": Stage(draft, DRAFT, calls=2, steps=5),
    "rag": Stage(_rag, ANSWER, calls=1, steps=5),
    "n2n": Stage(n2n.answer, ANSWER, calls=4, steps=18),
    "hseq": Stage(_hseq, head_prompt(1), calls=6, steps=18),
}


def lacking(by: str, ctx: Context, settings: Settings) -> str:
    """Return a description of the calls or tokens that the question's budget lacks for a system, or an empty
    string if it lacks none."""
    left, used, stage = ctx.remaining(), ctx.ledger, STAGES[by]
    calls = min(left.calls, settings.most_calls - used.llm_calls if settings.most_calls else inf)
    tokens = min(left.tokens, settings.most_tokens - used.tokens if settings.most_tokens else inf)
    steps = stage.steps + (0 if settings.effort == "paper" else _FOR_EFFORT)
    expected = stage.calls * used.tokens // max(used.llm_calls, 1)
    for kind, has, need in (
        ("calls", calls, stage.calls),
        ("tokens", tokens, expected),
        ("steps", left.steps, steps),
    ):
        if has < need:
            return f"; {by} may need {need} {kind}, and {max(has, 0)} are left"
    return ""


SYSTEM = system.System(
    "cascade",
    answer,
    Settings,
    (DRAFT, PLAN, EXTRACT, ANSWER, GUIDE, select_prompt(1, 1), head_prompt(1)),
    summary="a first answer from one search; if it is uncertain, the question is passed on to `n2n` or others",
    paper="pyfast's own. FrugalGPT (Chen et al. 2023) has a cascade of language models",
)
