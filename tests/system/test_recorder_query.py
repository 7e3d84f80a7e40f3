"""Servers that answer badly, slowly or not at all; real ranks are in tests/collectives."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.analysis.machine import Unread
from holdfast.system import recorder_query

Answer = Callable[[bytes, socket.socket], None]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="hf") as folder,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(f"{folder}/s")
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):  # the test is over, or the client went away
                while True:
                    link, _ = server.accept()
                    with link:
                        answer(link.recv(4096), link)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{folder}/s"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=30)


def http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_build_without_cuda_has_one_recorder() -> None:
    def answer(request: bytes, link: socket.socket) -> None:
        assert request.startswith(b"POST /handler/")
        nccl = b"/dump_nccl_trace_json " in request
        link.sendall(http("404 Not Found", b"") if nccl else http("200 OK", b"{}"))

    with serving(answer) as path:
        assert recorder_query.ask(path, seconds=10) == b"{}"


def test_a_cuda_build_has_three() -> None:
    """Its older NCCL groups', the other backends', and since torch 2.15 that of `nccl` itself."""
    order = [b"/dump_nccl_trace_json ", b"/fr_trace_json ", b"/fr_trace_json?backend=nccl2 "]

    def answer(request: bytes, link: socket.socket) -> None:
        number = next(n for n, handler in enumerate(order) if handler in request)
        link.sendall(http("200 OK", b'{"n":%d}' % number))

    with serving(answer) as path:
        assert recorder_query.ask(path, seconds=10) == b'[{"n":0},{"n":1},{"n":2}]'


def in_pieces(_: bytes, link: socket.socket) -> None:
    for byte in http("200 OK", b"[1, 2, 3]"):
        link.sendall(bytes([byte]))


def test_an_answer_in_pieces_is_put_together() -> None:
    with serving(in_pieces) as path:
        assert recorder_query.ask(path, seconds=10) == b"[[1, 2, 3],[1, 2, 3],[1, 2, 3]]"


def test_a_long_answer_that_comes_at_once_is_no_long_head() -> None:
    """A job that has run for a minute has a recorder of a megabyte."""
    near, far = socket.socketpair()
    with near, far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        far.settimeout(10)
        far.sendall(http("200 OK", b"x" * 100_000))
        head, body = recorder_query._head(near, time.monotonic() + 10)
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b"x" * len(body)
    assert len(body) > 1 << 16


def says(text: bytes) -> Answer:
    return lambda _, link: link.sendall(text)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(http("404 Not Found", b"")), "no flight recorder"),
        (says(http("500 Oops", b"")), "status 500"),
        (says(b"hello\r\n\r\n"), "not answer in HTTP"),
        (says(b"x" * (1 << 17)), "not answer in HTTP"),
        (says(b""), "hung up before"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "hung up in the middle"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), "more than we read"),
        (says(b"HTTP/1.1 200 OK\r\n\r\nx"), "how long"),
    ],
)
def test_a_bad_answer_is_said_to_be_one(answer: Answer, why: str) -> None:
    with serving(answer) as path:
        said = recorder_query.ask(path, seconds=10)
    assert isinstance(said, Unread)
    assert why in said.why


def test_one_that_trickles_for_ever_is_left_in_time() -> None:
    enough = threading.Event()

    def trickle(_: bytes, link: socket.socket) -> None:
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not enough.wait(0.01):
            link.sendall(b"x")

    with serving(trickle) as path:
        said = recorder_query.ask(path, seconds=0.3)
        enough.set()
    assert said == Unread(why="the rank's recorder did not answer within 0.3 s")


def test_a_rank_that_serves_nothing() -> None:
    for path in ("/nonexistent/socket", "/" + "x" * 300):
        said = recorder_query.ask(path)
        assert isinstance(said, Unread)
        assert "recorder" in said.why
