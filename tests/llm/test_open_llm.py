import subprocess
import sys

import pytest

from pyfast.errors import InputError, ModelNotFoundError
from pyfast.llm import open_llm
from pyfast.llm.protocol import once_per_schema
from pyfast.llm.server_calls import parse_spec


@pytest.mark.parametrize(
    "spec", ["", "gpt-4", "openai", "openai:m", "openai:m@ftp://x", "openai:m@http://", "embedded:x"]
)
def test_unknown_specs_say_what_is_accepted(spec: str) -> None:
    with pytest.raises(InputError, match=r"known: |expected|cannot be imported"):
        open_llm(spec)


@pytest.mark.parametrize(
    ("spec", "options"),
    [("instant", {"speed": 9}), ("openai:m@http://h", {"concurrency": 0}), ("instant", {"slots": -1})],
)
def test_unusable_options_are_named(spec: str, options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        open_llm(spec, **options)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("https://h/openai/v1", "https://h/openai/v1"),
        ("https://h/openai/v1/chat/completions", "https://h/openai/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        ("http://[::1]", "http://[::1]/v1"),
        ("http://[fe80::1%25eth0]:80/v1", "http://[fe80::1%25eth0]:80/v1"),
    ],
)
def test_urls(url: str, base: str) -> None:
    assert parse_spec(f"openai:org/model@v2@{url}") == ("org/model@v2", base)


@pytest.mark.parametrize(
    "url",
    [
        "http://h:99999",
        "http://h:-1",
        "http://h:0",
        "http://h:http/v1",
        "http://h:8000:1",
        "http://[::1",
        "http://::1]:80",
        "http://[::g]:80",
        "http://[]:80",
        "http://[1.2.3.4]",
        "http://::1:8000",
        "http://:80",
        "http://h h/v1",
    ],
)
def test_a_url_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(InputError, match=r"cannot read the LLM 'openai:m@http.*expected openai:MODEL") as error:
        open_llm(f"openai:m@{url}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["http://me:hunter2@h/v1", "http://h/v1?key=hunter2", "http://me:hunter2@/"])
def test_a_secret_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError) as error:
        open_llm(f"openai:m@{url}")
    assert "hunter2" not in str(error.value)


def test_missing_model_file() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model file at /nowhere/m\.gguf"):
        open_llm("llamacpp:/nowhere/m.gguf")


def test_import_loads_no_backend() -> None:
    code = "import sys, pyfast.llm; sys.exit('aiohttp' in sys.modules or 'xllamacpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_once_per_schema_keeps_its_schemas() -> None:
    built = []
    remembered = once_per_schema(lambda schema: built.append(schema) or len(built))
    one = {"title": "one"}
    assert remembered(one) == remembered(one) == 1
    # Ids of dead objects are given away again: many short-lived schemas must never be taken for one another.
    assert [remembered({"title": str(i)}) for i in range(3000)] == list(range(2, 3002))
