"""Price lists of models, and the cost of a run: calls, tokens, seconds and money, per question and per correct
answer."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyfast.engine import recorded_value
from pyfast.engine.journal.journal_reader import Used, used_by
from pyfast.errors import InputError, first_fault
from pyfast.evaluation.metrics import Scored

P = TypeVar("P")


class Price(BaseModel):
    """The price of a million tokens of a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(None, ge=0, allow_inf_nan=False)
    """The price of input tokens that the model takes from its prefix cache. None: the same as other input
    tokens"""
    output: float = Field(ge=0, allow_inf_nan=False)

    def of(self, prompt_tokens: float, cached_tokens: float, completion_tokens: float) -> float:
        """Compute the price of a number of tokens. Cached tokens are a part of the prompt tokens."""
        cached = self.input if self.cached_input is None else self.cached_input
        paid = (prompt_tokens - cached_tokens) * self.input + cached_tokens * cached
        return (paid + completion_tokens * self.output) / 1e6


class Prices(BaseModel):
    """A price list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = "USD"
    models: Mapping[str, Price]

    def price(self, spec: str) -> Price:
        """Find the price of the model that a string such as `openai:MODEL@URL` names. The list is searched first
        for the whole string, then for MODEL.

        Raises:
            InputError: The list has no such model.
        """
        model = spec.partition(":")[2].partition("@")[0] or spec
        price = self.models.get(spec) or self.models.get(model)
        if price is None:
            known = ", ".join(sorted(self.models)) or "no model"
            raise InputError(f"no price for {model!r}; the list has prices for {known}")
        return price


def read_prices(path: str | Path) -> Prices:
    """Read a price list.

    Args:
        path: A TOML file: `currency`, and a table `[models."MODEL"]` with `input`, `output` and optionally
            `cached_input`, each per million tokens.

    Returns:
        The price list.

    Raises:
        InputError: The file cannot be read, or is not a price list.

    Example:
        >>> from pathlib import Path
        >>> from pyfast.evaluation import read_prices
        >>> _ = Path("prices.toml").write_text('[models."qwen3-8b"]\\ninput = 0.1\\noutput = 0.4\\n')
        >>> read_prices("prices.toml").price("openai:qwen3-8b@http://127.0.0.1:8000").of(1_000_000, 0, 500_000)
        0.3
    """
    try:
        return Prices.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    except ValidationError as error:
        raise InputError("{}: {}: {}".format(path, *first_fault(error))) from None


def listed(prices: str | Path | P) -> Prices | P:
    """Return the price list (or None) as it is given. If `prices` is a file's path, read the list from it. Raises
    `InputError` as `read_prices` does."""
    return read_prices(prices) if isinstance(prices, str | Path) else prices


_RIGHT = ("em", "h@1")
_COUNTS = ("llm_calls", "prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens")
_REUSED = ("reused", "reused_prompt_tokens", "reused_completion_tokens")


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of a run per question: means over the questions that were scored."""

    run: str
    llm_calls: float
    prompt_tokens: float
    cached_tokens: float
    """How many of the prompt tokens the LLM took from its prefix cache"""
    computed_tokens: float
    """The other prompt tokens: all of them if the LLM's server does not say what was cached"""
    completion_tokens: float
    seconds: float | None
    """The seconds from the start of a question to its end. None if they are unknown for at least one question"""
    money: float | None = None
    """The price of the LLM calls. None if there is no price list, or the run is in memory"""
    currency: str | None = None
    """The currency of `money`"""
    right: float | None = None
    """The share of correct answers, by exact match or H@1. None if neither was measured"""
    per_right: Mapping[str, float | None] = field(default_factory=dict)
    """The cost of one correct answer, for each cost such as `llm_calls`: the mean per question, divided by
    `right`. A value is None if no answer is right, or if the mean is 0 or unknown. Empty if `right` is None
    """
    reused: float = 0.0
    """How many of the LLM calls reused the reply of an earlier run or of another question. Calls, tokens and money
    count them, so that runs can be compared (`Run.money(paid=True)` does not). `seconds` does not"""
    reused_prompt_tokens: float = 0.0
    reused_completion_tokens: float = 0.0


