"""A server with embeddings and scores that keeps count and, as often as a test asks, misbehaves.

    python tests/vector_server.py --faults busy,error --largest 32

It prints its port once it answers. The vector of a text is the sum of vectors of its words, its score the share of
the query's words that it has. The first requests meet `--faults`, in order; `--always FAULT` all of them. `GET
/log` tells the texts that were answered, in order, and the paths of the requests.
"""

from __future__ import annotations

import argparse
import base64
import os
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Lock
from typing import Any

import numpy as np
import orjson
from hostile_server import served
from word_vectors import WordVectors

STATUS = {"busy": 429, "error": 500, "forbidden": 403, "key": 401}


class State:
    """What the server was told, and what it has answered."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.faults: list[str] = options.faults.split(",") if options.faults else []
        self.turn = Lock()
        self.texts: list[str] = []
        self.requests: list[str] = []
        self.headers: dict[str, str] = {}
        self.model: Any = WordVectors()
        if options.real:
            from pyfast.retrieval.vectors.embeddings import Embedder

            self.model = Embedder()

    def encoded(self, texts: Sequence[str]) -> Any:
        with self.turn:
            return self.model.encode(texts)[:, : self.options.dimensions]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def reply(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else orjson.dumps(content)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        state = self.state
        if self.path != "/log":
            return self.reply({"error": "no such page"}, 404)
        return self.reply({"texts": state.texts, "requests": state.requests, "headers": state.headers})

    def do_POST(self) -> None:
        state = self.state
        asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = asked.get("input") or asked.get("documents") or asked.get("texts") or []
        state.headers = {name.lower(): value for name, value in self.headers.items()}
        with state.turn:
            state.requests.append(self.path)
            fault = state.options.always or (state.faults.pop(0) if state.faults else "")
        time.sleep(state.options.delay_ms / 1000)
        if fault == "slow":
            time.sleep(state.options.slow_s)
        if fault == "cut":
            self.close_connection = True
            return self.connection.shutdown(SHUT_RDWR)
        if fault in STATUS:
            more = {"Retry_After": state.options.retry_after} if fault == "busy" else {}
            key = self.headers.get("Authorization", "")
            return self.reply({"error": {"message": f"{fault} for {key}"}}, STATUS[fault], **more)
        if len(texts) > state.options.largest or any("forbidden" in text for text in texts):
            status = 413 if state.options.by_status else 422
            return self.reply({"error": {"message": f"batch size {len(texts)} > maximum allowed"}}, status)
        if any("poison" in text for text in texts):
            return self.reply({"error": {"message": "refused by the gateway"}}, 403)
        if self.path.endswith("/embeddings"):
            return self.embed(asked, texts, fault)
        field, wanted = state.options.rerank.split("@")
        if self.path != wanted:
            return self.reply({"error": "no such page"}, 404)
        if field not in asked:
            return self.reply({"detail": [{"msg": f"missing field {field}"}]}, 422)
        return self.rank(asked["query"], texts, field, fault)

    def embed(self, asked: dict[str, Any], texts: list[str], fault: str) -> None:
        if self.state.options.no_base64 and "encoding_format" in asked:
            return self.reply({"error": {"message": "unknown field encoding_format"}}, 400)
        items = []
        for index, vector in enumerate(self.state.encoded(texts)):
            coded: Any = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if "encoding_format" not in asked or self.state.options.floats:
                coded = [float(number) for number in vector]
            items.append({"index": index, "embedding": coded, "object": "embedding"})
        if fault == "order":
            items.reverse()
        elif fault == "twice":
            items[-1]["index"] = 0
        elif fault == "count":
            items.pop()
        elif fault == "lengths":
            items[0]["embedding"] = [1.0, 2.0]
        elif fault == "text":
            items[0]["embedding"] = "no base64!"
        elif fault == "nan":
            items[0]["embedding"] = np.full(128, np.nan, "<f4").tolist()
        elif fault == "infinite":
            items[0]["embedding"] = [1e300] * 128
        body = orjson.dumps({"data": items, "usage": {"prompt_tokens": sum(len(text.split()) for text in texts)}})
        self.state.texts += texts
        if fault == "bare_nan":
            body = body.replace(b'"embedding":"', b'"embedding":[NaN],"was":"', 1)
        return self.reply(b"<html>no JSON" if fault == "page" else body)

    def rank(self, query: str, texts: list[str], field: str, fault: str) -> None:
        self.state.texts += [f"{query}|{text}" for text in texts]
        words = set(query.lower().split())
        scores = [len(words & set(text.lower().split())) / len(words) for text in texts]
        name = "score" if field == "texts" else "relevance_score"
        ranked: Any = [{"index": index, name: score} for index, score in enumerate(scores)]
        ranked.sort(key=lambda item: -item[name])
        if fault == "count":
            ranked.pop()
        elif fault == "nan":
            ranked[0][name] = None
        return self.reply(ranked if field == "texts" else {"results": ranked, "usage": {"total_tokens": 7}})


class Quiet(ThreadingHTTPServer):
    """A server that says nothing of connections that a client cuts."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def vector_server(*options: object) -> AbstractContextManager[str]:
    """Such a server in a process of its own, by its URL."""
    return served(__file__, *options)


def log(url: str) -> dict[str, Any]:
    """What the server at `url` has answered so far."""
    with urllib.request.urlopen(f"{url}/log", timeout=30) as answer:
        result: dict[str, Any] = orjson.loads(answer.read())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", default="")
    parser.add_argument("--always", default="")
    parser.add_argument("--largest", type=int, default=1 << 30, help="more texts are refused")
    parser.add_argument("--by-status", action="store_true", help="too many texts are status 413, not 422")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--slow-s", type=float, default=3)
    parser.add_argument("--retry-after", default="0.05")
    parser.add_argument("--dimensions", type=int)
    parser.add_argument("--no-base64", action="store_true")
    parser.add_argument("--floats", action="store_true", help="numbers, even if base64 is asked for")
    parser.add_argument("--rerank", default="documents@/rerank", help="FIELD@PATH of requests for scores")
    parser.add_argument("--real", action="store_true", help="the real dense model")
    Handler.state = State(parser.parse_args())
    server = Quiet(("127.0.0.1", Handler.state.options.port), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
