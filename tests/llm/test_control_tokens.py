"""No text of a document or a user holds a token by which a chat template tells turns apart."""

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import converted_model
from pydantic import BaseModel

from pyfast.engine import Prompt, plain
from pyfast.llm import LLM, Request, dialogue
from pyfast.llm.control_tokens import breaker, breaker_of, join_plain
from pyfast.llm.llamacpp import control_tokens, embedded_model
from pyfast.llm.local import chat_tokens

FAMILIES = {
    family: marks.split()
    for family, _, marks in (
        line.partition(": ")
        for line in Path(__file__).with_name("control_tokens.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
MARKS = sorted({mark for marks in FAMILIES.values() for mark in marks})


def _pieces(mark: str) -> st.SearchStrategy[str]:
    return st.tuples(st.integers(0, len(mark)), st.integers(0, len(mark))).map(lambda ends: mark[slice(*ends)])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_marks_of_every_known_family_are_broken(family: str) -> None:
    for mark in FAMILIES[family]:
        said = plain(f"text{mark}text")
        assert mark not in said and said.replace(" ", "") == f"text{mark}text"


@given(st.lists(st.sampled_from([*MARKS, "<", ">", "|", "[", "]", "/", "s", "｜", " "])).map("".join))
def test_no_row_of_marks_and_their_pieces_keeps_one(text: str) -> None:
    said = plain(text)
    assert [mark for mark in MARKS if mark in said] == []
    assert said.replace(" ", "") == text.replace(" ", "") and plain(said) == said


def count_marks(text: str) -> int:
    return len(plain(text)) - len(text)


@given(st.lists(st.sampled_from([*MARKS, "<", ">", "|", "[", "]", "/", "s", "｜", " "]).flatmap(_pieces)))
def test_texts_are_joined_as_they_are_unless_a_mark_arises_between_them(parts: list[str]) -> None:
    text = "".join(parts)
    arises = any(
        count_marks(text[:at]) + count_marks(text[at:]) != count_marks(text) for at in accumulate(map(len, parts))
    )
    assert join_plain(parts) == (plain(text) if arises else text)


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "[NOTE] see [1], [a], [Smith 2001] and [INFO]",
        "<p>one</p><br/><b>two</b> <div class='x'>",
        "List<String> x; vector<int>[0]; std::map<a, b>",
        "|a|b|\n|-|-|",
        "x <- y; a << 2 >> 1; <=>",
        "<https://example.org/a> <me@example.org>",
        "½ ｜列｜列｜",
    ],
)
def test_text_that_no_template_uses_stays(text: str) -> None:
    assert plain(text) == text


class Fields(BaseModel):
    """An answer."""

    answer: str


def test_no_mark_comes_about_between_a_place_and_the_text_around_it() -> None:
    prompt = Prompt("test", "", "[$a] <$b> $c$d and [INST] as the prompt has it", Fields, max_tokens=9)
    fields = {"a": "INST", "b": "think", "c": "<|im_", "d": "end|>"}
    said = prompt.request(fields, 0.0, 0).messages[-1].content
    assert not any(mark in said for mark in MARKS)
    fields = {"a": "1", "b": "p", "c": "<i", "d": ">"}
    said = prompt.request(fields, 0.0, 0).messages[-1].content
    assert said == "[1] <p> <i> and [INST] as the prompt has it"  # its own words are left to it


# --- tokenizers


def of_family(marks: list[str]) -> Any:
    """A tokenizer of letters, to which these marks are special."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    letters = sorted({chr(code) for code in range(33, 127)} | set("".join(marks)) | {" ", "\n"})
    cut = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="!"))
    cut.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    cut.add_special_tokens(marks)
    template = "{% for m in messages %}" + marks[0] + "{{ m.content }}" + marks[-1] + "{% endfor %}" + marks[0]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=cut, chat_template=template)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_process_the_tokenizers_own_list_decides(family: str) -> None:
    marks = [*FAMILIES[family], "<a mark that nobody knows>"]
    tokenizer = of_family(marks)
    special = set(tokenizer.convert_tokens_to_ids(marks))
    said = "".join(f"one{mark}two " for mark in marks)
    tokens = chat_tokens(tokenizer, dialogue(said, "Be brief."))
    template = chat_tokens(tokenizer, dialogue("one", "Be brief."))
    assert [token for token in tokens if token in special] == [token for token in template if token in special]
    assert breaker_of(tokenizer)(said).replace(" ", "") == said.replace(" ", "")


def test_words_and_white_space_are_no_marks() -> None:
    broken = breaker(["  ", "\n\n", "a", "the", "<|x|>", "[["])
    assert broken("the  a\n\n<|x|> [[[") == "the  a\n\n< |x|> [ [ ["
    assert breaker(())("<|x|>") == "<|x|>"


@cache
def installed() -> list[Path]:
    """The tokenizers that packages of this environment bring."""
    roots = {Path(entry) for entry in sys.path if entry.endswith("site-packages")}
    return sorted(path for root in roots for path in root.glob("*/**/tokenizer.json"))


def names_in(path: Path) -> Iterator[str]:
    for token in orjson.loads(path.read_bytes())["added_tokens"]:
        if len(token["content"]) > 1 and not token["content"].isspace():
            yield token["content"]


def test_the_tokens_of_every_installed_tokenizer_are_broken(model_installed: None) -> None:
    found = {str(path): set(names_in(path)) for path in installed()}
    found["smollm2"] = set(control_tokens(embedded_model()))
    assert {"<|im_start|>", "<file_sep>"} <= found["smollm2"]
    if importlib.util.find_spec("mistral_common") is not None:
        from mistral_common.tokens.tokenizers.base import SpecialTokens

        found["mistral"] = {token.value for token in SpecialTokens}
    assert [(name, mark) for name, marks in found.items() for mark in marks if mark in plain(mark)] == []


def test_the_marks_that_llama_cpp_knows_are_broken(model_installed: None) -> None:
    """Its templates are in its library; those marks that can be told from other texts in it."""
    (library,) = (
        Path(str(file.locate()))
        for file in importlib.metadata.files("xllamacpp") or ()
        if file.name.startswith("xllamacpp.") and file.suffix == ".so"
    )
    pattern = (
        rb"<\|[A-Za-z_]{2,40}\|>|<(?:start|end)_of_\w{3,12}>|<\xef\xbd\x9c[^<>\0]{2,60}\xef\xbd\x9c>"
        rb"|\[/?(?:INST|ARGS|CALL_ID|IMG_\w+|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_[A-Z]+)\]"
    )
    found = {mark.decode() for mark in re.findall(pattern, library.read_bytes())}
    assert len(found) > 80 and "<｜User｜>" in found
    assert sorted(mark for mark in found if mark in plain(mark)) == []


SMOLLM2 = """
<|endoftext|> <|im_start|> <|im_end|> <repo_name> <reponame> <file_sep> <filename> <gh_stars> <issue_start>
<issue_comment> <issue_closed> <jupyter_start> <jupyter_text> <jupyter_code> <jupyter_output> <jupyter_script>
<empty_output>
"""


def test_the_control_tokens_of_a_gguf_file(model_installed: None, tmp_path: Path) -> None:
    assert control_tokens(embedded_model()) == SMOLLM2.split()
    with embedded_model().open("rb") as file:
        head = file.read(1 << 16)
    for damaged in (b"", b"GGUF", head[:40], head, head[:8] + b"\xff" * 64, b"GGML" + head[4:]):
        path = tmp_path / "damaged.gguf"
        path.write_bytes(damaged)
        assert control_tokens(path) == []


async def test_llama_cpp_reads_no_control_token_in_a_text(embedded: LLM) -> None:
    """The model's own count of tokens: a mark is one where it is read as such, and several as text."""
    plainly = await embedded.complete(Request(dialogue("< file_sep> " * 8), 1))
    marked = await embedded.complete(Request(dialogue("<file_sep> " * 8), 1))
    assert marked.prompt_tokens == plainly.prompt_tokens > 32


def test_the_real_tokenizer_reads_none(model_installed: None) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(converted_model())
    tokens = chat_tokens(tokenizer, dialogue(f"What is {' '.join(SMOLLM2.split())}?", "Be brief."))
    counted = sum(token in tokenizer.all_special_ids for token in tokens)
    harmless = chat_tokens(tokenizer, dialogue("What is it?", "Be brief."))
    assert counted == sum(token in tokenizer.all_special_ids for token in harmless) > 0
