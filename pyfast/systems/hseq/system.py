"""HSEQ: a policy (an LLM or a rule) chooses evidence from text, tables and knowledge graphs, in steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from pyfast.corpus import Level
from pyfast.engine import Answer, Context, Question
from pyfast.errors import AnswerError
from pyfast.systems import system
from pyfast.systems.combinations import Inert, Preset
from pyfast.systems.effort import may_be_unread
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.hseq.evidence_package import EvidencePackage, canonicalize
from pyfast.systems.hseq.guidance import GUIDE, guidance_text, template, tightened
from pyfast.systems.hseq.head import FRAME, TOKENS, VERIFY, HeadFields, affordable, ask_head, head_prompt, numbered
from pyfast.systems.hseq.iterator import STEP_COST, Limits, Policy, Progress, iterate, so_far
from pyfast.systems.hseq.policies import lexical_policy, llm_policy
from pyfast.systems.hseq.views import PRIORITY
from pyfast.systems.hseq.windows import open_window
from pyfast.systems.prompts import final_text
from pyfast.utils.token_budget import cut_evenly

_UNREAD = 0.4
"""How many passages with evidence `effort=auto` may leave out. Chosen together with `_CHARACTERS` on the tuning
questions of benchmarks/fewer_tokens.py (`--odd`)"""
_CHARACTERS = 400
"""The default of `characters` unless `effort` is `paper`. Windows then have fewer segments, which may be longer"""
_CONCLUSION = 2  # steps reserved for the package and for the head's answer


def _levels(given: Any) -> Any:
    """Convert level names to levels. `given` is a list of names, or a comma-separated string.
    Raises `ValueError` for an unknown or repeated name."""
    if isinstance(given, str):
        given = given.split(",")
    texts = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    names = [name.strip().upper() for name in given] if texts else []
    if len(set(names)) < len(names) or not set(names) <= Level.__members__.keys():
        raise ValueError(f"expected distinct levels among {', '.join(Level.__members__).lower()}")
    return [Level[name] for name in names] or given


class Settings(system.Sparing, system.Abstaining):
    """The parameters from HSEQ's paper (table 7, A.3.5). Some settings switch off parts of the method, for the
    paper's ablations."""

    inert: ClassVar[tuple[Inert, ...]] = (
        Inert(("guidance", "k", "steps", "min_steps", "threshold", "characters", "refine"), "iterator", ("off",)),
        Inert(("guidance", "characters"), "iterator", ("lexical",)),
        Inert(("threshold",), "iterator", ("llm",)),  # The LLM's score is 0 or 1.
    )

    iterator: Literal["llm", "lexical", "off"] = Field(
        default="llm",
        description="How segments (paragraphs, table rows and so on) are picked as evidence. `llm`: by the LLM."
        " `lexical`: by comparison with the question's words, without an LLM. `off`: none are picked, and the"
        ' evidence is the first window ("LLM-only").',
        json_schema_extra={"paper": "algorithm 1; table 5"},
    )
    guidance: Literal["head", "template", "off"] = Field(
        default="head",
        description="Where the guidance (a plan that the LLM follows when it picks segments) comes from. `head`:"
        " an LLM (role `plan`). `template`: a fixed text for each kind of question. `off`: no guidance.",
        json_schema_extra={"paper": "section 3.5, A.3.3; table 5"},
    )
    window: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Number of segments shown per step (W).",
        json_schema_extra={"paper": "section 3.4, algorithm 1"},
    )
    k: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Maximum number of segments picked per step, at most `window`.",
        json_schema_extra={"paper": "algorithm 1; table 7"},
    )
    steps: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Maximum number of steps (T_max).",
        json_schema_extra={"paper": "algorithm 1; table 7"},
    )
    min_steps: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Minimum number of steps (T_min, at most `steps`), even if the evidence suffices earlier.",
        json_schema_extra={"paper": "algorithm 1; A.3.5"},
    )
    threshold: float = Field(
        default=1.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Minimum score of sufficient evidence. The score is the share of the question's words that "
        "the evidence covers, with more weight for rare words.",
        json_schema_extra={"paper": "A.3.5"},
    )
    prior: system.PassageCount = Field(
        default=48,
        ge=0,
        description="Number of passages and rows of a search that are shown first. Then come other segments of"
        " their documents (at most 1,024), then all others, each in the order of `order`. 0: no search, as in"
        " the paper.",
    )
    order: Annotated[tuple[Level, ...], BeforeValidator(_levels)] = Field(
        default=PRIORITY,
        min_length=1,
        description="The order in which segments of different levels are shown (ρ): levels separated by commas.",
        json_schema_extra={"paper": "section 3.4, A.1"},
    )
    characters: int = Field(
        default=240,
        ge=40,
        le=4000,
        description="Maximum number of characters shown per segment. For a longer segment, pyfast shows the"
        " beginning and the part that contains the most words of the question. Unless `effort` is `paper`, the"
        " default is 400.",
        json_schema_extra={"paper": "A.3.2"},
    )
    refine: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Maximum number of additional steps (Δ) if the verifier (role `judge`) finds that the"
        " evidence contradicts itself or the first answer. 0: no verifier.",
        json_schema_extra={"paper": "section 3.5, A.3.5"},
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_iterator(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given if given.get("iterator", "llm") == "llm" else {"guidance": "off", **given}

    @model_validator(mode="before")
    @classmethod
    def _of_the_effort(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given if given.get("effort", "paper") == "paper" else {"characters": _CHARACTERS, **given}

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.k > self.window and self.iterator != "off":
            raise ValueError("k must not be greater than window")
        if self.effort != "paper" and not self.prior:
            raise ValueError(f"effort={self.effort} chooses among found passages, so prior must be above 0")
        if self.min_steps > self.steps:
            raise ValueError("min_steps must not be greater than steps")
        return self

    def unread(self) -> float | None:
        """Return how many passages with evidence the setting `effort` may leave out. None: nothing is left out."""
        return may_be_unread(self.effort, _UNREAD)

    def limits(self) -> Limits:
        """Return the limits for the iterator's steps."""
        return Limits(self.window, self.k, self.steps, self.min_steps, self.order, self.threshold)


async def answer(question: Question, ctx: Context, settings: Settings) -> Answer:
    """Answer a question (HSEQ's paper, equation 1).

    The policy selects segments, which become the evidence package, from which the head answers.
    """
    if ctx.remaining().steps < 1 + _CONCLUSION:
        return Answer(None, trace={"ended": "budget"})
    source, guidance = await guide(question.text, ctx, settings)
    how = settings.window, settings.prior, settings.order, settings.unread()
    view = await ctx.call(open_window, question.text, *how)
    progress = Progress(guidance, view, source=source)
    policy = policy_of(ctx, settings)
    if settings.iterator == "off":
        progress = replace(progress, selected=view.window, ended="off")
    ctx.so_far(partial(so_far, ctx.index, progress))
    if settings.iterator != "off":
        progress = await iterate(progress, policy, ctx, settings.limits(), _CONCLUSION)
    package, reply = await conclude(question.text, progress, ctx, settings.abstain)
    trace: dict[str, Any] = {"guidance": {"source": source, "text": guidance}}

    if settings.refine and settings.iterator != "off" and reply is not None:
        settle = await contradiction(question.text, package, reply, ctx)
        if settle is not None:
            trace["settle"] = settle
            progress = replace(progress, guidance=tightened(guidance, settle))
            limits = replace(settings.limits(), max_steps=settings.refine, min_steps=1)
            progress = await iterate(progress, policy, ctx, limits, _CONCLUSION)
            first = package, reply  # This one is kept if no later one is better.
            try:
                package, reply = await conclude(question.text, progress, ctx, settings.abstain)
            except AnswerError as error:
                ctx.fell_back(head_prompt(1), error)
                trace["refinement"] = str(error)
            if reply is None:
                package, reply = first

    trace |= {"steps": progress.steps, "ended": progress.ended}
    if reply is None:
        return Answer(None, package.json(), trace)
    trace["supporting"] = [package.items[label - 1]["id"] for label in dict.fromkeys(reply.supporting)]
    return Answer(final_text(reply.answer), package.json(), trace)


async def guide(question: str, ctx: Context, settings: Settings) -> tuple[str, str]:
    """Write the guidance, and return (its source, the guidance). The head writes it only if the budget also allows
    the later calls: one for the policy and one for the answer. Otherwise, it is a fixed text. The result is
    ("off", "") if the setting `guidance` is `off`, or the policy is lexical.
    """
    if settings.guidance == "off" or settings.iterator != "llm":
        return "off", ""
    left = ctx.remaining()
    afforded = left.calls >= 3 and left.steps >= 2 + STEP_COST + _CONCLUSION
    if (
        settings.guidance == "head"
        and afforded
        and ctx.text_budget(GUIDE, left.tokens - 2 * TOKENS) >= len(question)
    ):
        rest = left.without(calls=2, tokens=2 * TOKENS, steps=1 + STEP_COST + _CONCLUSION)
        attempts = affordable(ctx, rest, len(question))
        try:
            return "head", guidance_text(await ctx.generate(GUIDE.tried(attempts), question=question))
        except AnswerError as error:
            ctx.fell_back(GUIDE, error)
            return f"template: {error}", template(question)
    if settings.guidance == "head":
        ctx.fell_back(GUIDE, "guide: no budget for the head's guidance")
    return "template", template(question)


def policy_of(ctx: Context, settings: Settings) -> Policy:
    """Return the policy that the setting `iterator` selects: the LLM policy or the lexical policy."""
    if settings.iterator == "llm":
        return llm_policy(ctx, settings.k, settings.characters, TOKENS)
    return lexical_policy(ctx, settings.k)


async def conclude(
    question: str, progress: Progress, ctx: Context, abstain: bool
) -> tuple[EvidencePackage, HeadFields | None]:
    """Return (the evidence package, the head's answer).

    The answer is None if there is no evidence, or if the budget does not allow an answer.
    """
    package = await ctx.call(canonicalize, tuple(it.position for it in progress.selected))
    return package, await ask_head(question, package, ctx, abstain) if package.segments else None


async def contradiction(question: str, package: EvidencePackage, reply: HeadFields, ctx: Context) -> str | None:
    """Ask the verifier whether the evidence contradicts itself or the answer. Return its advice on how to
    settle the contradiction, or None if there is no contradiction, the reply is unusable, or the budget does
    not allow a second round of selection."""
    left = ctx.remaining()
    budget = ctx.text_budget(VERIFY, left.tokens - 3 * TOKENS) - len(question) - len(reply.answer)
    lines = cut_evenly(package.lines, budget, FRAME)
    if left.calls < 3 or left.steps < 1 + STEP_COST + _CONCLUSION or not lines:
        return None
    fields = {"evidence": numbered(lines), "question": question, "answer": reply.answer}
    rest = left.without(calls=2, tokens=2 * TOKENS, steps=STEP_COST + _CONCLUSION)
    attempts = affordable(ctx, rest, sum(map(len, fields.values())))
    try:
        verdict = await ctx.generate(VERIFY.tried(attempts), **fields)
    except AnswerError as error:
        ctx.fell_back(VERIFY, error)
        return None
    return verdict.settle if verdict.contradiction else None


PRESETS = {
    f"paper-{size}": Preset(
        {"window": window, "k": k, "steps": 4, "order": PRIORITY, "abstain": False},
        f"the paper's sizes for {size} models: table 7, {size.upper()}; section 3.4's order",
    )
    for size, window, k in (("small", 48, 2), ("medium", 48, 4), ("large", 32, 5))
}

SYSTEM = system.System(
    "hseq",
    answer,
    Settings,
    (GUIDE, select_prompt(1, 1), head_prompt(1), VERIFY),
    summary="the LLM picks evidence from windows of texts, table rows and triples, until it is sufficient",
    paper="Hierarchical Sequence Iteration for Heterogeneous Question Answering",
    presets=PRESETS,
)
