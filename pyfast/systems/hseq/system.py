"""HSEQ: one policy over text, tables and knowledge graphs. Guidance, steps over a window, package, answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pyfast.corpus import PRIORITY, Level
from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.retrieval import Package, canonicalize, open_window
from pyfast.systems import system
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.hseq.guidance import GUIDE, guidance_text, template, tightened
from pyfast.systems.hseq.head import TOKENS, VERIFY, HeadFields, ask_head, head_prompt, numbered, shortened
from pyfast.systems.hseq.iterator import STEP_COST, Limits, Policy, Progress, iterate
from pyfast.systems.hseq.policies import lexical_policy, llm_policy
from pyfast.systems.prompts import final_text

_CONCLUSION = 2  # batch points: the package, and the head's answer


def _levels(given: Any) -> Any:
    """Levels by their names. Raises ValueError for one that there is not, or that is there twice."""
    names = [name.strip().upper() for name in given.split(",")] if isinstance(given, str) else []
    if len(set(names)) < len(names) or not set(names) <= Level.__members__.keys():
        raise ValueError(f"expected different ones of {', '.join(Level.__members__).lower()}")
    return [Level[name] for name in names] or given


class Settings(system.Settings):
    """The paper's parameters (table 7, A.3.5), and its ablations (table 5) as switches."""

    iterator: Literal["llm", "lexical", "off"] = "llm"
    """Who picks: the LLM; the question's words; `off`: nobody, the first window is the evidence (LLM-only)."""
    guidance: Literal["head", "template", "off"] = "head"
    """Who plans for the LLM's picks."""
    window: int = Field(default=16, ge=1, le=256)
    """W"""
    k: int = Field(default=3, ge=1, le=64)
    """Picked in a step at most."""
    steps: int = Field(default=4, ge=1, le=1000)
    """T_max"""
    least_steps: int = Field(default=1, ge=1, le=1000)
    """T_min"""
    threshold: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """The score that is sufficient. The LLM's is 0 or 1; the lexical one is the covered share of the question."""
    prior: int = Field(default=64, ge=0, le=10_000)
    """Units found by a search that come before the order; 0: the order alone."""
    order: Annotated[tuple[Level, ...], BeforeValidator(_levels)] = PRIORITY
    """rho: levels, best first."""
    characters: int = Field(default=240, ge=40, le=4000)
    """Shown of each segment in the window: its beginning, and where the question is spoken of."""
    refine: int = Field(default=0, ge=0, le=1000)
    """Delta: steps of the one refinement that the verifier may ask for; 0: no verifier."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_iterator(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What changes nothing is refused."""
        iterator = given.get("iterator", "llm")
        if iterator != "llm" and "guidance" in given:
            raise ValueError("guidance wants iterator=llm")
        if iterator != "lexical" and "threshold" in given:
            raise ValueError("threshold wants iterator=lexical")
        return given if iterator == "llm" else {"guidance": "off", **given}

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.k > self.window:
            raise ValueError("k is at most window")
        if self.least_steps > self.steps:
            raise ValueError("least_steps is at most steps")
        return self

    def limits(self) -> Limits:
        """For the iterator."""
        return Limits(self.window, self.k, self.steps, self.least_steps, self.order, self.threshold)


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Equation 1: F(q, D) = H(q, kappa(M*))."""
    if ctx.left().steps < 1 + _CONCLUSION:
        return Answer(None, trace={"ended": "budget"})
    source, guidance = await guide(question.text, ctx, settings)
    view = await ctx.call(open_window, question.text, settings.window, settings.prior, settings.order)
    progress = Progress(guidance, view)
    policy = policy_of(ctx, settings)
    if settings.iterator == "off":
        progress = replace(progress, selected=view.window, ended="off")
    else:
        progress = await iterate(progress, policy, ctx, settings.limits(), _CONCLUSION)
    package, reply = await conclude(question.text, progress, ctx)
    trace: dict[str, Any] = {"guidance": {"source": source, "text": guidance}}

    if settings.refine and reply is not None:
        settle = await contradiction(question.text, package, reply, ctx)
        if settle is not None:
            trace["settle"] = settle
            progress = replace(progress, guidance=tightened(guidance, settle))
            limits = replace(settings.limits(), most=settings.refine, least=1)
            progress = await iterate(progress, policy, ctx, limits, _CONCLUSION)
            first = package, reply  # stands where there is no better one
            try:
                package, reply = await conclude(question.text, progress, ctx)
            except AnswerError as error:
                trace["refinement"] = str(error)
            if reply is None:
                package, reply = first

    trace |= {"steps": progress.steps, "ended": progress.ended}
    if reply is None:
        return Answer(None, package.json(), trace)
    trace["supporting"] = [package.pieces[label - 1]["id"] for label in dict.fromkeys(reply.supporting)]
    return Answer(final_text(reply.answer), package.json(), trace)


async def guide(question: str, ctx: Context, settings: Settings) -> tuple[str, str]:
    """(where it is from, the guidance): the head plans where the budget holds more than that."""
    if settings.guidance == "off":
        return "off", ""
    left = ctx.left()
    afforded = left.calls >= 3 and left.steps >= 2 + STEP_COST + _CONCLUSION
    if settings.guidance == "head" and afforded and ctx.room(GUIDE, left.tokens - 2 * TOKENS) >= len(question):
        try:
            return "head", guidance_text(await ctx.generate(GUIDE, question=question))
        except AnswerError as error:
            return f"template: {error}", template(question)
    return "template", template(question)


def policy_of(ctx: Context, settings: Settings) -> Policy:
    """pi."""
    if settings.iterator == "llm":
        return llm_policy(ctx, settings.k, settings.characters, TOKENS)
    return lexical_policy(ctx, settings.k)


async def conclude(question: str, progress: Progress, ctx: Context) -> tuple[Package, HeadFields | None]:
    """kappa(M) and the head's answer; None where there is no evidence, or no budget for an answer."""
    package = await ctx.call(canonicalize, tuple(it.position for it in progress.selected))
    return package, await ask_head(question, package, ctx) if package.segments else None


async def contradiction(question: str, package: Package, reply: HeadFields, ctx: Context) -> str | None:
    """The verifier xi: what is to be settled; None where nothing is, or no budget holds a refinement too."""
    left = ctx.left()
    room = ctx.room(VERIFY, left.tokens - 3 * TOKENS) - len(question) - len(reply.answer)
    lines = shortened(package.lines, room)
    if left.calls < 3 or left.steps < 1 + STEP_COST + _CONCLUSION or not lines:
        return None
    fields = {"evidence": numbered(lines), "question": question, "answer": reply.answer}
    try:
        verdict = await ctx.generate(VERIFY, **fields)
    except AnswerError:
        return None
    return verdict.settle if verdict.contradiction else None


SYSTEM = system.System("hseq", answer, Settings, (GUIDE, select_prompt(1, 1), head_prompt(1), VERIFY))
