"""GuideLLM, in an environment of its own, asks `pyfast serve` as it asks any server of OpenAI's API."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from environments import over_this_one
from http_server import process

import pyfast

COUNT = 20


@pytest.mark.slow(suite="integrations")
def test_guidellm_measures_the_server(small: pyfast.Index, tmp_path: Path) -> None:
    python = over_this_one(tmp_path / "venv", ["guidellm==0.8.1"])
    asked, report = tmp_path / "asked.jsonl", tmp_path / "report.json"
    asked.write_text("".join(json.dumps({"prompt": f"Who discovered Titan? ({i})"}) + "\n" for i in range(COUNT)))
    with process(tmp_path, "--index", small.folder, "--llm", "instant", "--system", "n2n") as (_, url):
        command = [
            *(python, "-m", "guidellm", "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={url},request_format=/v1/chat/completions"),
            *("--profile", "kind=concurrent,streams=8", "--data", f"kind=json_file,path={asked}"),
            *("--constraint", f"kind=max_requests,count={COUNT}", "--output", f"kind=json,path={report}"),
        ]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(report.read_bytes())["benchmarks"][0]
    totals = measured["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (COUNT, 0, 0)
    for request in measured["requests"]["successful"]:
        assert request["output"].strip() and request["prompt_tokens"] > 0  # the stream has text, and usage
