"""The socket of NCCL's RAS: a healthy one, stopped listeners, older versions, hostile answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.analysis.machine import Unread
from holdfast.analysis.ras import reading
from holdfast.analysis.ras.address import RasAddress, parse
from holdfast.system import ras
from tests.system import ras_server
from tests.system.ras_server import FakeCommunicator, FakeJob, FakeRank, job

HERE = "127.0.0.1"
STUCK = FakeJob(
    communicators=(
        FakeCommunicator(
            (
                FakeRank(0, 600, counts={"AllReduce": 129}),
                FakeRank(1, 601, state="silent"),
                FakeRank(2, 602, error=6, counts={"AllReduce": 129}),
            )
        ),
    ),
    at="2026-11-16 10:16:30",
)


@pytest.mark.parametrize(("made", "name"), [(job(116, 116, 116), "ok"), (STUCK, "stuck")])
def test_the_fake_answers_as_the_real_one_did(made: FakeJob, name: str) -> None:
    recorded = {p.suffix: p.read_text() for p in ras_server.RECORDED.glob(f"{name}.*")}
    assert recorded == {".json": ras_server.as_json(made), ".txt": ras_server.as_text(made)}


def test_a_newer_version_answers_in_the_same_form() -> None:
    made = FakeJob(
        communicators=(
            FakeCommunicator(
                job(37, 37, 37, first_pid=2292).communicators[0].ranks,
                hash=0xDD7CE9498780EDB3,
                others=(0x8C0B352D38DB659A, 0x8ACC724A574FF651),
            ),
        ),
        nccl="2.32.3",
        at="2026-11-16 11:02:41",
    )
    recorded = (ras_server.RECORDED / "ok-2.32.3.json").read_text()
    assert ras_server.as_json(made) == recorded.replace("13040", "13000")  # CUDA's own version


@pytest.mark.parametrize("nccl", ["2.28.7", "2.28.9", "2.30.7", "2.32.3"])
def test_every_version_that_has_json_is_asked(nccl: str) -> None:
    with ras_server.serving(job(7, 7, 6, silent=[1], nccl=nccl)) as port:
        data = ras.status(RasAddress(HERE, port), seconds=10, patience=1)
    assert isinstance(data, bytes)
    answer = reading.read(data)
    assert answer is not None
    assert (answer.nccl, [p.pid for p in answer.silent]) == (nccl, [601])


@pytest.mark.parametrize("nccl", ["2.24.3", "2.26.5", "2.27.7", "2.28.3"])
def test_a_version_whose_status_may_crash_the_job_is_not_asked_for_it(nccl: str) -> None:
    asked: list[str] = []
    with ras_server.serving(job(7, 7, nccl=nccl), asked=asked) as port:
        answer = ras.status(RasAddress(HERE, port), seconds=10)
    assert isinstance(answer, Unread)
    assert "older than 2.28.7" in answer.why
    assert asked == ["CLIENT PROTOCOL 2", "SET FORMAT json"]


def test_localhost_is_found_without_a_name_server() -> None:
    with ras_server.serving(job(1, 1)) as port:
        assert isinstance(ras.status(parse(f":{port}"), seconds=10), bytes)


def test_stopped_processes_that_share_the_port_are_passed_over() -> None:
    """The kernel gives many connections to them, and they are never answered."""
    with ras_server.serving(job(1, 1), stopped=1) as port:
        for _ in range(4):
            assert isinstance(ras.status(RasAddress(HERE, port), seconds=20), bytes)


def test_where_all_are_stopped_the_deadline_holds() -> None:
    with ras_server._listener(0) as silent:
        begun = time.monotonic()
        answer = ras.status(RasAddress(HERE, silent.getsockname()[1]), seconds=0.4)
    assert isinstance(answer, Unread)
    assert "did not answer within 0.4 s" in answer.why
    assert time.monotonic() - begun < 5


def test_where_nothing_listens_there_is_no_answer_and_no_problem() -> None:
    with ras_server._listener(0) as link:
        port = link.getsockname()[1]
    assert ras.status(RasAddress(HERE, port), seconds=5) is None


def test_diagnostics_are_had_where_nccl_has_them() -> None:
    line = "n1:1 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 2 ranks"
    new = FakeJob(communicators=job(1, 1).communicators, nccl="2.31.1", diagnostics=[line])
    with ras_server.serving(new) as port:
        assert ras.diagnostics(RasAddress(HERE, port), seconds=10) == f"{line}\n".encode()
    with ras_server.serving(job(1, 1)) as port:
        answer = ras.diagnostics(RasAddress(HERE, port), seconds=10)
    assert isinstance(answer, Unread)
    assert "does not know the question" in answer.why


@contextlib.contextmanager
def hostile(*answers: bytes, endless: bytes = b"") -> Iterator[int]:
    """Answers anything with these, then hangs up, or sends the same until its caller does."""

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                link = listener.accept()[0]
                with link, contextlib.suppress(OSError):
                    for answer in answers:
                        link.recv(4096)
                        link.sendall(answer)
                    link.recv(4096)
                    while endless:
                        link.sendall(endless)

    with ras_server._listener(0) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.mark.parametrize(
    ("answers", "endless", "why"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), b"", "is not NCCL's RAS"),
        ((b"x" * 8192,), b"", "is not NCCL's RAS"),
        ((), b"", "closed before an answer"),
        ((b"SERVER PROTOCOL 2\n",), b"", "closed before an answer"),
        ((b"SERVER PROTOCOL 2\n", b"OK\n"), b"y" * 65536, "larger than"),
        ((b"SERVER PROTOCOL 2\n", b"OK\n", b"BUSY: diagnostics\n"), b"", "busy"),
    ],
)
def test_what_is_no_answer_is_said_so(
    answers: tuple[bytes, ...], endless: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ras, "LARGEST", 1 << 20)
    with hostile(*answers, endless=endless) as port:
        answer = ras.status(RasAddress(HERE, port), seconds=10)
    assert isinstance(answer, Unread), answer
    assert why in answer.why


def test_bytes_that_trickle_do_not_outlive_the_deadline() -> None:
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as link, contextlib.suppress(OSError):
            while not ended.wait(0.05):
                link.sendall(b"S")

    with ras_server._listener(0) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        begun = time.monotonic()
        answer = ras.status(RasAddress(HERE, listener.getsockname()[1]), seconds=0.5)
        taken = time.monotonic() - begun
        ended.set()
        thread.join(10)
    assert isinstance(answer, Unread)
    assert taken < 5
