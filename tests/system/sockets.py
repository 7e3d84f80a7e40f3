"""Real sockets in the states that matter, and readers run elsewhere: as another user, in
another namespace."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from holdfast.system import tcp_table


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def needs(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")


def wait_for(condition: Callable[[], object], *, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what the test waited for did not happen"
        time.sleep(0.005)


def needs_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as problem:
        pytest.skip(f"needs ::1 ({problem.strerror})")


def free_port() -> int:
    """Below the ephemeral range, so that no outgoing connection of this machine takes it."""
    while True:
        port = random.randrange(20000, 32768)
        if not tcp_table.read(port):
            return port


@contextmanager
def listener(address: str = "127.0.0.1", port: int = 0) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if family == socket.AF_INET6:
        needs_ipv6()
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen()
        yield server


def leave_time_wait(port: int, *, side: str) -> None:
    """A connection over, its TIME_WAIT on `port`: the side that closes first keeps it."""
    with listener(port=port if side == "server" else 0) as server, socket.socket() as client:
        if side == "client":
            client.bind(("127.0.0.1", port))  # as a source port, so without SO_REUSEADDR
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        first, second = (client, accepted) if side == "client" else (accepted, client)
        first.close()
        assert second.recv(1) == b""
        second.close()
    wait_for(lambda: [row.state for row in tcp_table.read(port)] == ["TIME_WAIT"])


def run_python(code: str, *arguments: str, inside: Sequence[str] = ()) -> str:
    """What a fresh interpreter prints, run behind a command such as unshare."""
    done = subprocess.run(
        [*inside, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BECOME_NOBODY = "import encodings.idna, os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
"""For code that has done its imports: the interpreter may live where only root can read.
getaddrinfo loads the idna codec at its first call, so it is loaded here."""

LISTEN = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    input()
"""


@contextmanager
def process_that_prints(code: str, *arguments: str) -> Iterator[tuple[int, str]]:
    """The pid and first line of a process that lives until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process.pid, process.stdout.readline()
        finally:
            process.kill()
