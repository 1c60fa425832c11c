"""A file of prompts changes words and nothing else; what it cannot change is one line before a run begins."""

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyfast.engine import Prompt, PromptOverrides, read_prompts
from pyfast.engine.job import _prompt_digest
from pyfast.errors import InputError
from pyfast.systems import load_system, names
from pyfast.systems.hseq.actions import select_prompt
from pyfast.systems.prompts import ANSWER, COT, DIRECT, EXTRACT, PLAN

N2N = (PLAN, EXTRACT, ANSWER)


def written(folder: Path, text: str) -> PromptOverrides:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_prompts(path)


def test_words_change_and_nothing_else(tmp_path: Path) -> None:
    overrides = written(tmp_path, '[answer]\nsystem = "Be brief."\nuser = "$question {$path} $$context $5"\n')
    overrides.check("n2n", N2N)
    made = overrides.apply(ANSWER)
    fields = {"question": "Who? $path", "path": "P", "context": "C"}
    request = made.request(fields, 0.0, 0)
    assert [said.content for said in request.messages] == ["Be brief.", "Who? $path {P} $C $5"]
    assert request.schema is ANSWER.schema and request.max_tokens == ANSWER.max_tokens
    assert (made.name, made.answer, made.attempts) == (ANSWER.name, ANSWER.answer, ANSWER.attempts)
    assert ANSWER.request(fields, 0.0, 0).messages[0].content == ANSWER.system != "Be brief."
    assert made.sized(7).request(fields, 0.0, 0).messages == request.messages


def test_one_of_both_stays(tmp_path: Path) -> None:
    system = written(tmp_path, '[extract]\nsystem = "Find it."').apply(EXTRACT)
    assert (system.system, system.user, system.places) == ("Find it.", EXTRACT.user, EXTRACT.places)
    user = written(tmp_path, '[extract]\nuser = "$context $entity_type $question"').apply(EXTRACT)
    assert (user.system, user.user) == (EXTRACT.system, "$context $entity_type $question")
    assert _prompt_digest(user) != _prompt_digest(EXTRACT) != _prompt_digest(system)


def test_a_prompt_is_made_once(tmp_path: Path) -> None:
    overrides = written(tmp_path, '[select]\nsystem = "Pick."')
    made = overrides.apply(select_prompt(16, 3))
    assert made is overrides.apply(select_prompt(16, 3)) and made.schema is select_prompt(16, 3).schema
    other = overrides.apply(select_prompt(8, 3))
    assert other.system == "Pick." and other.schema is select_prompt(8, 3).schema is not made.schema
    assert overrides.apply(DIRECT) is DIRECT


def test_prompts_made_for_one_call_are_not_kept(tmp_path: Path) -> None:
    overrides = written(tmp_path, '[answer]\nsystem = "Be brief."')
    for tokens in range(100):
        assert overrides.apply(ANSWER.sized(tokens)).max_tokens == tokens
    gc.collect()
    assert len(overrides._made) == 0


def test_the_digest_is_that_of_the_texts(tmp_path: Path) -> None:
    one = written(tmp_path, '[answer]\nsystem = "a"\nuser = "b"\n[extract]\nsystem = "c"')
    other = written(tmp_path, '# mine\nextract = {system = "c"}\n[answer]\nuser = """\nb"""\nsystem = \'a\'\n')
    assert one.digest == other.digest
    assert one.digest != written(tmp_path, '[answer]\nsystem = "b"\nuser = "a"\n[extract]\nsystem = "c"').digest
    assert written(tmp_path, "").digest == written(tmp_path, "\n").digest


def test_a_place_goes_where_that_is_said(tmp_path: Path) -> None:
    overrides = written(tmp_path, '[answer]\nuser = "$context $question"\nleave_out = ["path"]')
    overrides.check("n2n", N2N)
    request = overrides.apply(ANSWER).request({"question": "Q", "path": "P", "context": "C"}, 0.0, 0)
    assert request.messages[-1].content == "C Q"


