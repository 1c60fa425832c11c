"""OpenTelemetry's spans of `pyfast answer` and `pyfast serve`, as a collector in its own process gets them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import receiving, spans

import pyfast
from pyfast.api.telemetry import export_spans
from pyfast.errors import InputError

pytest.importorskip("opentelemetry.sdk", reason="the extra `telemetry` is not installed")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `telemetry` is not installed")

TITAN = "Who discovered Titan?"
Spans = list[dict[str, Any]]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENINFERENCE_"))}
    return {**kept, **variables}


def answer(index: Path, folder: Path, *given: object, **variables: str) -> subprocess.CompletedProcess[str]:
    questions = folder / "q.jsonl"
    questions.write_text(
        "".join(json.dumps({"id": f"q{i}", "question": f"{TITAN} ({i})"}) + "\n" for i in range(3))
    )
    command = [sys.executable, "-m", "pyfast", "answer", questions, "--index", index, "--llm", "instant"]
    command += ["--run", folder / "run", *given]
    return subprocess.run(
        [*map(str, command)], env=environment(**variables), cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def of_a_run(small: pyfast.Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Spans, pyfast.Run]]:
    folder = tmp_path_factory.mktemp("spans")
    with receiving() as url:
        done = answer(small.folder, folder, OTEL_EXPORTER_OTLP_ENDPOINT=url)
        assert done.returncode == 0, done.stderr
        yield spans(url), pyfast.Run(folder / "run")


def kind(received: Spans, name: str) -> Spans:
    return [span for span in received if span["attributes"].get("openinference.span.kind") == name]


def test_a_question_holds_its_calls_and_retrievals(of_a_run: tuple[Spans, pyfast.Run]) -> None:
    received, run = of_a_run
    questions = kind(received, "CHAIN")
    assert len({span["trace"] for span in received}) == len(questions) == 3
    assert all(not span["parent"] for span in questions)
    assert {span["parent"] for span in received} - {""} == {span["id"] for span in questions}
    by_id = {json.loads(span["attributes"]["metadata"])["id"]: span for span in questions}
    for record in run.records:
        span = by_id[record.id]
        inside = [one for one in received if one["parent"] == span["id"]]
        assert len(kind(inside, "LLM")) == record.usage.llm_calls and len(kind(inside, "RETRIEVER")) >= 1
        assert span["attributes"]["output.value"] == record.answer
        assert TITAN in span["attributes"]["input.value"] and span["name"] == "invoke_workflow n2n"
        assert all(0 <= one["seconds"] <= span["seconds"] for one in inside)
        counted = [one["attributes"]["gen_ai.usage.input_tokens"] for one in kind(inside, "LLM")]
        assert sum(counted) == record.usage.prompt_tokens
    assert {span["service"] for span in received} == {"pyfast"}


def test_a_call_has_its_messages_by_both_conventions(of_a_run: tuple[Spans, pyfast.Run]) -> None:
    received, run = of_a_run
    asked = [call.messages for call in run.prompts("q0")]
    for span in kind(received, "LLM"):
        assert (span["name"], span["kind"]) == ("chat instant", 3)  # a client's
        has = span["attributes"]
        ours = json.loads(has["gen_ai.input.messages"])
        for place, message in enumerate(ours):
            prefix = f"llm.input_messages.{place}.message"
            assert has[f"{prefix}.role"] == message["role"]
            assert has[f"{prefix}.content"] == message["parts"][0]["content"]
        (said,) = json.loads(has["gen_ai.output.messages"])
        assert (said["role"], said["finish_reason"]) == ("assistant", "stop")
        assert has["llm.output_messages.0.message.content"] == said["parts"][0]["content"]
    whole = [span["attributes"]["gen_ai.input.messages"] for span in kind(received, "LLM")]
    texts = [[part["content"] for one in json.loads(text) for part in one["parts"]] for text in whole]
    for messages in asked:
        assert messages is not None and [message.content for message in messages] in texts


def test_a_retrieval_has_its_passages(of_a_run: tuple[Spans, pyfast.Run], small: pyfast.Index) -> None:
    received, _ = of_a_run
    for span in kind(received, "RETRIEVER"):
        has = span["attributes"]
        assert has["input.value"] == has["gen_ai.retrieval.query.text"]
        documents = json.loads(has["gen_ai.retrieval.documents"])
        assert documents and has["gen_ai.data_source.id"] == small.folder.name
        for place, document in enumerate(documents):
            prefix = f"retrieval.documents.{place}.document"
            assert has[f"{prefix}.id"] == document["id"] and small.corpus.find(document["id"]) is not None
            assert has[f"{prefix}.content"] and has[f"{prefix}.score"] == document["score"]


def test_every_name_is_in_one_of_the_conventions(of_a_run: tuple[Spans, pyfast.Run]) -> None:
    conventions = pytest.importorskip("openinference.semconv.trace")
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    names = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    parts = [value for one in vars(conventions).values() if isinstance(one, type) for value in vars(one).values()]
    names |= {value for value in parts if isinstance(value, str)}
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    kinds = {one.value for one in conventions.OpenInferenceSpanKindValues}
    for span in of_a_run[0]:
        for name in span["attributes"]:
            pieces = re.split(r"\.\d+\.", name)  # llm.input_messages, then message.role
            assert set(pieces) <= names | {"gen_ai.request.seed"}, name
        assert span["attributes"]["gen_ai.operation.name"] in operations
        assert span["attributes"]["openinference.span.kind"] in kinds


def test_texts_can_be_hidden(small: pyfast.Index, tmp_path: Path) -> None:
    hidden = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
    with receiving() as url:
        done = answer(small.folder, tmp_path, "--system", "rag", OTEL_EXPORTER_OTLP_ENDPOINT=url, **hidden)
        assert done.returncode == 0, done.stderr
        received = spans(url)
    assert len(kind(received, "LLM")) == 3
    told = json.dumps([span["attributes"] for span in received])
    assert "Titan" not in told and "messages" not in told and "content" not in told


def test_a_collector_that_is_gone_costs_no_answer(small: pyfast.Index, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = answer(
            small.folder,
            tmp_path,
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_EXPORTER_OTLP_TIMEOUT="1",
        )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert pyfast.Run(tmp_path / "run").status.states == {"answered": 3}


def test_the_server_goes_on_with_the_client_s_trace(small: pyfast.Index, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra `server` is not installed")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    command = [
        sys.executable,
        "-m",
        "pyfast",
        "serve",
        "--index",
        str(small.folder),
        "--llm",
        "instant",
        "--port",
        "0",
    ]
    with receiving() as url:
        variables = environment(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="mine")
        with subprocess.Popen(command, env=variables, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            port = next(found[1] for line in server.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)/v1", line)))
            try:
                for stream in (False, True):
                    body = {"model": "rag", "messages": [{"role": "user", "content": TITAN}], "stream": stream}
                    headers = {"Content-Type": "application/json", "traceparent": f"00-{trace}-{parent}-01"}
                    asked = urllib.request.Request(
                        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers
                    )
                    urllib.request.urlopen(asked, timeout=60).read()
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60).read()
            finally:
                server.send_signal(signal.SIGTERM)
        received = spans(url)
    assert server.returncode == 0
    assert {span["trace"] for span in received} == {trace} and {span["service"] for span in received} == {"mine"}
    assert len(kind(received, "CHAIN")) == len(kind(received, "LLM")) == 2
    known = {parent, *(span["id"] for span in received)}
    assert all(span["parent"] in known for span in received)


@pytest.mark.parametrize(
    ("variables", "fault"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "expected otlp, console or none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf or grpc",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: expected http/protobuf or grpc",
        ),
    ],
)
def test_what_there_is_none_of_is_refused(
    variables: dict[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=fault):
        export_spans()


def test_nothing_is_exported_or_imported_unless_it_is_asked_for() -> None:
    code = (
        "import os, sys; from pyfast.api.telemetry import export_spans\n"
        "assert not export_spans()\n"
        "os.environ |= {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9', 'OTEL_SDK_DISABLED': 'true'}\n"
        "assert not export_spans()\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)
