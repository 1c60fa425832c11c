"""The origin of a knowledge graph: the model, prompts and cost of each extraction by an LLM, and the triples
that were dropped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyfast.engine import read_status
from pyfast.engine.configuration import CONFIGURATION, read_configuration
from pyfast.knowledge.extraction import ExtractionResults

HOME = "extractions"
_EXAMPLES = 3
_PLACE = "places"


def describe_extraction(folder: Path, results: ExtractionResults) -> dict[str, Any]:
    """Describe a finished extraction in JSON types, for the manifest of a snapshot. `folder` is the folder of its
    run, and `results` are its results."""
    configuration, status = read_configuration(folder / CONFIGURATION), read_status(folder)
    reasons: dict[str, dict[str, Any]] = {}
    for one in results.dropped:
        dropped_so = reasons.setdefault(one.reason, {"count": 0, "examples": []})
        dropped_so["count"] += 1
        dropped_so["examples"] += [one.triple] * (len(dropped_so["examples"]) < _EXAMPLES)
    llm = configuration.get("llm", {})
    return {
        "questions": configuration["questions"]["digest"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": configuration.get(_PLACE, {}).get("read_llm") or configuration.get(_PLACE, {}).get("llm"),
        "fingerprint": llm.get("read_fingerprint") or llm.get("fingerprint"),
        "prompts": configuration.get("prompts", {}),
        "chunks": len(results.extracts),
        "failed": sum(extract.failed is not None for extract in results.extracts),
        "calls": status.llm_calls,
        "prompt_tokens": status.prompt_tokens,
        "completion_tokens": status.completion_tokens,
        "dropped": reasons,
    }


def keep_extraction(folder: Path) -> None:
    """Move the folder of a finished extraction to its final place beside the snapshots: `extractions/1` for
    the first extraction, `extractions/2` for the second, and so on.
    """
    home = folder.parent / HOME
    home.mkdir(exist_ok=True)
    before = (int(path.name) for path in home.iterdir() if path.name.isdigit())
    folder.rename(home / str(1 + max(before, default=0)))


def in_words(extraction: dict[str, Any]) -> list[str]:
    """Describe an extraction in words, as lines of text. `extraction` comes from `describe_extraction`."""
    count = "{calls} calls, {prompt_tokens} tokens in, {completion_tokens} out".format_map(extraction)
    lines = [
        f"extracted by {extraction['model']} on {extraction['date']}: {extraction['chunks']} chunks,"
        f" {extraction['failed']} failed; {count}"
    ]
    for reason, dropped in extraction["dropped"].items():
        lines.append(f"  dropped, {reason}: {dropped['count']}, such as {'; '.join(dropped['examples'])}")
    return lines
