"""Run the real `holdfast` command, as a user would, and wait for real conditions."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

HOLDFAST = [sys.executable, "-m", "holdfast"]


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command's stdout, stderr and exit code; settings of the outer job do not leak in."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "TORCH_"))}
    environment.update(options.pop("environment", {}))
    if arguments[:1] == ("check",):  # a loaded test machine must not look like one that hangs
        arguments = (*arguments, "--deadline", "30")
    return subprocess.run(
        [*options.pop("within", []), *HOLDFAST, *arguments],
        env=environment, capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip


def findings(*arguments: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """`holdfast check … --json`: the findings by slug, without what passed or does not apply."""
    done = run("check", "--json", *arguments, **options)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["command"]) == ("holdfast/1", "check")
    spoken: dict[str, list[dict[str, Any]]] = {}
    for finding in document["findings"]:
        if finding["status"] in ("note", "warning", "error"):
            spoken.setdefault(finding["slug"], []).append(finding)
    return spoken


def words(finding: dict[str, Any]) -> str:
    quotes = [evidence["quote"] for evidence in finding["evidence"]]
    return " | ".join([finding["summary"], finding["reason"], finding["fix"], *quotes])


def free_port() -> int:
    """A port below the ephemeral range that can be bound right now."""
    for port in range(20000 + os.getpid() % 5000, 32000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise AssertionError("no free port below the ephemeral range")


def wait_until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    """Wait for something to become true; a test never just sleeps."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{condition} did not become true within {seconds} s"
        time.sleep(0.01)


@contextlib.contextmanager
def listener(port: int, address: str = "127.0.0.1") -> Iterator[subprocess.Popen[str]]:
    """Another program that listens on the port until the test is over."""
    program = (
        "import socket, signal, sys\n"
        "s = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
        "print('listening', flush=True); signal.pause()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, address, str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout
        assert child.stdout.readline() == "listening\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def needs_root() -> None:
    if os.geteuid():
        pytest.skip("needs root")


def in_a_namespace(*kinds: str, setup: str) -> list[str]:
    """A command prefix: run the rest inside new namespaces, after a constant shell `setup`."""
    needs_root()
    if not shutil.which("unshare"):
        pytest.skip("needs unshare (util-linux)")
    flags = [f"--{kind}" for kind in kinds]
    return ["unshare", *flags, "sh", "-ec", f'{setup}\nexec "$@"', "sh"]