def cost_of(run: str, folder: Path | None, scored: Sequence[Scored], prices: Prices | None) -> Cost:
    """Compute the cost of the scored questions of a run.

    Args:
        run: The run's name.
        folder: The run's folder. None for a run in memory, which has no times and no cached tokens.
        scored: The questions over which the means are computed.
        prices: A price list. None: no costs in money.

    Raises:
        InputError: A model of the run is missing in the price list.
    """
    journal = {} if folder is None else used_by(folder)
    used = [journal.get(one.id) or Used(**asdict(one.usage)) for one in scored]
    seconds = [one.seconds for one in used]
    figures = next((name for name in _RIGHT if any(name in one.shares for one in scored)), None)
    # A question without gold answers, of which only the evidence is scored, is neither right nor wrong.
    shares = [share for one in scored if figures and (share := one.figures.get(figures)) is not None]
    means: dict[str, float | None] = {
        **{name: fmean(getattr(one, name) for one in used) for name in (*_COUNTS, *_REUSED)},
        "seconds": None if None in seconds else fmean(one for one in seconds if one is not None),
        "money": None if prices is None or folder is None else fmean(_money(folder, used, prices)),
    }
    currency = None if prices is None or folder is None else prices.currency
    return _cost(run, currency, fmean(shares) if shares else None, means)


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Compute the mean of the costs of several runs with the same questions, such as the runs of several seeds."""

    def mean(name: str) -> float | None:
        values = [getattr(cost, name) for cost in costs]
        return None if None in values else fmean(values)

    means = {name: mean(name) for name in (*_COUNTS, *_REUSED, "seconds", "money")}
    return _cost(costs[0].run, costs[0].currency, mean("right"), means)


def _cost(run: str, currency: str | None, right: float | None, means: Mapping[str, float | None]) -> Cost:
    known = {} if right is None else means
    counted = {name: value for name, value in known.items() if name not in _REUSED}
    each = {name: value / right if right and value else None for name, value in counted.items()}
    return Cost(run=run, right=right, per_right=each, currency=currency, **means)  # type: ignore[arg-type]


def prices_of(folder: Path, roles: Iterable[str], prices: Prices) -> tuple[Price, dict[str, Price]]:
    """Find the prices of a run's default model and of the model of each role.

    Raises `InputError` if a model is missing from the price list.
    """
    default = recorded_value(folder, "places", "llm")
    specs = {role: recorded_value(folder, "places", f"{role}_llm") or default for role in roles}
    of_role = {role: prices.price(str(spec)) for role, spec in specs.items() if spec}
    return prices.price(str(default)) if default or not of_role else next(iter(of_role.values())), of_role


def money_by_id(folder: Path, prices: Prices, paid: bool = False) -> dict[str, float]:
    """Compute the price of the calls of each ended question of a run, by its id. With `paid`, reused calls cost
    nothing. Raises `InputError` if a model is missing from the price list."""
    used = used_by(folder)
    return dict(zip(used, _money(folder, list(used.values()), prices, paid), strict=True))


def _money(folder: Path, used: Sequence[Used], prices: Prices, paid: bool = False) -> list[float]:
    default, of_role = prices_of(folder, {role for one in used for role in one.by_role}, prices)
    return [money_of(one, default, of_role, paid) for one in used]


def money_of(used: Used, default: Price, of_role: Mapping[str, Price], paid: bool = False) -> float:
    """Compute the price of the calls of a question. If the run has several models with different prices, the
    function assumes the same shares of cached and of reused tokens for each model.
    """
    reused = used.reused_prompt_tokens, used.reused_completion_tokens
    tokens = used.prompt_tokens, used.completion_tokens
    new_in, new_out = (
        1 - (part / whole if paid and whole else 0) for part, whole in zip(reused, tokens, strict=True)
    )
    cached = used.cached_tokens / used.prompt_tokens if used.prompt_tokens else 0.0
    one_price = len({*of_role.values(), default}) == 1
    return sum(
        (default if one_price else of_role[role]).of(new_in * into, new_in * cached * into, new_out * out)
        for role, (into, out) in ({"": tokens} if one_price else used.by_role).items()
    )
