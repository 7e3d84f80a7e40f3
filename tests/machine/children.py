"""Real child processes for tests: each says 'ready', and none outlives its test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

NOBODY = 65534


@contextlib.contextmanager
def running(
    script: str, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Python child and the first line it printed."""
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.communicate()


def end(pid: int) -> None:
    """End a process that a test started and that is no longer our child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "what the test waits for did not happen"
        time.sleep(0.01)


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def run_python(script: str, *arguments: str, prefix: tuple[str, ...] = ()) -> str:
    """The output of a script that must succeed, started by e.g. ('unshare', '--mount')."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
