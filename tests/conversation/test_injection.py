"""H = H_prefix + H_g + H_suffix: what the LLM is given, at every size; and through transformers."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from pyfast.errors import InputError
from pyfast.llm import Request, open_llm
from pyfast.llm.local import folder_digest
from pyfast.retrieval import Index
from pyfast.systems.graph_convqa.encoder import GraphEncoder, Shape, save_encoder
from pyfast.systems.graph_convqa.entities import Entities, Linear
from pyfast.systems.graph_convqa.graph import messages
from pyfast.systems.graph_convqa.injection import (
    Turn,
    build_graph,
    check_llm,
    encode_graph,
    framed,
    open_trained,
)

KNOWN = Entities(["Kid A", "Rolling Stone"])
LINES = ("Kid A, made by Radiohead", "Rolling Stone, ranking of Kid A, 1", "Rolling Stone, Editor, Noah Shachtman")
HISTORY = (("Who made Kid A?", "Radiohead"),)


def turn(lines: tuple[str, ...] = LINES, history: Any = HISTORY) -> Turn:
    return Turn(Linear(lines, tuple(tuple(KNOWN.spans(line)) for line in lines), ()), history, "Its rank?")


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a training leaves it."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(5)
    save_encoder(GraphEncoder(Shape(32)), folder)
    (folder / "model").symlink_to(tiny)
    return folder


def test_the_prompt_around_the_nodes(small: Index, trained: Path, tokenizer: Any) -> None:
    (prompt,) = build_graph([turn()], str(trained), 1000, 1000)
    (embeds,) = encode_graph([prompt], str(trained))
    said = tokenizer.decode([*prompt.prefix, *prompt.graph.tokens.tolist(), *prompt.suffix])
    assert "Facts:\n" + "".join(f"{line}\n" for line in LINES) + "The conversation" in said
    table = open_trained(str(trained)).table.numpy()
    first, last = len(prompt.prefix), len(embeds) - len(prompt.suffix)
    np.testing.assert_array_equal(embeds[:first], table[list(prompt.prefix)])
    np.testing.assert_array_equal(embeds[last:], table[list(prompt.suffix)])
    nodes = embeds[first:last]
    assert len(nodes) == len(prompt.graph.tokens) and embeds.dtype == np.float32
    assert np.abs(nodes - table[prompt.graph.tokens]).max() > 1e-3  # the graph has something to say
    assert prompt.graph.items == 3 and prompt.turns == 1


def test_each_prompt_is_the_same_in_any_batch(small: Index, trained: Path) -> None:
    prompts = build_graph([turn(), turn(()), turn(LINES[1:])], str(trained), 1000, 1000)
    together = encode_graph(prompts, str(trained))
    for prompt, expected in zip(prompts, together, strict=True):
        np.testing.assert_array_equal(encode_graph([prompt], str(trained))[0], expected)


@pytest.mark.parametrize("max_tokens", [60, 90, 120, 150, 400])
def test_it_fits_the_room_by_leaving_out_pieces_and_turns(tokenizer: Any, max_tokens: int) -> None:
    long = tuple((f"What is number {i} of the list?", f"answer {i}") for i in range(30))
    prompt = framed(tokenizer, turn(history=long), max_tokens, 1000)
    size = len(prompt.prefix) + len(prompt.graph.tokens) + len(prompt.suffix)
    bare = framed(tokenizer, turn((), ()), 10_000, 0)
    assert size <= max(max_tokens, len(bare.prefix) + len(bare.suffix))
    assert prompt.turns < 30 and (prompt.graph.items < 3 or max_tokens >= 120)


def test_nodes_have_a_limit_of_their_own(tokenizer: Any) -> None:
    sizes = [len(framed(tokenizer, turn(), 1000, max_nodes).graph.tokens) for max_nodes in (0, 1, 12, 13, 1000)]
    assert sizes[0] == 0 and sizes[1] == 1 and sizes == sorted(sizes)


def test_transformers_reads_embeddings_as_their_tokens(small: Index, tiny: Path, trained: Path) -> None:
    """Without a graph the prompt is plain text: embedded or not, the same answer."""
    (prompt,) = build_graph([turn(())], str(trained), 1000, 1000)
    (embeds,) = encode_graph([prompt], str(trained))

    async def both() -> list[str]:
        llm = open_llm(f"transformers:{tiny}")
        await llm.start()
        given = Request((), 8, embeds=embeds), Request(messages(HISTORY, "Its rank?", ()), 8)
        said = [await llm.complete(request) for request in given]
        await llm.close()
        assert said[0].prompt_tokens == said[1].prompt_tokens == len(embeds)
        return [completion.text for completion in said]

    first, second = asyncio.run(both())
    assert first == second


def test_an_encoder_knows_its_model(tiny: Path, tmp_path: Path) -> None:
    """Both in its folder, and as the LLM that is to answer."""
    own = folder_digest(tiny)
    save_encoder(GraphEncoder(Shape(32)), tmp_path, own)
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    assert open_trained(str(tmp_path)).encoder.shape.model == own
    for weights in ("", own):  # behind a server nobody knows
        check_llm(str(tmp_path), "cpu", weights)
    with pytest.raises(
        InputError, match=r"a different model from the one that answers now; use .*/model as the LLM"
    ):
        check_llm(str(tmp_path), "cpu", "0123456789abcdef")
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    open_trained.cache_clear()
    with pytest.raises(InputError, match=r"trained with a different model from the one in .*/model"):
        open_trained(str(tmp_path))


def test_an_encoder_of_another_width_is_refused(tiny: Path, tmp_path: Path) -> None:
    save_encoder(GraphEncoder(Shape(16)), tmp_path)
    (tmp_path / "model").symlink_to(tiny)
    with pytest.raises(InputError, match="needs hidden size 16, but the model has 32"):
        open_trained(str(tmp_path))
