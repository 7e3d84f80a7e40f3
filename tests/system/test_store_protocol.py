from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.analysis.machine import StoreAnswer, Unread
from holdfast.system.store_protocol import ask_store
from tests.system.sockets import free_port, listener

# The store of a job with one other client; after the test it must still serve that client.
STORE = """
import sys
from torch.distributed import TCPStore
libuv = sys.argv[1] == "libuv"
options = dict(world_size=None, use_libuv=libuv, wait_for_workers=False)
server = TCPStore("127.0.0.1", 0, is_master=True, **options)
client = TCPStore("127.0.0.1", server.port, is_master=False, **options)
client.set("epoch", "7"); client.set("step", "1208")
print("ready", file=sys.stderr, flush=True)
print(server.port, client.num_keys(), flush=True)
sys.stdin.readline()
client.set("step", "1209")
print(server.get("step").decode(), client.num_keys(), flush=True)
"""


@contextmanager
def store(backend: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", STORE, backend],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port, keys = map(int, process.stdout.readline().split())
            yield process, port, keys
        finally:
            process.kill()


@pytest.mark.parametrize("backend", ["libuv", "poll"])
def test_a_real_store_is_recognised_and_its_job_not_disturbed(backend: str) -> None:
    with store(backend) as (process, port, keys):
        for _ in range(20):
            assert ask_store("127.0.0.1", port) == StoreAnswer(is_store=True, keys=keys)
        said, complaints = process.communicate("\n", timeout=20)
        assert said.split() == ["1209", str(keys)]
        assert complaints.partition("ready\n")[2] == "", (
            "our question must leave no trace in the job's log"
        )
        assert process.returncode == 0


def test_a_store_that_is_stopped_is_silent_not_foreign() -> None:
    with store("libuv") as (process, port, _):
        os.kill(process.pid, signal.SIGSTOP)
        answer = ask_store("127.0.0.1", port)
        os.kill(process.pid, signal.SIGCONT)
    assert isinstance(answer, Unread)
    assert "said nothing within 0.2 s" in answer.why


class QuietHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


def test_an_http_server_is_no_store() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            answer = ask_store("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join()
    assert answer == StoreAnswer(is_store=False, keys=None)


def test_a_silent_listener_is_given_up_quickly() -> None:
    with listener() as server:
        start = time.monotonic()
        answer = ask_store("127.0.0.1", server.getsockname()[1])
        assert time.monotonic() - start < 0.6
    assert isinstance(answer, Unread)


def serve_once(server: socket.socket, replies: tuple[bytes, ...]) -> threading.Thread:
    """Accept one connection, answer each thing it says with the next reply, hang up."""

    def serve() -> None:
        accepted, _ = server.accept()
        with accepted:
            for reply in replies:
                said = accepted.recv(100)
                accepted.sendall(said if reply == b"echo" else reply)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "replies",
    [(b"echo",), (b"SSH-2.0-OpenSSH_9.2\r\n",), (b"\r\n",), ()],
    ids=["echo", "ssh", "short", "hangs-up"],
)
def test_other_servers_are_no_store(replies: tuple[bytes, ...]) -> None:
    with listener() as server:
        thread = serve_once(server, replies)
        answer = ask_store("127.0.0.1", server.getsockname()[1])
        thread.join()
    assert answer == StoreAnswer(is_store=False, keys=None)


def test_a_listener_that_is_gone_was_not_asked() -> None:
    answer = ask_store("127.0.0.1", free_port())
    assert isinstance(answer, Unread)
    assert "could not be asked" in answer.why


def test_a_store_that_does_not_count_its_keys() -> None:
    with listener() as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                said = accepted.recv(100)
                accepted.sendall(said[6:10] + said[11:15])
                accepted.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        answer = ask_store("127.0.0.1", server.getsockname()[1])
        thread.join()
    assert answer == StoreAnswer(is_store=True, keys=None)
