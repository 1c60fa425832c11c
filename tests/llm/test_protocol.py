"""A request's digest names the work: the same in any process, another for whatever may change the answer."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from pyfast.errors import CallError
from pyfast.llm import Message, Request, dialogue

BASE = Request(dialogue("Where is Oslo?", "Be brief."), 10, {"type": "object", "title": "A"}, 0.0, 0)


def test_equal_requests_have_equal_digests() -> None:
    same = Request(dialogue("Where is Oslo?", "Be brief."), 10, {"title": "A", "type": "object"}, 0.0, 0)
    assert same.digest() == BASE.digest() and len(BASE.digest()) == 16
    code = f"from pyfast.llm import *; print({BASE!r}.digest().hex())"
    names = "from pyfast.llm import Message, Request\n"
    printed = subprocess.check_output([sys.executable, "-c", names + code], text=True)
    assert printed.strip() == BASE.digest().hex()


@pytest.mark.parametrize(
    "change",
    [
        {"messages": dialogue("Where is Oslo?")},
        {"messages": (*BASE.messages, Message("assistant", "{}"), Message("user", "again"))},
        {"messages": dialogue("Where is Oslo", "?Be brief.")},
        {"max_tokens": 11},
        {"schema": None},
        {"schema": {"type": "object", "title": "B"}},
        {"temperature": 0.5},
        {"seed": 1},
        {"embeds": np.zeros((2, 3), np.float32)},
    ],
    ids=str,
)
def test_whatever_may_change_the_answer_changes_the_digest(change: dict[str, object]) -> None:
    assert replace(BASE, **change).digest() != BASE.digest()


def test_embeddings_count_with_their_shape() -> None:
    shapes = [np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), np.ones((2, 3), np.float32)]
    assert len({replace(BASE, embeds=array).digest() for array in shapes}) == 3


def test_text_that_is_not_unicode_has_no_digest() -> None:
    with pytest.raises(CallError, match="Unicode"):
        Request(dialogue("\ud800"), 5).digest()
