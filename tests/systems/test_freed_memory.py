"""A question that has ended leaves nothing in memory, even if Python's garbage collector does not run."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from runs import Watched, answer_all
from test_partial_records import SETTINGS

from pyfast.engine import Context, Ledger, Question, Record
from pyfast.errors import CallError
from pyfast.knowledge import Session
from pyfast.llm import Completion, Request
from pyfast.systems import load_system, names


class Odd(Watched):
    """Every call fails, or has a reply of the wrong form."""

    def __init__(self, does_reply: bool) -> None:
        super().__init__()
        self.does_reply = does_reply

    async def complete(self, request: Request) -> Completion:
        await super().complete(request)
        if not self.does_reply:
            raise CallError("refused")
        return Completion("nothing", "stop", 10, 1)


@pytest.fixture(scope="module", autouse=True)
def nothing_before() -> None:
    """What is alive already is not looked at: in the midst of a run of all tests that takes seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    kinds = Context, Ledger, Request
    # An `isinstance` fails for the dead proxies of other tests.
    return Counter(type(found).__name__ for found in gc.get_objects() if type(found) in kinds)


def left_after(name: str, known: Session, llm: Watched) -> tuple[set[str], Counter[str]]:
    """(the states of some questions, what they left in memory)."""
    system = load_system(name)
    session = known if system.opens is not None and name != "graph_convqa" else None
    ask = system.ask(system.configure(SETTINGS.get(name, {})), session)
    found: list[Record] = []
    asked = (Question(f"q{number}", "Who discovered the moon that Huygens landed on?") for number in range(3))
    before = alive()
    asyncio.run(answer_all(asked, ask, known.index, llm, found.append))
    return {record.state for record in found}, alive() - before


LLMS: dict[str, Callable[[], Watched]] = {
    "answered": Watched,
    "refused": lambda: Odd(does_reply=False),
    "malformed": lambda: Odd(does_reply=True),
}
STATES = {"answered": {"answered"}, "refused": {"failed"}, "malformed": {"answered", "abstained", "failed"}}


@pytest.mark.parametrize("llm", LLMS)
@pytest.mark.parametrize("name", names())
def test_a_question_leaves_nothing(name: str, llm: str, known: Session, no_collector: None) -> None:
    states, left = left_after(name, known, LLMS[llm]())
    assert states <= STATES[llm]
    assert not left
