"""A collector of OpenTelemetry's spans by OTLP over HTTP, in its own process: `python tests/otlp_receiver.py`.

It prints its port. `GET /spans` gives what it has received.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SPANS: list[dict[str, Any]] = []


def plain(value: Any) -> Any:
    """An attribute's value in Python's types."""
    kind = value.WhichOneof("value")
    return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def read(body: bytes) -> Iterator[dict[str, Any]]:
    """The spans of a request, as OpenTelemetry's own definition of the messages reads it."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        of = {one.key: plain(one.value) for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "service": of["service.name"],
                    "scope": scope.scope.name,
                    "name": span.name,
                    "kind": span.kind,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    "failed": span.status.code == 2,
                    "attributes": {one.key: plain(one.value) for one in span.attributes},
                }


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
        SPANS.extend(read(self.rfile.read(int(self.headers["Content-Length"]))))
        self._say(b"")

    def do_GET(self) -> None:
        self._say(json.dumps(SPANS).encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[str]:
    """A receiver by its URL, as OTEL_EXPORTER_OTLP_ENDPOINT names it."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def spans(url: str) -> list[dict[str, Any]]:
    """What a receiver has."""
    with urllib.request.urlopen(f"{url}/spans", timeout=30) as answer:
        received: list[dict[str, Any]] = json.load(answer)
    return received


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
