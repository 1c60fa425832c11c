"""The integrations beside the real frameworks, in an environment of their own: they bring plug-ins for pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import over_this_one

pytestmark = pytest.mark.slow(suite="integrations")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = [
    *("langchain-core>=1.0", "langchain-tests", "llama-index-core>=0.14", "haystack-ai>=3", "dspy>=3"),
    *("fastapi", "uvicorn", "httpx", "ray[data]>=2.60", "deepeval>=4"),
]


# RAGAS 0.4 imports a module that later versions of LangChain's community package do not have.
RAGAS = ["ragas>=0.4", "langchain-community<0.4"]
# Nothing that they would fetch or report.
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "RAGAS_DO_NOT_TRACK": "true",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the frameworks, over the packages of this one."""
    return over_this_one(tmp_path_factory.mktemp("frameworks") / "venv", PACKAGES)


@pytest.mark.parametrize("cases", sorted({path.name for path in HERE.glob("*_cases.py")} - {"pylate_cases.py"}))
def test_with_the_real_packages(cases: str, python: Path) -> None:
    check(python, cases, "not RAGAS")


def test_with_pylate(tmp_path: Path) -> None:
    """PyLate pins older packages than those of this environment. It ranks without them. It imports `datasets`."""
    python = over_this_one(tmp_path / "venv", ["datasets"])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "pylate==1.6.0"], check=True)
    check(python, "pylate_cases.py", "")


def test_with_ragas(tmp_path: Path) -> None:
    check(over_this_one(tmp_path / "venv", RAGAS), "page_cases.py", "RAGAS")


def check(python: Path, cases: str, chosen: str) -> None:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "", "-k", chosen]
    done = subprocess.run(
        [*command, HERE / cases],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **QUIET},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyfast_itself_imports_none_of_them() -> None:
    code = "import pyfast.commands.cli, pyfast.api.search, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"langchain_core", "llama_index"} & {name.split(".")[0] for name in done.stdout.split()}
