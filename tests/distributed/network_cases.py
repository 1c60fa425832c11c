"""A cluster of two machines: two network namespaces of this one, with a cable between them that is cut.

Run by test_ray.py in an environment that has Ray. Needs the right to make namespaces.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from ray_cases import TOKEN, Command, until  # noqa: E402
from runs import answers  # noqa: E402
from slow_llm import LOG  # noqa: E402

import pyfast  # noqa: E402

QUESTIONS, CONCURRENCY = 400, 4
IN_FLIGHT = CONCURRENCY + CONCURRENCY // 2  # of a worker
NAMES = ("pyfast-a", "pyfast-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 26379


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


def can_make_namespaces() -> bool:
    if os.geteuid() or shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "pyfast-try"], capture_output=True).returncode == 0
    ip("netns", "del", "pyfast-try", check=False)
    return made


pytestmark = pytest.mark.skipif(not can_make_namespaces(), reason="needs ip netns, as root")


class Machines:
    """Two machines; the first has the head of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What Ray, and all that it starts, has in its environment. Both machines have the same token.
        (folder / "token").write_text("0123456789abcdef" * 4)
        paths = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
        self.environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_worker_niceness": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            LOG: str(folder / "calls"),
        }
        self.tokens: list[str] = []

    def ray(self, number: int, *arguments: str) -> None:
        """Start Ray on a machine, in the foreground of a process of its own."""
        token = f"{self.folder}/{NAMES[number]}"
        self.tokens.append(token)
        command = ["ip", "netns", "exec", NAMES[number], sys.executable, "-m", "ray.scripts.scripts", "start"]
        command += [
            "--node-ip-address",
            ADDRESSES[number],
            "--num-cpus",
            "1",
            "--object-store-memory",
            "100000000",
        ]
        with (self.folder / "ray.log").open("ab") as log:
            subprocess.run(
                [*command, *arguments],
                env={**self.environment, TOKEN: token},
                stdout=log,
                stderr=log,
                check=True,
                timeout=240,
            )

    def head(self) -> None:
        self.ray(0, "--head", "--port", str(PORT), "--include-dashboard", "false", "--disable-usage-stats")

    def other(self) -> None:
        self.ray(1, "--address", f"{ADDRESSES[0]}:{PORT}")

    def cable(self, state: str) -> None:
        ip("-n", NAMES[1], "link", "set", "cable-b", state)

    def signal(self, number: int, what: signal.Signals) -> None:
        """Send a signal to all processes of a machine."""
        token = f"{TOKEN}={self.folder}/{NAMES[number]}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if token in path.read_bytes():
                    os.kill(int(path.parent.name), what)
            except OSError:
                pass

    def command(self, name: str) -> Command:
        given = ["--system", "direct", "--llm", "slow_llm:open_slow", "--concurrency", CONCURRENCY]
        given += ["--ray", f"{ADDRESSES[0]}:{PORT}", "--workers", 2]
        before = ["ip", "netns", "exec", NAMES[0]]
        return Command(self.folder / name, *given, ray=False, before=before, environment=self.environment)

    def calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    lines = (json.dumps({"id": f"q{i}", "question": f"Who discovered moon {i}?"}) for i in range(QUESTIONS))
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    pyfast.answer(tmp_path / "q.jsonl", llm="instant", system="direct", run=tmp_path / "whole")
    made = Machines(tmp_path)
    for name in NAMES:
        ip("netns", "del", name, check=False)
    for name in NAMES:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("link", "add", "cable-a", "netns", NAMES[0], "type", "veth", "peer", "name", "cable-b", "netns", NAMES[1])
    for name, address, end in zip(NAMES, ADDRESSES, ("cable-a", "cable-b"), strict=True):
        ip("-n", name, "address", "add", f"{address}/24", "dev", end)
        ip("-n", name, "link", "set", end, "up")
    try:
        made.head()
        made.other()
        yield made
    finally:
        for number in range(2):
            made.signal(number, signal.SIGKILL)
        for name in NAMES:
            ip("netns", "del", name, check=False)


def both_work(command: Command) -> bool:
    return len(command.workers()) == 2


def check(command: Command, machines: Machines, repeated: int) -> None:
    assert command.ended() == 0, command.log.read_text()
    assert answers(command.run) == answers(machines.folder / "whole")
    assert pyfast.Run(command.run).status.llm_calls == QUESTIONS
    assert 0 <= machines.calls() - QUESTIONS <= repeated


@pytest.mark.parametrize("seconds", [60, None], ids=["for a minute", "for good"])
def test_a_machine_that_is_cut_off_from_the_network(seconds: float | None, machines: Machines) -> None:
    """It still sees the folder: it finishes its blocks, or is ended by Ray."""
    command = machines.command("cut")
    until(lambda: both_work(command) and machines.calls() > QUESTIONS // 5, command)
    machines.cable("down")
    if seconds is not None:
        time.sleep(seconds)
        machines.cable("up")
    check(command, machines, IN_FLIGHT)


def test_a_machine_that_is_gone_with_its_memory_and_locks(machines: Machines) -> None:
    """Its processes freeze and keep their locks on blocks. When they continue, others have the blocks."""
    command = machines.command("gone")
    until(lambda: both_work(command) and machines.calls() > QUESTIONS // 5, command)
    machines.cable("down")
    machines.signal(1, signal.SIGSTOP)
    until(lambda: list((command.run / "blocks").glob("*.left-1")) or command.process.poll() is not None, command)
    machines.signal(1, signal.SIGCONT)
    check(command, machines, IN_FLIGHT)


def test_a_new_cluster_resumes_after_the_head_was_killed(machines: Machines) -> None:
    command = machines.command("head")
    until(lambda: both_work(command) and machines.calls() > QUESTIONS // 5, command)
    for number in range(2):
        machines.signal(number, signal.SIGKILL)
    assert command.ended() != 0
    assert machines.calls() < QUESTIONS
    machines.head()
    machines.other()
    check(machines.command("head"), machines, 2 * IN_FLIGHT)
