"""Price lists. A price list has the price of each model's tokens."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyfast.errors import InputError, first_fault

_MILLION = 1e6


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
        return (paid + completion_tokens * self.output) / _MILLION


class Prices(BaseModel):
    """A price list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = "USD"
    models: Mapping[str, Price]

    def price(self, spec: str) -> Price:
        """Find the price of the model that a text such as `openai:MODEL@URL` names.

        The list is searched first for the whole text, then for MODEL.

        Raises:
            InputError: The list has no such model.
        """
        model = spec.partition(":")[2].partition("@")[0] or spec
        price = self.models.get(spec) or self.models.get(model)
        if price is None:
            known = ", ".join(sorted(self.models)) or "no model"
            raise InputError(f"no price for {model!r}; the list has {known}")
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
        >>> from pyfast.evaluation.prices import read_prices
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


def listed(prices: str | Path | Prices | None) -> Prices | None:
    """Return a price list. If `prices` is the path of a file, read the list from it. Raises `InputError` as
    `read_prices` does.
    """
    return read_prices(prices) if isinstance(prices, str | Path) else prices
