"""The command line, as processes: what works; bad input is one clear line and leaves nothing behind."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import pyfast
from runs import traces

QUESTION = '{"id": "a", "question": "Which planet does Titan circle?", "answers": ["Saturn"]}\n'


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that starts as a user starts it."""
    command = [sys.executable, "-m", "pyfast.commands.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Path:
    """A folder with all that could be given: `index`, `run` with answers, and broken ones of each kind."""
    folder = tmp_path_factory.mktemp("cli")
    assert pyfast("index", examples / "corpus", "--out", folder / "index").returncode == 0
    files = {
        "good.jsonl": QUESTION.encode(),
        "empty.jsonl": b"",
        "broken.jsonl": QUESTION.encode() + b'{"id": "b", "question": "Wh\n',
        "no-id.jsonl": QUESTION.encode() + b'{"id": 3.5, "question": "Who?"}\n',
        "same-id.jsonl": QUESTION.encode() * 2,
        "latin-1.jsonl": b'{"id": "a", "question": "Qu\xe9?"}\n',
        "talk.jsonl": b'{"id": "t", "turns": [{"id": "a", "question": "Who?", "answers": ["x"]}]}\n',
        "other-talk.jsonl": b'{"id": "t", "turns": [{"id": "z", "question": "Who?", "answers": ["x"]}]}\n',
        "broken-talk.jsonl": b'{"id": "t", "turns": [{"id": "a"}]}\n',
        "no-answers.jsonl": b'{"id": "a", "question": "Who?"}\n',
        "other-ids.jsonl": QUESTION.replace('"a"', '"z"').encode(),
        "run/answers.jsonl": b'{"id": "a", "state": "answered", "answer": "Saturn", "evidence": [], "usage":'
        b' {"llm_calls": 1, "prompt_tokens": 1, "completion_tokens": 1}}\n',
        "broken-run/answers.jsonl": b'{"id": "a", "sta\n',
        "folder/mine.txt": b"mine",
        "model.gguf": b"no model",
        "no-corpus/empty.txt": b"",
        "stop-words/a.txt": b"the of and",
        "deep/a.jsonl": b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}\n",
        "keys/a.jsonl": b"".join(b'{"k%d": "v"}\n' % i for i in range(3000)),
        "damaged/manifest.json": b"{}",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


ANSWER = "answer good.jsonl --run new/run --index index --llm instant"
TRAIN = "train graph-convqa --index index --model folder --out new/out"
BAD = {
    "a question that is no JSON": (ANSWER.replace("good", "broken"), "broken.jsonl, line 2"),
    "a question without an id": (ANSWER.replace("good", "no-id"), "no-id.jsonl, line 2"),
    "an id that came before": (ANSWER.replace("good", "same-id"), "same-id.jsonl, line 2"),
    "a question in Latin-1": (ANSWER.replace("good", "latin-1"), "latin-1.jsonl, line 1: not UTF-8"),
    "no questions": (ANSWER.replace("good", "empty"), "empty.jsonl"),
    "no question file": (ANSWER.replace("good", "missing"), "missing.jsonl"),
    "a folder of questions": (ANSWER.replace("good.jsonl", "folder"), "folder"),
    "questions from a pipe": (ANSWER.replace("good.jsonl", "/dev/stdin"), "must be a regular file"),
    "no index given": (ANSWER.replace("--index index", ""), "--index"),
    "no index there": (ANSWER.replace("--index index", "--index missing"), "missing"),
    "an index that is another folder": (ANSWER.replace("--index index", "--index folder"), "not a pyfast index"),
    "an index that is a file": (ANSWER.replace("--index index", "--index good.jsonl"), "good.jsonl"),
    "a damaged index": (ANSWER.replace("--index index", "--index damaged"), "damaged"),
    "a run that holds answers": (ANSWER.replace("new/run", "run"), "contains answers"),
    "a run that is a file": (ANSWER.replace("new/run", "good.jsonl"), "good.jsonl"),
    "a broken conversation": (ANSWER.replace("good", "broken-talk"), "line 1, turn 1: expected a `question`"),
    "a graph without an encoder": (ANSWER + " --system graph_convqa", "pyfast train graph-convqa"),
    "an unknown system": (ANSWER + " --system frob", "n2n, "),
    "an unknown setting": (ANSWER + " --set frob=1", "'frob'"),
    "a setting without a value": (ANSWER + " --set alpha", "NAME=VALUE"),
    "a setting out of range": (ANSWER + " --set beta=-1", "beta"),
    "a limit of 0": (ANSWER + " --limit 0", "--limit"),
    "a concurrency of 0": (ANSWER + " --concurrency 0", "--concurrency"),
    "an unknown LLM": (ANSWER.replace("instant", "frob"), "frob"),
    "no model file": (ANSWER.replace("instant", "llamacpp:missing.gguf"), "missing.gguf"),
    "a model file that is none": (ANSWER.replace("instant", "llamacpp:model.gguf"), "model.gguf"),
    "an LLM where nobody listens": (ANSWER.replace("instant", "openai:m@http://127.0.0.1:9/v1"), "127.0.0.1:9"),
    "an LLM without a URL": (ANSWER.replace("instant", "openai:m"), "openai:m"),
    "no run": ("answer good.jsonl", "--run"),
    "an unknown option": (ANSWER + " --frob", "--frob"),
    "an unknown command": ("frob", "frob"),
    "no index to ask": ("ask missing Who? --llm instant", "missing"),
    "no question to ask": ("ask index --llm instant", "Missing argument"),
    "a setting of another system to ask": ("ask index Who? --llm instant --system rag --set alpha=1", "'alpha'"),
    "a source that is missing": ("index missing --out new/index", "missing"),
    "there is nothing to index": ("index no-corpus --out new/index", "the file is empty"),
    "nothing but stop words": ("index stop-words --out new/index", "there is nothing to index"),
    "a source of another kind": ("index model.gguf --out new/index", "no reader"),
    "an index that is there": ("index folder --out index", "--overwrite"),
    "a target that is another folder": ("index folder --out run --overwrite", "not a pyfast index"),
    "a target that is a file": ("index folder --out good.jsonl --overwrite", "good.jsonl"),
    "a target in a file": ("index folder --out good.jsonl/index", "good.jsonl"),
    "no target": ("index folder", "--out"),
    "no run to evaluate": ("evaluate folder --gold good.jsonl", "folder"),
    "a broken run": ("evaluate broken-run --gold good.jsonl", "answers.jsonl, line 1"),
    "no gold file": ("evaluate run --gold missing.jsonl", "missing.jsonl"),
    "a value nested too deeply": ("index deep --out new/index", "nested too deeply"),
    "records that make no table": ("index keys --out new/index", "too few records share a key"),
    "a limit beyond all numbers": (f"{ANSWER} --limit 99999999999999999999", "--limit"),
    "as many in progress as there are atoms": (f"{ANSWER} --concurrency 99999999999999999999", "--concurrency"),
    "a broken gold file": ("evaluate run --gold broken.jsonl", "broken.jsonl, line 2"),
    "gold without answers": ("evaluate run --gold no-answers.jsonl", "answers"),
    "gold of other conversations": ("evaluate run --gold other-talk.jsonl", "none of its ids"),
    "a training without a model": (f"{TRAIN} talk.jsonl", "no model folder at folder"),
    "a training without conversations": (f"{TRAIN} empty.jsonl", "empty.jsonl"),
    "gold of other questions": ("evaluate run --gold other-ids.jsonl", "none of its ids"),
}


@pytest.mark.parametrize(("command", "told"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_leaves_nothing(place: Path, command: str, told: str) -> None:
    before = listing(place)
    done = pyfast(*command.split(), cwd=place)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("pyfast: ") and done.stderr.endswith("\n")
    assert told in done.stderr
    assert done.stdout == ""
    assert listing(place) == before


def test_the_whole_way_on_the_examples(place: Path, examples: Path) -> None:
    runs = []
    for concurrency in (1, 512):
        run = place / f"run-{concurrency}"
        options = ["--index", place / "index", "--llm", "instant", "--run", run, "--concurrency", concurrency]
        done = (python if concurrency == 1 else pyfast)("answer", examples / "questions.jsonl", *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("25 questions: 25 answered; ")
        runs.append((run / "answers.jsonl").read_bytes())
    assert runs[0] == runs[1]
    records = [json.loads(line) for line in runs[0].splitlines()]
    asked = [json.loads(line)["id"] for line in (examples / "questions.jsonl").read_text().splitlines()]
    assert [record["id"] for record in records] == asked
    for record in records:
        assert list(record) == ["id", "state", "answer", "evidence", "usage"]
        assert {tuple(piece) for piece in record["evidence"]} == {("segment", "uri")}
    for record in map(json.loads, traces(run).splitlines()):
        assert list(record) == ["id", "evidence", "trace"] and record["trace"]["hops"]
        named = ["segment", "uri", "offsets", "snippet", "score"]  # of a table row also what its table is
        assert all(list(piece)[:5] == named for piece in record["evidence"])
    scores = place / "scores.jsonl"
    done = pyfast("evaluate", place / "run-1", place / "run-512", "--per-question", scores)
    said = f"the gold answers come from {examples / 'questions.jsonl'}\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert all(word in done.stdout for word in ("precision", "1-hop", "run 2: 25 answered"))
    each = [json.loads(line) for line in scores.read_text().splitlines()]
    used = {"llm_calls", "prompt_tokens", "completion_tokens", "modalities"}  # and the file's own column
    assert len(each) == 50 and {"id", "run", "question", "state", "answer", "type", "figures", *used} == {*each[0]}
    (found, *_) = json.loads(pyfast("evaluate", place / "run-1", "--json", "--metric", "abstention").stdout)
    assert found["rows"][0]["figures"]["coverage"]["value"] == 1 and found["not_run"] == []


def test_a_limit_and_a_system_without_an_index(place: Path, examples: Path) -> None:
    run = place / "limited"
    questions = examples / "questions.jsonl"
    done = pyfast("answer", questions, "--system", "cot", "--llm", "instant", "--limit", 3, "--run", run)
    assert done.stdout.startswith("3 questions: 3 answered; 3 LLM calls")
    assert len((run / "answers.jsonl").read_text().splitlines()) == 3
    done = pyfast("evaluate", run, "--gold", questions)
    assert "3 answered\n22 gold questions were not run and are not scored: " in done.stdout
    other = place / "limited to 24"
    told = pyfast("answer", questions, "--system", "cot", "--llm", "instant", "--limit", 24, "--run", other)
    assert told.stdout.startswith("24 questions: 24 answered; 24 LLM calls")
    done = pyfast("evaluate", run, other, "--gold", questions)  # each run lacks others
    assert "\nrun 1: 3 answered\nrun 2: 24 answered\nrun 1: 22 gold questions were" in done.stdout
    assert "\nrun 2: 1 gold question was not run and is not scored: " in done.stdout
    shutil.copytree(run, same := place / "limited too")
    assert pyfast("evaluate", run, same, "--gold", questions).stdout.count("22 gold questions were not run") == 1


def test_an_index_tells_what_it_left_out(place: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("Titan circles Saturn.")
    (tmp_path / "corpus" / "[b]old.xyz").write_text("")
    done = pyfast("index", tmp_path / "corpus", "--out", tmp_path / "index")
    assert done.returncode == 2 and "1 document, 1 passage" in done.stdout
    reason = "there is no reader for this kind of file; convert the file, or name a reader with --reader"
    told = [line for line in done.stderr.splitlines() if "passages indexed" not in line]  # of a slow start
    assert told == [f"pyfast: left out {tmp_path}/corpus/[b]old.xyz: {reason}"]
    assert pyfast("index", tmp_path / "corpus", "--out", tmp_path / "index", "--overwrite").returncode == 2


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text(
        "".join(f'{{"id": "{i}", "question": "Which planet does {i} circle?"}}\n' for i in range(99))
    )
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    command = [sys.executable, "-B", "-c", f"{limited}; from pyfast.commands.cli import main; main()"]
    command += ["answer", str(questions), "--system", "direct", "--llm", "instant", "--run", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "journal.sqlite: disk I/O error; the same command resumes" in done.stderr


MANY = 40_000  # they take half a minute


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_keeps_whole_lines(tmp_path: Path, sent: signal.Signals) -> None:
    questions, answers = tmp_path / "q.jsonl", tmp_path / "run" / "answers.jsonl"
    many = (json.dumps({"id": str(i), "question": f"Which planet does {i} circle?"}) for i in range(MANY))
    questions.write_text("\n".join(many))
    command = [sys.executable, "-m", "pyfast.commands.cli", "answer", str(questions), "--system", "direct"]
    command += ["--llm", "instant", "--run", str(tmp_path / "run"), "--concurrency", "4"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (answers.exists() and answers.stat().st_size > 10_000):
        time.sleep(0.02)
    run.send_signal(sent)
    _, told = run.communicate(timeout=60)
    assert (
        run.returncode == 130
        and "finishing the questions in progress" in told
        and "the same command resumes" in told
    )
    records = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [record["id"] for record in records] == [str(i) for i in range(len(records))]
    assert 0 < len(records) < MANY


def test_a_run_in_which_everything_fails_says_so(place: Path) -> None:
    from aiohttp import web

    async def broken(_: web.Request) -> web.Response:
        return web.json_response({"error": "no"}, status=413)

    async def serve_and_ask() -> tuple[int, str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", broken)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        command = [sys.executable, "-m", "pyfast.commands.cli", "answer", "good.jsonl", "--run", "all-failed"]
        command += ["--index", "index", "--llm", f"openai:m@{url}"]
        process = await asyncio.create_subprocess_exec(*command, cwd=place, stderr=asyncio.subprocess.PIPE)
        _, told = await asyncio.wait_for(process.communicate(), 60)
        await runner.cleanup()
        return process.returncode or 0, told.decode()

    status, told = asyncio.run(serve_and_ask())
    assert status == 1 and told.count("\n") == 1 and "every question failed" in told
    (record,) = [json.loads(line) for line in (place / "all-failed" / "answers.jsonl").read_text().splitlines()]
    assert record["state"] == "failed" and record["reason"]


def test_version_and_help() -> None:
    from pyfast import __version__

    assert python("--version").stdout == f"{__version__}\n"
    told = pyfast("--help").stdout
    assert all(word in told for word in ("index", "answer", "status", "evaluate"))
    nothing = pyfast()
    assert nothing.returncode == 2 and "Usage" in nothing.stdout and nothing.stderr == ""


HEAVY = ("torch", "vllm", "ray", "transformers", "sklearn", "numba", "llvmlite", "bm25s", "aiohttp", "xllamacpp")


@pytest.mark.parametrize(
    ("module", "light"),
    [("pyfast", (*HEAVY, "numpy", "scipy", "pydantic")), ("pyfast.commands.cli", (*HEAVY, "numpy", "scipy"))]
    + [
        (f"pyfast.{room}", HEAVY)
        for room in ("ops", "llm", "corpus", "retrieval", "engine", "systems", "evaluation")
    ],
)
def test_importing_loads_nothing_heavy(module: str, light: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & set(light) == set()
