"""One TCP connection to a target: connected or not, and is it the one we meant?"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from types import TracebackType

from holdfast.analysis.nodes import Outcome, Target
from holdfast.system.paths import wire
from holdfast.system.paths.icmp import IcmpError, next_icmp_error, want_icmp_errors
from holdfast.system.paths.outcomes import error_words, outcome_of
from holdfast.system.sockets import error_name, family_of

_RESET = struct.pack("=ii", 1, 0)
"""struct linger: on, 0 s"""


class ConnectFailed(Exception):  # noqa: N818 - it is an answer, not an error
    def __init__(self, outcome: Outcome, error: str) -> None:
        super().__init__(error)
        self.outcome, self.error = outcome, error


class ProbeConnection:
    """Leaves nothing behind: closed by a reset, so that no port stays in TIME_WAIT."""

    def __init__(self, target: Target, key: bytes) -> None:
        self.target, self._key = target, key
        self.local = ""
        self.socket = socket.socket(family_of(target.address), socket.SOCK_STREAM)
        self._loop = asyncio.get_running_loop()
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            want_icmp_errors(self.socket)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> ProbeConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    @property
    def connected(self) -> bool:
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True

    async def connect(self) -> None:
        """Raises ConnectFailed; silence lasts until the caller cancels."""
        number = self.socket.connect_ex((self.target.address, self.target.port))
        if number not in (0, errno.EINPROGRESS):
            raise self._failure(number, at_once=True)
        self.local = self.socket.getsockname()[0]
        while not self.connected:
            number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            icmp = next_icmp_error(self.socket)
            if number or icmp:
                raise self._failure(number or (icmp.number if icmp else 0), icmp=icmp)
            await self._event()
        # An established connection outlives an ICMP message, as that of a job would.
        want_icmp_errors(self.socket, on=False)

    async def prove(self, length: int = 0) -> None:
        """Send `length` bytes and see that the target's own listener got them."""
        hello, packed = wire.pack_hello(self._key, length)
        try:
            await self._loop.sock_sendall(self.socket, packed + bytes(length))
            answer = await self._answer()
        except OSError as problem:
            raise self._stranger(f"the connection broke: {error_name(problem)}") from problem
        if not answer:
            raise self._stranger("the connection was closed without an answer")
        name = wire.read_name(self._key, hello, answer)
        if name is None:
            raise self._stranger("what answered is not a listener of this check")
        if name.encode() != self.target.node.encode()[: wire.LONGEST_NAME]:
            raise self._stranger(f"node {name} answered")

    async def _answer(self) -> bytes:
        """As many bytes as the first one announces; fewer when the other side hangs up."""
        taken = await self._loop.sock_recv(self.socket, 1)
        whole = 1 + taken[0] + wire.PROOF if taken else 0
        while len(taken) < whole:
            more = await self._loop.sock_recv(self.socket, whole - len(taken))
            if not more:
                break
            taken += more
        return taken

    async def _event(self) -> None:
        """Until the kernel has news of this connect: established, refused, or an ICMP error."""
        news = asyncio.Event()
        self._loop.add_writer(self.socket, news.set)
        try:
            await news.wait()
        finally:
            self._loop.remove_writer(self.socket)

    def _failure(
        self, number: int, *, at_once: bool = False, icmp: IcmpError | None = None
    ) -> ConnectFailed:
        outcome = outcome_of(number, at_once=at_once, icmp=icmp, local=self.local)
        return ConnectFailed(outcome, error_words(number, icmp))

    @staticmethod
    def _stranger(what: str) -> ConnectFailed:
        return ConnectFailed(Outcome.STRANGER, f"connected, but {what}")
