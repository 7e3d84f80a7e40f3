"""Members started over the system's OpenSSH client, with the user's configuration, keys and jump
hosts; their stdin and stdout are the channel.

A member ends when its stdin does: when we close it, or when the kernel does because we are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from holdfast.analysis.nodes import Absence
from holdfast.errors import EnvironmentFailure
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelClosed, ChannelError, ChannelTimeout
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.pipes import channel_over
from holdfast.nodes.reach.hosts import HostSpec, labels
from holdfast.nodes.reach.ssh_failures import SshEnding, absence, worth_another_try

AT_ONCE = 32
"""connections that are being made"""
FEW = 3
"""of those that an sshd or a jump host had dropped because there were too many"""
RETRY_SECONDS = 6.0
ENDING_SECONDS = 2.0
KEPT = 4096
"""bytes of the beginning and of the end of stderr"""


class SshMember(NamedTuple):
    """A host that answered."""

    name: str
    host: HostSpec
    channel: Channel


SshOutcome = SshMember | Absence


class OverSsh(NamedTuple):
    """All hosts, in the order they were named."""

    members: list[SshMember]
    absent: list[Absence]


@contextlib.asynccontextmanager
async def members_over_ssh(
    hosts: Sequence[HostSpec],
    command: str,
    *,
    understands: Any,
    me: Introduction,
    seconds: float,
    connect_seconds: float = math.inf,
    progress: Callable[[SshOutcome], None] = lambda _: None,
    options: Sequence[str] = (),
) -> AsyncIterator[OverSsh]:
    """`command` on every host at the same time; each is a member or an absence after `seconds`.

    A host that is down is known to be after `connect_seconds`; one that answers may need longer to
    log us in and to start Python. `options` are for ssh itself.

    At the end of the `async with` the channels are closed and no process of ours is left.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    give_up = clock() + min(seconds, RETRY_SECONDS)
    at_once, few = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(FEW)
    started: list[_Ssh] = []

    async def attempt(name: str, host: HostSpec) -> tuple[SshOutcome, bool]:
        ssh = _Ssh(name, host, command, options)
        started.append(ssh)
        outcome = await ssh.reach(
            understands=understands, me=me, deadline=deadline, connect=connect_seconds
        )
        dropped = isinstance(outcome, Absence) and worth_another_try(ssh.stderr.text())
        return outcome, dropped

    async def one(name: str, host: HostSpec) -> SshOutcome:
        async with at_once:
            outcome, dropped = await attempt(name, host)
        while dropped and clock() < give_up:
            await asyncio.sleep(random.uniform(0.1, 0.5))
            async with few:
                outcome, dropped = await attempt(name, host)
        progress(outcome)
        return outcome

    try:
        outcomes = await asyncio.gather(*map(one, labels(hosts), hosts))
        yield OverSsh(
            [outcome for outcome in outcomes if isinstance(outcome, SshMember)],
            [outcome for outcome in outcomes if isinstance(outcome, Absence)],
        )
    finally:
        await asyncio.gather(*(ssh.end() for ssh in started))


class _Ssh:
    """One ssh process."""

    def __init__(
        self, name: str, host: HostSpec, command: str, options: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._options = options
        self.stderr = _Kept()
        self._host = host
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None

    async def reach(
        self, *, understands: Any, me: Introduction, deadline: float, connect: float
    ) -> SshOutcome:
        clock = asyncio.get_running_loop().time
        began = clock()
        seconds = max(0.1, deadline - began)
        process = await self._start(min(connect, seconds - 0.5))
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            self._channel = await channel_over(
                process.stdout,
                process.stdin,
                understands=understands,
                me=me,
                peer=self.name,
                seconds=seconds,
            )
        except ChannelError as problem:
            ending = await self._ending(problem, clock() - began)
            return absence(self._host, self.name, ending)
        return SshMember(self.name, self._host, self._channel)

    async def _start(self, seconds: float) -> asyncio.subprocess.Process:
        # A pipe of our own for stderr: a master connection that ssh leaves in the background
        # (ControlPersist) may hold it open, and asyncio would wait for that.
        kept, given = os.pipe()
        try:
            reading = os.fdopen(kept, "rb", 0)
            await asyncio.get_running_loop().connect_read_pipe(lambda: self.stderr, reading)
            self._process = await asyncio.create_subprocess_exec(
                "ssh",
                *(
                    "-T",
                    "-o",
                    "BatchMode=yes",
                    "-o",
                    f"ConnectTimeout={max(1, int(seconds))}",
                ),
                *self._options,
                *self._host.ssh_arguments(),
                self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=given,
                start_new_session=True,  # Ctrl-C is for us; we then end it in order
            )
        except FileNotFoundError:
            raise EnvironmentFailure(
                "--hosts needs ssh, which is not installed here",
                hint="apt-get install openssh-client",
            ) from None
        finally:
            os.close(given)
        return self._process

    async def _ending(self, problem: ChannelError, seconds: float) -> SshEnding:
        """ssh's exit status and words, once there are any."""
        assert self._process is not None
        silent = isinstance(problem, ChannelTimeout)
        status = None if silent else await self._status_within(1.0)
        await self.end()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.stderr.ended.wait(), 0.2)
        closed = silent or isinstance(problem, ChannelClosed)
        return SshEnding(
            status,
            self.stderr.text(),
            seconds,
            problem="" if closed else problem.sentence,
            hint=problem.hint,
        )

    async def _status_within(self, seconds: float) -> int | None:
        assert self._process is not None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode

    async def end(self) -> None:
        """Its stdin ends, and with it the member; what does not end by itself is ended."""
        process = self._process
        if process is None:
            return
        if self._channel is not None:
            await self._channel.close()
        elif process.stdin is not None:
            process.stdin.close()
        waited = ENDING_SECONDS if self._channel is not None else 0.1
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._status_within(waited) is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)  # with the ssh of a jump host
            waited = 0.5
        # asyncio has no public way to let go of output that was not read
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        await process.wait()
        self.stderr.close()


class _Kept(asyncio.Protocol):
    """The beginning and the end of what comes through a pipe."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._head = bytearray()
        self._tail = bytearray()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        room = KEPT - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-KEPT:]

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def text(self) -> str:
        return bytes(self._head + self._tail).decode(errors="replace")
