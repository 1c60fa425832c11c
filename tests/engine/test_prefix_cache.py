"""The estimate of what a prefix cache saves, beside a look at all earlier prompts."""

import json
import math
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyfast
from pyfast.commands.cli import app
from pyfast.engine.journal.journal_reader import BLOCK, PrefixCache, words_of
from pyfast.errors import InputError

QUESTIONS = ["Who discovered Titan?", "Who discovered Rhea?", "Who discovered Titan?"]


def shared(words: list[str], earlier: list[list[str]]) -> int:
    """The words of the whole blocks that an earlier prompt begins with."""
    most = max((sum(1 for _ in takewhile(bool, map(str.__eq__, words, one))) for one in earlier), default=0)
    return min(most // BLOCK * BLOCK, len(words) - 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pyfast.Run:
    folder = tmp_path_factory.mktemp("prefix-cache")
    (folder / "saturn.md").write_text("# Saturn\n\nHuygens discovered Titan. Cassini discovered Rhea.\n")
    index = pyfast.build_index(folder / "saturn.md", folder / "index")
    return pyfast.answer(QUESTIONS, index=index, llm="instant", system="n2n", run=folder / "run", concurrency=1)


def test_without_a_limit_it_has_every_beginning(run: pyfast.Run) -> None:
    found, earlier, expected = run.prefix_cache(), list[list[str]](), dict[str, float]()
    for record in run.records:
        for call in run.prompts(record.id):
            assert call.messages and call.completion
            words = words_of(call.messages)
            size = call.completion.prompt_tokens * shared(words, earlier) / len(words)
            expected[call.prompt] = expected.get(call.prompt, 0.0) + size
            earlier.append(words)
    assert {name: one.cached for name, one in found.items()} == pytest.approx(expected)
    assert sum(one.tokens for one in found.values()) == run.status.prompt_tokens
    assert sum(one.calls for one in found.values()) == run.status.llm_calls
    assert found["plan"].cached > 0.6 * found["plan"].tokens  # The first of three finds nothing in the cache.


def test_a_small_cache_drops_what_was_read_long_ago(run: pyfast.Run) -> None:
    sizes = [sum(one.cached for one in run.prefix_cache(size).values()) for size in (16, 400, math.inf)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    cache, texts = PrefixCache(16 * 3), [[f"{name}{at}" for at in range(2 * BLOCK)] for name in "abc"]
    assert [cache.read(text) for text in texts] == [0, 0, 0]
    assert cache.read(texts[2]) == 2 * BLOCK - 1  # the last word is computed again
    assert cache.read(texts[1]) == BLOCK  # of the second its end was dropped
    assert cache.read(texts[0]) == 0


def test_the_command_shows_the_estimate(run: pyfast.Run) -> None:
    path = str(run.path)
    shown = CliRunner().invoke(app, ["status", path, "--prefix-cache", "100000", "--json"])
    estimate = json.loads(shown.stdout)["prefix_cache_estimate"]
    assert estimate["plan"]["cached"] == pytest.approx(run.prefix_cache(100_000)["plan"].cached)
    assert "estimate" in CliRunner().invoke(app, ["status", path, "--prefix-cache", "100000"]).output


def test_without_prompts_there_is_no_estimate(run: pyfast.Run, tmp_path: Path) -> None:
    options = pyfast.RunOptions(keep_prompts=False)
    bare = pyfast.answer(["Who?"], llm="instant", system="direct", run=tmp_path / "run", options=options)
    with pytest.raises(InputError, match="prompts, but they were not stored"):
        bare.prefix_cache()
    with pytest.raises(InputError, match="in memory"):
        pyfast.answer(["Who?"], llm="instant", system="direct").prefix_cache()
