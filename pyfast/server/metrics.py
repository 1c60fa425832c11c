"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pyfast.server.limits import Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics of one server."""

    def __init__(self, queue: Queue) -> None:
        self._registry = CollectorRegistry()
        self.requests = self._counter("pyfast_requests", "Requests that ended", "path", "status")
        self.questions = self._counter("pyfast_questions", "Questions that ended", "system", "state")
        seconds = Histogram(
            "pyfast_question_seconds",
            "From a question's admission to its answer",
            ["system"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.seconds: Callable[..., Histogram] = cache(seconds.labels)
        self.calls = self._counter("pyfast_llm_calls", "LLM calls", "system")
        kinds = "Tokens of LLM calls: prompt, cached (a part of prompt), completion"
        self.tokens = self._counter("pyfast_tokens", kinds, "system", "kind")
        admitted = Gauge("pyfast_questions_admitted", "Questions in progress or waiting", registry=self._registry)
        admitted.set_function(lambda: queue.admitted)
        waiting = Gauge("pyfast_questions_waiting", "Questions that wait for a place", registry=self._registry)
        waiting.set_function(lambda: queue.waiting)

    def _counter(self, name: str, meaning: str, *labels: str) -> Callable[..., Counter]:
        """Make a counter. Returns a function that takes a value for each of the `labels` and returns the
        counter for these values. The function caches the counters, because prometheus's own method `labels`
        is slow."""
        return cache(Counter(name, meaning, labels, registry=self._registry).labels)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        text: bytes = generate_latest(self._registry)
        return text
