"""The cost of a run: calls, tokens, seconds and money, per question and per correct answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from pyfast.engine import Record, recorded_value
from pyfast.engine.ended_questions import Used, used_by
from pyfast.evaluation.evaluate import Scored
from pyfast.evaluation.prices import Price, Prices

_RIGHT = ("em", "h@1")
_COUNTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of a run per question: means over the questions that were scored."""

    run: str
    llm_calls: float
    prompt_tokens: float
    cached_tokens: float
    """How many of the prompt tokens the LLM took from its prefix cache"""
    completion_tokens: float
    seconds: float | None
    """The seconds from the start of a question to its end. None if this time is not known for at least one
    question"""
    money: float | None = None
    """The price of the LLM calls. None if there is no price list, or the run is in memory"""
    currency: str | None = None
    """The currency of `money`"""
    right: float | None = None
    """The share of right answers, by exact match or H@1. None if neither was measured"""
    per_right: Mapping[str, float | None] = field(default_factory=dict)
    """The cost of one right answer, for each cost such as `llm_calls`: the mean per question, divided by
    `right`. A value is None if no answer is right, or if the mean is 0 or not known. Empty if `right` is None
    """


def cost_of(
    run: str, folder: Path | None, records: Mapping[str, Record], scored: Sequence[Scored], prices: Prices | None
) -> Cost:
    """Compute the cost of the scored questions of a run.

    Args:
        run: The run's name.
        folder: The run's folder. None for a run in memory, which has no times and no cached tokens.
        records: The run's records by id.
        scored: The questions over which the means are computed.
        prices: A price list. None: no costs in money.

    Raises:
        InputError: A model of the run is missing in the price list.
    """
    journal = {} if folder is None else used_by(folder)
    used = [journal.get(one.id) or _of(records[one.id]) for one in scored]
    seconds = [one.seconds for one in used]
    figures = next((name for name in _RIGHT if any(name in one.shares for one in scored)), None)
    right = None if figures is None else fmean(one.figures.get(figures) or 0.0 for one in scored)
    means: dict[str, float | None] = {
        **{name: fmean(getattr(one, name) for one in used) for name in _COUNTS},
        "seconds": None if None in seconds else fmean(one for one in seconds if one is not None),
        "money": None if prices is None or folder is None else _money(folder, used, prices),
    }
    known = {} if right is None else means
    each = {name: value / right if right and value else None for name, value in known.items()}
    currency = None if prices is None or means["money"] is None else prices.currency
    return Cost(run=run, right=right, per_right=each, currency=currency, **means)  # type: ignore[arg-type]


def _of(record: Record) -> Used:
    usage = record.usage
    return Used(None, usage.llm_calls, usage.prompt_tokens, 0, usage.completion_tokens, {})


def prices_of(folder: Path, roles: Iterable[str], prices: Prices) -> tuple[Price, dict[str, Price]]:
    """Find the prices of a run's default model and of the model of each role.

    Raises `InputError` if a model is missing in the price list.
    """
    default = recorded_value(folder, "places", "llm")
    specs = {role: recorded_value(folder, "places", f"{role}_llm") or default for role in roles}
    of_role = {role: prices.price(str(spec)) for role, spec in specs.items() if spec}
    return prices.price(str(default)) if default or not of_role else next(iter(of_role.values())), of_role


def _money(folder: Path, used: Sequence[Used], prices: Prices) -> float:
    default, of_role = prices_of(folder, {role for one in used for role in one.by_role}, prices)
    return fmean(money_of(one, default, of_role) for one in used)


def money_of(used: Used, default: Price, of_role: Mapping[str, Price]) -> float:
    """Compute the cost of a question in money. If the run has several models with different prices, the
    function assumes the same share of cached tokens for each model.
    """
    if len({*of_role.values(), default}) == 1:
        return default.of(used.prompt_tokens, used.cached_tokens, used.completion_tokens)
    cached = used.cached_tokens / used.prompt_tokens if used.prompt_tokens else 0.0
    return sum(of_role[role].of(into, cached * into, out) for role, (into, out) in used.by_role.items())
