"""`export_spans`: send the OpenTelemetry spans of this process to Phoenix, Langfuse or another collector."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from pyfast.errors import InputError
from pyfast.utils.extras import install
from pyfast.utils.log import LOG

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
_QUEUE = 1 << 15  # A run creates thousands of spans while one request to the collector is in progress.


def export_spans() -> bool:
    """Send the OpenTelemetry spans of this process to the collector that environment variables name.

    Call this function before `pyfast.answer` or `pyfast.serve`. The commands `answer` and `serve` call it
    themselves. If the program has set OpenTelemetry's tracer provider, this provider receives the spans.
    Otherwise, the function sets a provider for the process. The last spans are sent when the process ends.

    pyfast reads the environment variables of OpenTelemetry's SDK. To export spans, set
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_TRACES_EXPORTER` (`otlp`,
    `console`). `OTEL_TRACES_EXPORTER=none` and `OTEL_SDK_DISABLED=true` turn the export off. The protocol is
    `http/protobuf`. `OTEL_EXPORTER_OTLP_PROTOCOL=grpc` needs `opentelemetry-exporter-otlp-proto-grpc`.

    Returns:
        Whether the process now records spans. False if no variable requests the export, a variable turns it off,
        or OpenTelemetry's SDK is not installed.

    Raises:
        InputError: A variable names an exporter or a protocol that does not exist.

    Example:
        >>> from pyfast.api.telemetry import export_spans
        >>> export_spans()  # no variable is set
        False
    """
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or (
        "otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none"
    )
    if exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ModuleNotFoundError:
        LOG.warning("OTEL_* variables request spans, but OpenTelemetry is not installed: %s", install("telemetry"))
        return False
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    if exporter == "console":
        out: SpanExporter = ConsoleSpanExporter()
    elif exporter == "otlp":
        out = _otlp()
    else:
        raise InputError(f"OTEL_TRACES_EXPORTER: expected otlp, console or none, got {exporter}")
    # These two environment variables take precedence.
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "pyfast"}))
    queue = None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else _QUEUE
    provider.add_span_processor(BatchSpanProcessor(out, max_queue_size=queue))
    trace.set_tracer_provider(provider)
    return True


def _otlp() -> SpanExporter:
    of_traces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    variable = of_traces if os.environ.get(of_traces) else "OTEL_EXPORTER_OTLP_PROTOCOL"
    if (protocol := os.environ.get(variable) or "http/protobuf") not in _PROTOCOLS:
        raise InputError(f"{variable}: expected {' or '.join(_PROTOCOLS)}, got {protocol}")
    name = f"opentelemetry.exporter.otlp.proto.{_PROTOCOLS[protocol]}.trace_exporter"
    try:
        exporter: SpanExporter = import_module(name).OTLPSpanExporter()
    except ModuleNotFoundError:
        package = f"opentelemetry-exporter-otlp-proto-{_PROTOCOLS[protocol]}"
        raise InputError(f"{variable}={protocol}: install {package}") from None
    return exporter
