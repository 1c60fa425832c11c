"""Schemathesis over the OpenAPI description of a running server: no status 500, nothing that is not described."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from http_server import process
from hypothesis import HealthCheck, Phase, given, settings

import pyfast

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

EXAMPLES = 5  # of each operation
OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/retrieve"),
    ("POST", "/v1/rerank"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files"),
    ("GET", "/v1/files/{file_id}"),
    ("DELETE", "/v1/files/{file_id}"),
    ("GET", "/v1/files/{file_id}/content"),
    ("POST", "/v1/batches"),
    ("GET", "/v1/batches"),
    ("GET", "/v1/batches/{batch_id}"),
    ("POST", "/v1/batches/{batch_id}/cancel"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def described(small: pyfast.Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("server")
    given_ = ("--index", small.folder, "--llm", "instant", "--jobs", folder / "jobs", "--limit", "files=100000")
    with process(folder, *given_) as (_, url):
        body = json.dumps({"query": "a", "documents": ["a b"]}).encode()
        warm = urllib.request.Request(url + "/v1/rerank", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(warm, timeout=60).read()  # the first one imports scikit-learn
        yield schemathesis.openapi.from_url(url + "/openapi.json")


def test_all_operations_are_tried(described: Any) -> None:
    found = [result.ok() for result in described.get_all_operations()]
    assert sorted((one.method.upper(), one.path) for one in found) == sorted(OPERATIONS)


REFUSES = [  # what has a body or a query that can be wrong
    *(("POST", path) for path in ("/v1/chat/completions", "/v1/retrieve", "/v1/rerank", "/v1/batches")),
    *(("GET", path) for path in ("/v1/files", "/v1/batches")),
]


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [*((*one, "POSITIVE") for one in OPERATIONS), *((*one, "NEGATIVE") for one in REFUSES)],
)
def test_the_description_holds(method: str, path: str, mode: str, described: Any) -> None:
    operation = described[path][method]
    strategy = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=strategy)
    def holds(case: Any) -> None:
        # A limit of the server may refuse what the description allows, such as too large a `k`.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    holds()