FAULTS = {
    '[answer]\nuser = "$question $context"': "prompt 'answer': user lacks $path: add it, or write leave_out"
    ' = ["path"]',
    '[answer]\nuser = "hello"': "prompt 'answer': user lacks $context, $path, $question: add it, or write "
    "leave_out"
    ' = ["context","path","question"]',
    '[answer]\nuser = "$context $path $question $fact"': "prompt 'answer': user has the unknown placeholder $fact;"
    " known: $context, $path, $question",
    '[answer]\nuser = "$context $path $question"\nleave_out = ["path"]': "prompt 'answer': user contains $path,"
    " although leave_out lists it",
    '[answer]\nuser = "$context $path $question"\nleave_out = ["way"]': "prompt 'answer': leave_out lists $way,"
    " which is not a placeholder of this prompt; known: $context, $path, $question",
    '[direct]\nsystem = "x"': "n2n has no prompt 'direct'; its prompts are: plan, extract, answer",
    '["an\\nswer"]\nsystem = "x"': "n2n has no prompt 'an\\nswer'; its prompts are: plan, extract, answer",
}


@pytest.mark.parametrize(("text", "told"), FAULTS.items(), ids=FAULTS.values())
def test_what_does_not_fit_the_system(tmp_path: Path, text: str, told: str) -> None:
    overrides = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        overrides.check("n2n", N2N)
    assert str(error.value) == f"{tmp_path / 'mine.toml'}: {told}"


UNREADABLE = {
    "[answer": "not valid TOML: ",
    'answer = "x"': "prompt 'answer': expected a table, [answer], with system, user or both",
    "[answer]": "prompt 'answer': expected system, user or both",
    '[answer]\nleave_out = ["path"]': "prompt 'answer': expected system, user or both",
    '[answer]\nsystem = "x"\nleave_out = ["path"]': "prompt 'answer': leave_out can only be used together with",
    '[answer]\nuser = "x"\nleave_out = "path"': "prompt 'answer': leave_out: expected a list of strings",
    '[answer]\nuser = "x"\nleave_out = [1]': "prompt 'answer': leave_out: expected a list of strings",
    "[answer]\nsystem = 3": "prompt 'answer': system: expected a non-empty string",
    '[answer]\nuser = " \\n"': "prompt 'answer': user: expected a non-empty string",
    '[answer]\nsystem = "x"\nmax_tokens = 5': "prompt 'answer': unknown key 'max_tokens'; known: ",
    '[answer]\nsystem = "x"\n[answer]\nuser = "y"': "not valid TOML: ",
    "[" * 50_000: "not valid TOML: ",
}


@pytest.mark.parametrize(("text", "told"), UNREADABLE.items(), ids=UNREADABLE.values())
def test_what_is_no_file_of_prompts(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        written(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'mine.toml'}: {told}") and "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin-1.toml").write_bytes(b'[answer]\nsystem = "\xe9"')
    for name, told in {
        "none.toml": "cannot be read: No such file",
        "latin-1.toml": "not valid TOML: ",
        "": "cannot be",
    }.items():
        with pytest.raises(InputError, match=told) as error:
            read_prompts(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_system_without_prompts_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"graph_convqa has no prompt 'answer'; it has none$"):
        written(tmp_path, '[answer]\nsystem = "x"').check("graph_convqa", ())


@pytest.mark.parametrize("name", names())
def test_a_systems_prompts_of_one_name_have_the_same_places(name: str) -> None:
    """What is checked with one of them is then true of all."""
    by_name: dict[str, set[tuple[str, ...]]] = {}
    prompts: list[Prompt[Any]] = [*load_system(name).prompts]
    if name == "hseq":
        prompts.append(select_prompt(16, 3))
    for prompt in prompts:
        by_name.setdefault(prompt.name, set()).add(prompt.places)
    assert all(len(places) == 1 for places in by_name.values())


@given(system=st.text(), head=st.text(), tail=st.text())
def test_any_words_are_taken_as_they_stand(system: str, head: str, tail: str) -> None:
    """Also those that look like places: what is not one of the original is refused, or stays as it is."""
    made = COT.overridden(system, f"{head} $question {tail}")
    text = made.request(dict.fromkeys(made.places, "?"), 0.0, 0).messages[-1].content
    if made.places == ("question",):
        assert "?" in text
    assert made.system == system
