"""What may be used again is asked for once, by whichever run; everything else goes through."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from pyfast.errors import AnswerError, CallError
from pyfast.llm import CachedLLM, Completion, Request
from pyfast.llm.instant import Instant
from pyfast.llm.protocol import dialogue
from pyfast.systems.hseq.guidance import GUIDE


class Counting(Instant):
    """The instant LLM, which remembers how often it was asked."""

    def __init__(self, name: str = "counting", reason: str = "stop") -> None:
        super().__init__()
        self.asked, self.name, self.reason = 0, name, reason

    @property
    def fingerprint(self) -> str:
        return self.name

    async def complete(self, request: Request) -> Completion:
        self.asked += 1
        return Completion(f"{self.name} {self.asked} é", self.reason, 7, 3, 2)


def request(text: str = "plan", reusable: bool = True, max_tokens: int = 9) -> Request:
    return Request(dialogue(text), max_tokens, reusable=reusable)


async def test_the_same_is_asked_once(tmp_path: Path) -> None:
    model = Counting()
    first = await CachedLLM(model, tmp_path).complete(request())
    assert (
        await CachedLLM(model, tmp_path).complete(request())
        == first
        == Completion("counting 1 é", "stop", 7, 3, 2)
    )
    await CachedLLM(model, tmp_path).complete(request("other"))
    await CachedLLM(model, tmp_path).complete(request(max_tokens=8))
    assert model.asked == 3


async def test_another_model_is_asked_itself(tmp_path: Path) -> None:
    await CachedLLM(Counting("one"), tmp_path).complete(request())
    assert (await CachedLLM(Counting("two"), tmp_path).complete(request())).text == "two 1 é"


async def test_only_what_passes_its_check_is_kept_and_taken(tmp_path: Path) -> None:
    """The prompt's own parser: of HSEQ's guidance, one that is too short (A.3.3)."""

    def check(completion: Completion) -> None:
        if completion.text in refused:
            raise AnswerError("too short")

    refused, model = {"counting 1 é"}, Counting()
    asked = replace(request(), check=check)
    assert (await CachedLLM(model, tmp_path).complete(asked)).text == "counting 1 é"  # its prompt refuses it
    assert not list(tmp_path.rglob("*.json"))
    assert [(await CachedLLM(model, tmp_path).complete(asked)).text for _ in range(2)] == ["counting 2 é"] * 2
    refused.add("counting 2 é")  # kept by a release that asked for less
    assert [(await CachedLLM(model, tmp_path).complete(asked)).text for _ in range(2)] == ["counting 3 é"] * 2
    assert GUIDE.request({"question": "Who?"}, 0.0, 0).check is not None


@pytest.mark.parametrize(("reusable", "reason"), [(False, "stop"), (True, "length")])
async def test_what_is_not_kept(tmp_path: Path, reusable: bool, reason: str) -> None:
    model = Counting(reason=reason)
    for _ in range(2):
        await CachedLLM(model, tmp_path).complete(request(reusable=reusable))
    assert model.asked == 2 and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"text": 1, "wrong": 2}'])
async def test_what_is_damaged_is_asked_for_again(tmp_path: Path, damage: bytes) -> None:
    model = Counting()
    await CachedLLM(model, tmp_path).complete(request())
    (kept,) = tmp_path.rglob("*.json")
    kept.write_bytes(damage)
    assert (await CachedLLM(model, tmp_path).complete(request())).text == "counting 2 é"
    assert (await CachedLLM(model, tmp_path).complete(request())).text == "counting 2 é"


KEPT = {"text": "forged", "finish_reason": "stop", "prompt_tokens": 7, "cached_tokens": 3, "completion_tokens": 2}
FORGED = {
    "an edited text": lambda entry, other: {**entry, "completion": {**entry["completion"], "text": "forged"}},
    "negative tokens": lambda entry, other: sealed(entry, prompt_tokens=-1),
    "tokens that are true": lambda entry, other: sealed(entry, prompt_tokens=True),
    "a text that is a number": lambda entry, other: sealed(entry, text=1),
    "a text that was cut off": lambda entry, other: sealed(entry, finish_reason="length"),
    "another request's": lambda entry, other: other,
    "another format's": lambda entry, other: KEPT,
    "a newer format's": lambda entry, other: checked({**entry, "format": 2}),
}


def checked(entry: dict[str, Any]) -> dict[str, Any]:
    """With a checksum that holds."""
    said = {name: value for name, value in entry.items() if name != "blake2b"}
    return {**said, "blake2b": hashlib.blake2b(orjson.dumps(said), digest_size=16).hexdigest()}


def sealed(entry: dict[str, Any], **changes: object) -> dict[str, Any]:
    return checked({**entry, "completion": {**entry["completion"], **changes}})


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
async def test_what_is_not_what_was_kept_is_asked_for_again(tmp_path: Path, forge: Callable[..., Any]) -> None:
    model = Counting()
    await CachedLLM(model, tmp_path).complete(request("other"))
    (other,) = tmp_path.rglob("*.json")
    await CachedLLM(model, tmp_path).complete(request())
    (kept,) = set(tmp_path.rglob("*.json")) - {other}
    entry = orjson.loads(kept.read_bytes())
    assert checked(entry) == entry
    kept.write_bytes(orjson.dumps(forge(entry, orjson.loads(other.read_bytes()))))
    for _ in range(2):
        assert (await CachedLLM(model, tmp_path).complete(request())).text == "counting 3 é"
    assert model.asked == 3


@pytest.mark.parametrize("said", ["\udc80", '{"plan": '])
async def test_what_answers_nothing_is_not_kept(tmp_path: Path, said: str) -> None:
    class Saying(Counting):
        async def complete(self, request: Request) -> Completion:
            self.asked += 1
            return Completion(said, "stop")

    model, asked = Saying(), Request(dialogue("plan"), 9, schema={"type": "object"}, reusable=True)
    for _ in range(2):
        assert (await CachedLLM(model, tmp_path).complete(asked)).text == said
    assert model.asked == 2 and not list(tmp_path.rglob("*.json"))


async def test_where_nothing_can_be_kept_it_answers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert (await CachedLLM(Counting(), tmp_path / "file").complete(request())).text == "counting 1 é"
    with pytest.raises(CallError):
        await CachedLLM(Counting(), tmp_path).complete(request("\ud800"))


async def test_it_is_the_backend_to_all_others(tmp_path: Path) -> None:
    model = Counting()
    kept = CachedLLM(model, tmp_path)
    await kept.start()
    assert (kept.spec, kept.slots, kept.context_window) == (model.spec, model.slots, model.context_window)
    assert kept.fingerprint == model.fingerprint
    await kept.close()
